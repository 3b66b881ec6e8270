"""`jaxlake render`: a picture of each record."""

import io
import xml.etree.ElementTree as ElementTree

from jaxlake.command_line.entry import main

GRID = ["S F G", "s H F", "g F F"]
VALID = {"id": "a/b", "grid": GRID, "plan": [["RIGHT", "RIGHT"], ["DOWN"]]}
FALLS = {"id": "hole", "grid": GRID, "plan": [["DOWN", "RIGHT"], ["DOWN"]]}
UNREAD = {"id": "words", "grid": GRID, "text": "no idea"}
ALONE = {"id": "alone", "grid": GRID}


def test_render_prints_the_outcome_of_each_plan(cli, write):
    status, out, err = cli("render", write(VALID, FALLS, UNREAD, ALONE))
    assert (status, err) == (0, "")
    valid, tail = out.split("\nhole\n")
    falls, tail = tail.split("\nwords\n")
    unread, alone = tail.split("\nalone\n")
    assert valid.startswith("a/b\n")
    assert "2 steps" in valid
    assert "hole · step 1, agent 0 at (1, 1)" in falls
    assert "parse error" in unread
    assert "S F G\ns H F\ng F F" in alone
    assert "parse error" not in alone


def test_ids_are_escaped_for_terminals(cli, write, tmp_path):
    ids = ["\ud800", "\x1b[2J", "two\nlines", "Zürich 湖"]
    lines = write(*({"id": id_, "grid": GRID} for id_ in ids))
    status, out, err = cli("render", lines)
    assert (status, err) == (0, "")
    assert {"\\ud800", "\\x1b[2J", "two\\nlines", "Zürich 湖"} <= set(out.split("\n"))
    assert cli("render", lines, "--output", tmp_path / "pictures").status == 0


def test_render_escapes_unencodable_letters(write, monkeypatch):
    lines = write({"id": "Zürich 湖", "grid": GRID})
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding="latin-1"))
    assert main(["render", str(lines)]) == 0
    assert buffer.getvalue().startswith("Zürich \\u6e56\n".encode("latin-1"))


def test_render_writes_one_file_per_record(cli, write, tmp_path):
    folder = tmp_path / "pictures"
    status, out, err = cli("render", write(VALID, FALLS, FALLS, b"junk"), "--output", folder)
    assert (status, out) == (1, "")
    assert ":4: not JSON" in err
    assert sorted(path.name for path in folder.iterdir()) == ["a_b.svg", "hole.svg", "hole_3.svg"]
    for path in folder.iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_render_accepts_output_of_solve(cli, write):
    walled = {"id": "walled", "grid": ["S H", "H G"]}
    solved = cli("solve", write(ALONE, walled, {"id": "none"}, {"id": "two", "grid": ["S"]}))
    assert solved.status == 1
    status, out, err = cli("render", write(*solved.records))
    assert status == 1
    alone, unsolvable = out.split("\nwalled\n")
    assert "2 steps" in alone
    assert "S H\nH G" in unsolvable
    assert "parse error" not in unsolvable
    assert ':3: error: "grid must be set' in err
    assert ':4: error: "grid must have 2 to 32 rows, got 1' in err


def test_render_rejects_a_file_as_folder(cli, write, tmp_path):
    status, _, err = cli("render", write(VALID), "--output", tmp_path / "one.svg")
    assert status == 2
    assert "--output must be a folder" in err
