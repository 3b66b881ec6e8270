"""`jaxlake dataset`: sets on disk from the command line."""

import json
from pathlib import Path

import pytest

MAKE = {
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
def make(cli, tmp_path):
    """Return a function that creates the dataset `set` with the options of `MAKE` and changes."""

    def make(**changes):
        options = MAKE | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
        words = [word for name, value in options.items() for word in (name, *value.split())]
        return cli("dataset", "make", tmp_path / "set", *words)

    return make


@pytest.mark.slow
def test_dataset_commands_make_show_and_convert(make, cli, tmp_path):
    directory = tmp_path / "set"
    first = make(worker="1/2")
    assert (first.status, first.out) == (1, f"{directory}: 4 of 20 boards in 1 of 3 parts\n")
    assert "4 boards could not be made" in first.err
    incomplete = cli("dataset", "convert", directory, tmp_path / "boards.jsonl")
    assert incomplete.status == 2
    assert "2 of 3 parts are missing" in incomplete.err
    other_seed = make(seed="5")
    assert other_seed.status == 2
    assert "belongs to another set: key_data" in other_seed.err

    result = make()
    assert (result.status, result.out) == (1, f"{directory}: 10 of 20 boards in 3 of 3 parts\n")
    assert result.err.startswith("jaxlake: 1 of 3 parts\n")
    shown = cli("dataset", "info", directory, "--verify")
    lines = shown.out.splitlines()
    assert shown.status == 0
    assert lines[0] == "10 of 20 boards in 3 of 3 parts"
    assert lines[2].split()[:6] == ["2", "2", "0", "0", "10", "10"]
    assert lines[3] == "verified 3 parts"

    boards = tmp_path / "boards.jsonl"
    assert cli("dataset", "convert", directory, boards).status == 0
    records = [json.loads(line) for line in boards.read_text().splitlines()]
    assert len({tuple(record["grid"]) for record in records}) == 10
    assert [record["id"] for record in records] == [f"{i:08d}" for i in range(10)]

    (directory / "part-00001.npz").write_bytes(b"")
    damaged = cli("dataset", "info", directory, "--verify")
    assert damaged.status == 2
    assert "part-00001.npz: is damaged" in damaged.err


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
        lines = tmp_path / "back.jsonl"
        arguments = [f"{stem}.scen", lines, "--map", f"{stem}.map", "--agents", "2"]
        assert cli("dataset", "convert", *arguments).status == 0
        assert json.loads(lines.read_text()) == {"id": f"{stem.name}-00000", "grid": row["grid"]}
        copies = tmp_path / f"again{i}"  # lines of boards are a source, too
        assert cli("dataset", "convert", lines, copies).status == 0
        wrong = folder / f"benchmark_wr0.5_r_{1 - i}.map"
        rejected = cli("dataset", "convert", *arguments[:3], wrong, *arguments[4:])
        assert (rejected.status, "the map must be named" in rejected.err) == (2, True)
        rejected = cli("dataset", "convert", f"{stem}.map", lines, "--map", f"{stem}.scen")
        assert (rejected.status, "SOURCE must be the .scen file" in rejected.err) == (2, True)
        copied_map = copies / f"{stem.name}-00000.map"
        assert copied_map.read_bytes() == Path(f"{stem}.map").read_bytes()


def test_convert_skips_and_counts_boards(cli, tmp_path):
    (tmp_path / "a.map").write_text("type octile\nheight 3\nwidth 3\nmap\n...\n...\n...\n")
    # A plain board, one with a start on the other agent's goal, and one with equal starts.
    tasks = ["0 0 2 0", "0 1 2 1", "0 0 2 0", "2 0 2 1", "0 0 2 0", "0 0 2 1"]
    lines = ["version 1", *(f"0 a.map 3 3 {task} 2.0" for task in tasks)]
    (tmp_path / "a.scen").write_text("\n".join(lines))
    folder, text = tmp_path / "maps", tmp_path / "a.jsonl"
    options = ["--map", tmp_path / "a.map", "--agents", 2]
    result = cli("dataset", "convert", tmp_path / "a.scen", folder, *options)
    assert (result.status, result.out) == (1, f"{folder}: 2 boards\n")
    assert f"skipped 1 of 3 boards, such as a-00002: {tmp_path}/a.scen:6: " in result.err
    result = cli("dataset", "convert", tmp_path / "a.scen", text, *options)
    assert (result.status, result.out) == (1, f"{text}: 1 boards\n")
    assert (
        "skipped 2 of 3 boards, such as a-00001: instance must have one symbol per cell"
        in result.err
    )
    assert json.loads(text.read_text())["grid"] == ["S F G", "s F g", "F F F"]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (b'{"id": 2, "grid": ["S F", "F F"]}', "row 0, column 0 has 'S' without its partner"),
        (b"[2]", "a line must be a JSON object, got list"),
        (b'{"id": 2, "grid": ["S F", "F ', "not JSON: "),
    ],
)
@pytest.mark.parametrize("target", ["maps", "lines.jsonl"])
def test_convert_rejects_invalid_line_and_writes_nothing(cli, tmp_path, second, message, target):
    source = tmp_path / "boards.jsonl"
    source.write_bytes(b'{"id": 1, "grid": ["S G", "F F"]}\n' + second + b"\n")
    result = cli("dataset", "convert", source, tmp_path / target)
    assert result.status == 2
    assert f"{source}:2: {message}" in result.err
    assert list(tmp_path.iterdir()) == [source]
