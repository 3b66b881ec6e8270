"""External input takes linear time and bounded depth; a bad line affects only itself."""

import json
import random
import time

import pyarrow
import pytest
from pyarrow import parquet

from engineer import review_answer
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from jaxlake.command_line.entry import main
from jaxlake.command_line.json_lines import read_lines
from jaxlake.datasets.movingai import read_map, read_scen
from jaxlake.datasets.published import find_board, read_published
from jaxlake.datasets.source_files import DatasetError
from jaxlake.errors import escape_controls
from jaxlake.files import MAX_DEPTH, load_json
from jaxlake.language.answers import parse_answer
from tests.hostile import alter_json, damage_bytes

DEEP_TEXTS = {
    "objects": '{"a":' * 900 + "1" + "}" * 900,
    "arrays": "[" * 900 + '"UP"' + "]" * 900,
    "literals": "{0:" * 900 + "'UP'" + "}" * 900,
    "mixed": '{"plan":[' * 500 + "]}" * 500,
    "open": '[{"agent_0": ' * 1000,
    "plans": '{"Agent 0": ' + "[" * 400 + '"UP"' + "]" * 400 + "}",
}
GRID = ["S F", "F G"]
MAX_SECONDS = 5.0
"""Time limit in seconds. A reader with quadratic run time exceeds it."""


@pytest.mark.parametrize("text", DEEP_TEXTS.values(), ids=DEEP_TEXTS)
def test_deep_answer_is_rejected_by_every_reader(text):
    assert not parse_answer(text, 2, max_steps=64).parsed
    knobs = {"data_ratio": 0.5, "hole_ratio": 0.1, "wait_ratio": 0.1}
    lake = LakeConfiguration.model_validate({"sizes": {3: knobs, 4: knobs}})
    assert review_answer(text, lake, lake_domain(Bounds(sizes=(3, 4)), 2)).kind == "rejected"
    if text.count("[") + text.count("{") > MAX_DEPTH and '"' in text:
        with pytest.raises(ValueError, match="nested more than"):
            load_json(text)


def test_load_json_ignores_brackets_in_strings():
    text = json.dumps({"text": '"[{' * 5000})
    assert load_json(text)["text"].startswith('"[{')


def test_check_answers_every_hostile_line(tmp_path, capsys):
    rng = random.Random(49)
    alphabet = [
        '{"',
        '":',
        "[",
        "]",
        "}",
        "Agent 0: ",
        "UP ",
        "\\u0000",
        "9" * 50,
        "<answer>",
        "((",
    ]
    answers = ["".join(rng.choices(alphabet, k=200)) for _ in range(300)]
    texts = [*DEEP_TEXTS.values(), *answers, "agent 1 (" * 20_000, "Agent 0: RIGHT"]
    lines = [json.dumps({"grid": GRID, "answer": text}) for text in texts]
    lines += ["[" * 5000, '{"grid": ' + "[" * 900, '{"a": 1e999}', '{"n": ' + "9" * 5000 + "}"]
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join(lines) + "\n")
    start = time.monotonic()
    assert main(["check", str(file)]) == 1
    assert len(capsys.readouterr().out.splitlines()) == len(lines)
    assert time.monotonic() - start < 20 * MAX_SECONDS


def test_read_lines_cuts_overlong_lines(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxlake.command_line.json_lines._MAX_LINE_BYTES", 8)
    file = tmp_path / "lines"
    file.write_text("123456789abcdefghi\n{}\n")
    assert list(read_lines(str(file))) == [b"12345678", b"{}\n"]


@pytest.mark.parametrize(
    "text", ["agent 1 (" * 50_000, "agent 0 (1, 1" * 50_000, "agent 0 (" + " " * 200_000]
)
def test_find_board_takes_linear_time(text):
    start = time.monotonic()
    with pytest.raises(DatasetError):
        find_board(text)
    find_board("S G\nF F\n" + text)
    assert time.monotonic() - start < MAX_SECONDS


ROW = {"sample_id": "1ag_2x2_hr0.1_0", "num_agents": 1, "grid": ["S F", "F G"]}


@pytest.mark.parametrize(
    "changes",
    [
        {"num_agents": 1.9},
        {"num_agents": True},
        {"num_agents": "1"},
        {"num_agents": 10**400},
        {"sum_of_costs": 10**400},
        {"sum_of_costs": 1e300},
        {"sample_id": "9" * 5000 + "ag_2x2_hr0_0", "grid": []},
        {"grid": [[[]]]},
        {"grid": "S" * 200_000},
        {str(number): number for number in range(1000)} | {"grid": None},
    ],
    ids=lambda changes: f"{changes!s:.40}",
)
def test_invalid_published_row_gives_one_sentence(changes, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW | changes))
    with pytest.raises(DatasetError) as error:
        read_published(tmp_path / "rows.jsonl")
    assert len(str(error.value)) < 1000 + len(str(tmp_path))


@pytest.mark.parametrize("value", ["9" * 5000, "1e999", "-1", "\u0663", "1.5", ""])
def test_movingai_rejects_invalid_numbers(value, tmp_path):
    file = tmp_path / "a.scen"
    file.write_text(f"version 1\n0\ta.map\t2\t2\t{value}\t0\t1\t1\t2\n")
    with pytest.raises(DatasetError, match="start x"):
        read_scen(file)
    file.write_text(f"type octile\nheight {value}\nwidth 2\nmap\n..\n..\n")
    with pytest.raises(DatasetError):
        read_map(file)


SCENARIO = "version 1\n0\ta.map\t3\t3\t0\t0\t2\t0\t2\n0\ta.map\t3\t3\t0\t1\t0\t2\t1\n"
MAP = "type octile\nheight 3\nwidth 3\nmap\n...\n.@.\n...\n"


def test_convert_reads_or_rejects_damaged_files(tmp_path, capsys):
    rng, parquet_file = random.Random(49), tmp_path / "whole.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([ROW]), parquet_file)
    texts = {"a.map": MAP, "a.scen": SCENARIO, "rows.jsonl": json.dumps(ROW)}
    originals = {name: text.encode() for name, text in texts.items()}
    originals["rows.parquet"] = parquet_file.read_bytes()
    for trial in range(120):
        for name, content in originals.items():
            (tmp_path / name).write_bytes(content)
        name = rng.choice(sorted(originals))
        content = damage_bytes(originals[name], rng)
        if name == "rows.jsonl" and trial % 2:
            content = json.dumps(alter_json(ROW, rng, 0.2)).encode()
        (tmp_path / name).write_bytes(content)
        map_file = str(tmp_path / "a.map")
        options = [] if "rows" in name else ["--map", map_file, "--agents", "2"]
        source = tmp_path / (name if "rows" in name else "a.scen")
        target = str(tmp_path / "out.jsonl")
        assert main(["dataset", "convert", str(source), target, *options]) in (0, 2)
        assert len(capsys.readouterr().err) < 2000


@pytest.mark.parametrize(
    "command", ["run CONFIG --set a\x1b[31mb=1", "report \x1b]0;title\x07", "check \x1b[1mA"]
)
def test_messages_escape_control_characters(command, capsys):
    arguments = [
        argument.replace("CONFIG", "configs/miniature.yaml") for argument in command.split(" ")
    ]
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "\\x1b" in captured.err
    assert escape_controls("a\n\u202e\x9b") == "a\n\\u202e\\x9b"


def test_argument_errors_escape_control_characters(capsys):
    with pytest.raises(SystemExit):
        main(["solve", "FILE", "--\x1b[2Jx"])
    assert "--\\x1b[2Jx" in capsys.readouterr().err
