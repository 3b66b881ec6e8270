"""`jaxlake dataset`: sets on disk from the command line."""

import json
from pathlib import Path

import pytest

OPTIONS = {
    "--size": "2",
    "--agents": "2",
    "--hole-ratio": "0",
    "--wait-ratio": "0.5",
    "--count": "20",
    "--seed": "4",
    "--part-size": "8",
    "--max-candidates": "512",
}


@pytest.fixture
def make_set(cli, tmp_path):
    """Return a function that creates the dataset `set` with `OPTIONS` and changes."""

    def make_set(**changes):
        options = OPTIONS | {
            f"--{name.replace('_', '-')}": value for name, value in changes.items()
        }
        words = [word for name, value in options.items() for word in (name, *value.split())]
        return cli("dataset", "make", tmp_path / "set", *words)

    return make_set


@pytest.mark.slow
def test_dataset_commands_make_show_and_convert(make_set, cli, tmp_path):
    directory = tmp_path / "set"
    result = make_set(worker="1/2")
    assert (result.status, result.out) == (1, f"{directory}: 4 of 20 boards in 1 of 3 parts\n")
    assert "4 boards could not be made" in result.err
    result = cli("dataset", "convert", directory, tmp_path / "boards.jsonl")
    assert result.status == 2
    assert "2 of 3 parts are missing" in result.err
    result = make_set(seed="5")
    assert result.status == 2
    assert "belongs to another set: key_data" in result.err

    result = make_set()
    assert (result.status, result.out) == (1, f"{directory}: 10 of 20 boards in 3 of 3 parts\n")
    assert result.err.startswith("jaxlake: 1 of 3 parts\n")
    result = cli("dataset", "info", directory, "--verify")
    lines = result.out.splitlines()
    assert result.status == 0
    assert lines[0] == "10 of 20 boards in 3 of 3 parts"
    assert lines[2].split()[:6] == ["2", "2", "0", "0", "10", "10"]
    assert lines[3] == "verified 3 parts"

    boards_file = tmp_path / "boards.jsonl"
    assert cli("dataset", "convert", directory, boards_file).status == 0
    records = [json.loads(line) for line in boards_file.read_text().splitlines()]
    assert len({tuple(record["grid"]) for record in records}) == 10
    assert [record["id"] for record in records] == [f"{i:08d}" for i in range(10)]

    (directory / "part-00001.npz").write_bytes(b"")
    result = cli("dataset", "info", directory, "--verify")
    assert result.status == 2
    assert "part-00001.npz: is damaged" in result.err


def test_convert_round_trips_movingai_files(cli, tmp_path):
    rows = [
        {"sample_id": f"r/{i}", "num_agents": 2, "grid": grid}
        for i, grid in enumerate([["S F G", "s H F", "g F F"], ["F S s", "H H F", "g F G"]])
    ]
    source = tmp_path / "benchmark_wr0.5.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tmp_path / "movingai"
    assert cli("dataset", "convert", source, folder).status == 0
    for i, row in enumerate(rows):
        stem = folder / f"benchmark_wr0.5_r_{i}"
        path = tmp_path / "back.jsonl"
        arguments = [f"{stem}.scen", path, "--map", f"{stem}.map", "--agents", "2"]
        assert cli("dataset", "convert", *arguments).status == 0
        assert json.loads(path.read_text()) == {"id": f"{stem.name}-00000", "grid": row["grid"]}
        copy_folder = tmp_path / f"again{i}"  # lines of boards are a source, too
        assert cli("dataset", "convert", path, copy_folder).status == 0
        other_map = folder / f"benchmark_wr0.5_r_{1 - i}.map"
        result = cli("dataset", "convert", *arguments[:3], other_map, *arguments[4:])
        assert (result.status, "the map must be named" in result.err) == (2, True)
        result = cli("dataset", "convert", f"{stem}.map", path, "--map", f"{stem}.scen")
        assert (result.status, "SOURCE must be the .scen file" in result.err) == (2, True)
        map_copy = copy_folder / f"{stem.name}-00000.map"
        assert map_copy.read_bytes() == Path(f"{stem}.map").read_bytes()


def test_convert_skips_and_counts_boards(cli, tmp_path):
    (tmp_path / "a.map").write_text("type octile\nheight 3\nwidth 3\nmap\n...\n...\n...\n")
    # A plain board, one with a start on the other agent's goal, and one with equal starts.
    tasks = ["0 0 2 0", "0 1 2 1", "0 0 2 0", "2 0 2 1", "0 0 2 0", "0 0 2 1"]
    lines = ["version 1", *(f"0 a.map 3 3 {task} 2.0" for task in tasks)]
    (tmp_path / "a.scen").write_text("\n".join(lines))
    folder, boards_file = tmp_path / "maps", tmp_path / "a.jsonl"
    options = ["--map", tmp_path / "a.map", "--agents", 2]
    result = cli("dataset", "convert", tmp_path / "a.scen", folder, *options)
    assert (result.status, result.out) == (1, f"{folder}: 2 boards\n")
    assert f"skipped 1 of 3 boards, such as a-00002: {tmp_path}/a.scen:6: " in result.err
    result = cli("dataset", "convert", tmp_path / "a.scen", boards_file, *options)
    assert (result.status, result.out) == (1, f"{boards_file}: 1 boards\n")
    assert (
        "skipped 2 of 3 boards, such as a-00001: instance must have one symbol per cell"
        in result.err
    )
    assert json.loads(boards_file.read_text())["grid"] == ["S F G", "s F g", "F F F"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": 2, "grid": ["S F", "F F"]}', "row 0, column 0 has 'S' without its partner"),
        (b"[2]", "a line must be a JSON object, got list"),
        (b'{"id": 2, "grid": ["S F", "F ', "not JSON: "),
    ],
)
@pytest.mark.parametrize("target", ["maps", "lines.jsonl"])
def test_convert_rejects_invalid_line_and_writes_nothing(cli, tmp_path, line, message, target):
    source = tmp_path / "boards.jsonl"
    source.write_bytes(b'{"id": 1, "grid": ["S G", "F F"]}\n' + line + b"\n")
    result = cli("dataset", "convert", source, tmp_path / target)
    assert result.status == 2
    assert f"{source}:2: {message}" in result.err
    assert list(tmp_path.iterdir()) == [source]
