"""`jaxlake render`: a picture of each record."""

import io
import xml.etree.ElementTree as ElementTree

from jaxlake.command_line.entry import main

GRID = ["S F G", "s H F", "g F F"]
VALID_PLAN = {"id": "a/b", "grid": GRID, "plan": [["RIGHT", "RIGHT"], ["DOWN"]]}
HOLE_PLAN = {"id": "hole", "grid": GRID, "plan": [["DOWN", "RIGHT"], ["DOWN"]]}
PROSE = {"id": "words", "grid": GRID, "text": "no idea"}
BOARD = {"id": "alone", "grid": GRID}


def test_render_prints_the_outcome_of_each_plan(cli, write_lines):
    status, out, err = cli("render", write_lines(VALID_PLAN, HOLE_PLAN, PROSE, BOARD))
    assert (status, err) == (0, "")
    valid_picture, tail = out.split("\nhole\n")
    hole_picture, tail = tail.split("\nwords\n")
    text_picture, board_picture = tail.split("\nalone\n")
    assert valid_picture.startswith("a/b\n")
    assert "2 steps" in valid_picture
    assert "hole · step 1, agent 0 at (1, 1)" in hole_picture
    assert "parse error" in text_picture
    assert "S F G\ns H F\ng F F" in board_picture
    assert "parse error" not in board_picture


def test_ids_are_escaped_for_terminals(cli, write_lines, tmp_path):
    ids = ["\ud800", "\x1b[2J", "two\nlines", "Zürich 湖"]
    records_file = write_lines(*({"id": id_, "grid": GRID} for id_ in ids))
    status, out, err = cli("render", records_file)
    assert (status, err) == (0, "")
    assert {"\\ud800", "\\x1b[2J", "two\\nlines", "Zürich 湖"} <= set(out.split("\n"))
    assert cli("render", records_file, "--output", tmp_path / "pictures").status == 0


def test_render_escapes_unencodable_letters(write_lines, monkeypatch):
    records_file = write_lines({"id": "Zürich 湖", "grid": GRID})
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding="latin-1"))
    assert main(["render", str(records_file)]) == 0
    assert buffer.getvalue().startswith("Zürich \\u6e56\n".encode("latin-1"))


def test_render_writes_one_file_per_record(cli, write_lines, tmp_path):
    folder = tmp_path / "pictures"
    status, out, err = cli(
        "render", write_lines(VALID_PLAN, HOLE_PLAN, HOLE_PLAN, b"junk"), "--output", folder
    )
    assert (status, out) == (1, "")
    assert ":4: not JSON" in err
    assert sorted(path.name for path in folder.iterdir()) == ["a_b.svg", "hole.svg", "hole_3.svg"]
    for path in folder.iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_render_accepts_output_of_solve(cli, write_lines):
    walled_board = {"id": "walled", "grid": ["S H", "H G"]}
    result = cli(
        "solve", write_lines(BOARD, walled_board, {"id": "none"}, {"id": "two", "grid": ["S"]})
    )
    assert result.status == 1
    status, out, err = cli("render", write_lines(*result.records))
    assert status == 1
    board_picture, unsolvable_picture = out.split("\nwalled\n")
    assert "2 steps" in board_picture
    assert "S H\nH G" in unsolvable_picture
    assert "parse error" not in unsolvable_picture
    assert ':3: error: "grid must be set' in err
    assert ':4: error: "grid must have 2 to 32 rows, got 1' in err


def test_render_rejects_a_file_as_folder(cli, write_lines, tmp_path):
    status, _, err = cli("render", write_lines(VALID_PLAN), "--output", tmp_path / "one.svg")
    assert status == 2
    assert "--output must be a folder" in err
