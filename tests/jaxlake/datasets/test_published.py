"""Published rows: readers find the board in a prompt."""

import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from benchmarks.oracles import parse_board, random_grid
from jaxlake import format_grid
from jaxlake.datasets import DatasetError, find_board, read_published
from jaxlake.datasets.published import find_boards

PUBLISHED_FILE = Path(__file__).parent / "data" / "published_rows.jsonl"

LEGEND = """\
You guide {k} agents over a frozen lake. The map is shown row by row.
Symbols:
S s A B C
are the starts of agents 0 to 4 and
G g a b c
their goals; F is frozen and H is a hole. A H must never be entered.
"""
EXAMPLE = """\
For example, on the board
S F F
s H G
F F g
Agent 0 needs to go from (0, 0) to (1, 2)
Agent 1 needs to go from (1, 0) to (2, 2)
a plan is: Agent 0: RIGHT RIGHT DOWN
"""
RULES = "No two agents may be in one cell, or trade cells, in the same step. " * 12
FORMAT = "Answer with one line an agent, such as\nAgent 0: RIGHT, DOWN\nAgent 1: WAIT\n"


def make_sentences(grid):
    board = parse_board(grid)
    return "".join(
        f"Agent {i} needs to go from {start} to {goal}\n"
        for i, (start, goal) in enumerate(zip(board.starts, board.goals, strict=True))
    )


def make_prompt(grid, *, sentences=True):
    num_agents = len(parse_board(grid).starts)
    task_text = make_sentences(grid) if sentences else ""
    return "\n".join(
        [LEGEND.format(k=num_agents), RULES, EXAMPLE, "Now the task:", *grid, task_text, FORMAT]
    )


def make_rows(grids):
    return [
        {
            "sample_id": f"{len(parse_board(g).starts)}ag_{len(g)}x{len(g)}_hr0.2_{i:03d}",
            "num_agents": len(parse_board(g).starts),
            "text": make_prompt(g),
        }
        for i, g in enumerate(grids)
    ]


@pytest.fixture(scope="module")
def grids():
    rng = random.Random(5)
    return [
        random_grid(rng, size, 0.1, num_agents)
        for num_agents in (3, 4, 5)
        for size in range(num_agents, 11)
    ]


def test_known_rows_match_their_sentence():
    rows = read_published(PUBLISHED_FILE)
    records = [json.loads(line) for line in PUBLISHED_FILE.read_text().splitlines()]
    assert [row.sample_id for row in rows] == [f"3ag_3x3_hr0.1_{i:03d}" for i in range(4)]
    for row, record in zip(rows, records, strict=True):
        assert format_grid(row.instance) == record["grid"]
        assert record["first_pair"] == make_sentences(format_grid(row.instance)).splitlines()[0]
        assert (row.num_agents, row.text, row.config) == (3, "", None)


def test_find_board_skips_legends_and_examples(grids):
    for grid in grids:
        for sentences in (True, False):
            text = make_prompt(grid, sentences=sentences)
            assert 1100 < len(text) < 3200
            num_agents = len(parse_board(grid).starts)
            assert format_grid(find_board(text, num_agents=num_agents, size=len(grid))) == grid
            if sentences:
                assert format_grid(find_board(text)) == grid


def test_sentence_selects_the_board():
    grid = ["S s F", "F g A", "a H G"]
    other_grid = ["S F s", "g F A", "G H a"]
    for layout in ([grid, other_grid], [other_grid, grid]):
        text = "\n\n".join("\n".join(rows) for rows in layout)
        assert format_grid(find_board(f"{text}\n{make_sentences(grid)}")) == grid
        assert format_grid(find_board(f"{make_sentences(other_grid)}{text}")) == other_grid


@pytest.mark.parametrize(
    "rows",
    [
        ["  S F G", "  s H F", "  g F F  "],
        ["| S F G |", "| s H F |", "| g F F |"],
        ["['S', 'F', 'G'],", "['s', 'H', 'F'],", "['g', 'F', 'F']"],
        ["0 S F G", "1 s H F", "2 g F F"],
        ["Row 0: S F G", "Row 1: s H F", "Row 2: g F F"],
        ["```", "S F G", "s H F", "g F F", "```"],
    ],
)
def test_find_board_ignores_text_around_rows(rows):
    board = find_board("\n".join(["The map:", *rows, "Plan."]))
    assert format_grid(board) == ["S F G", "s H F", "g F F"]


def test_symbol_words_are_not_a_board():
    text = "A\nF\nS G\nA H F\nS s A B C\nG g a b c\n"
    assert find_boards(text) == []
    with pytest.raises(DatasetError, match="no board of 2 agents of side 3 in it; found none"):
        find_board(text, num_agents=2, size=3)
    with pytest.raises(DatasetError, match="no board of 3 agents in it; found 2x2 with 1 agents"):
        find_board("S F\nF G", num_agents=3)


CONFIGURATIONS = ["benchmark_wr0.25", "benchmark_wr0.5"]


def test_rows_are_equal_for_all_file_formats(grids, tmp_path):
    records = make_rows(grids)
    folder = tmp_path / "set" / CONFIGURATIONS[0]
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    table = pyarrow.Table.from_pylist(records)
    pyarrow.parquet.write_table(table, tmp_path / f"{CONFIGURATIONS[1]}.parquet")
    expected = [(r["sample_id"], r["num_agents"], g) for r, g in zip(records, grids, strict=True)]
    for source, config in zip(
        (tmp_path / "set", tmp_path / f"{CONFIGURATIONS[1]}.parquet"), CONFIGURATIONS, strict=True
    ):
        rows = read_published(source)
        assert [(r.sample_id, r.num_agents, format_grid(r.instance)) for r in rows] == expected
        assert {r.config for r in rows} == {config}
        assert rows[0].text == records[0]["text"]


ROW = {"sample_id": "2ag_3x3_hr0.1_007", "num_agents": 2, "text": "S F G\ns H F\ng F F"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sample_id": None}, "rows.jsonl:2: sample_id: missing"),
        ({"num_agents": "two"}, r"2ag_3x3_hr0.1_007: num_agents must be in \[1, 5\], got 'two'"),
        ({"num_agents": 3}, "num_agents must be 2 as in the id, got 3"),
        ({"sum_of_costs": True}, "sum_of_costs must be a whole number up to .* got True"),
        ({"text": ""}, "text: missing, got the fields"),
        ({"text": "S F\nF G"}, "no board of 2 agents of side 3 in it; found 2x2 with 1 agents"),
        ({"text": "", "grid": ["S G", "F F"]}, "no board of 2 agents of side 3 in it; found 2x2"),
    ],
)
def test_invalid_row_error_names_file_line_and_id(tmp_path, changes, message):
    lines = [json.dumps(ROW), json.dumps(ROW | changes)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    with pytest.raises(
        DatasetError, match=f"rows.jsonl:2: .*{message}" if message[0] != "r" else message
    ):
        read_published(tmp_path / "rows.jsonl")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", b"{", "rows.jsonl:1: not JSON"),
        ("rows.txt", b"", "rows.txt: the file must end in .jsonl, .parquet, got '.txt'"),
        ("rows.parquet", b"PAR1", "rows.parquet: can't be read as Parquet"),
    ],
)
def test_invalid_row_files_give_one_message(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        read_published(tmp_path / name)


def test_read_published_names_a_missing_source(tmp_path):
    with pytest.raises(DatasetError, match="missing: must be a file, or a folder"):
        read_published(tmp_path / "missing")
