"""MovingAI files: round trips, and errors that name the file and line."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.oracles import distances_to
from jaxlake import format_grid
from jaxlake.datasets import DatasetError, Scenario, movingai
from tests.jaxlake.solver.boards import (
    assert_same,
    draw_starts_on_goals,
    make_instances,
    select_rows,
)

MAP = "type octile\nheight 3\nwidth 4\nmap\n.G@T\nSO.W\n....\n"
SCEN = (
    "version 1\n"
    "0\tmaps/a b.map\t4\t3\t0\t0\t2\t1\t3.41421356\n"
    "1\tmaps/a b.map\t4\t3\t3\t2\t0\t1\t4.00000000\n"
)


def write_text(path, text):
    path.write_bytes(text.encode())
    return path


def test_read_map_follows_the_format(tmp_path):
    grid_map = movingai.read_map(write_text(tmp_path / "a.map", MAP))
    expected = [[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]]
    assert np.array_equal(grid_map, np.array(expected, bool))


def test_read_map_takes_trailing_blanks(tmp_path):
    padded_text = MAP.replace(".G@T", ".G@T  ").replace("....", "....\t")
    expected, actual = (
        movingai.read_map(write_text(tmp_path / "a.map", text)) for text in (MAP, padded_text)
    )
    assert np.array_equal(expected, actual)


def test_check_map_name_compares_the_last_part(tmp_path):
    (scenario,) = movingai.read_scen(write_text(tmp_path / "a.scen", SCEN))[:1]
    for name in ("maps/a b.map", "maps\\a b.map", "a b.map"):
        movingai.check_map_name([replace(scenario, map_name=name)], tmp_path / "a b.map")
    with pytest.raises(
        DatasetError, match=r"a.scen:2: the map must be named maps/a b.map, got .*c.map"
    ):
        movingai.check_map_name([scenario], tmp_path / "c.map")


def test_scenario_board_has_x_as_column(tmp_path):
    grid_map = movingai.read_map(write_text(tmp_path / "a.map", MAP))
    scenarios = movingai.read_scen(write_text(tmp_path / "a.scen", SCEN))
    instance = movingai.instance_from_scenarios(grid_map, scenarios, 2)
    assert format_grid(instance) == ["S F H H", "g H G H", "F F F s", "H H H H"]
    assert format_grid(movingai.instance_from_scenarios(grid_map, scenarios, 1))[0] == "S F H H"


def test_movingai_files_round_trip(tmp_path):
    rng = random.Random(1)
    for seed in range(40):
        num_agents = rng.randint(2, 5)
        (oracle_board,) = draw_starts_on_goals(
            seed, 1, sizes=(rng.randint(4, 8),), agent_counts=(num_agents,)
        )
        board = select_rows(make_instances([oracle_board], oracle_board.size, num_agents), 0)
        movingai.write_movingai(tmp_path, "b", board)
        scenarios = movingai.read_scen(tmp_path / "b.scen")
        grid_map = movingai.read_map(tmp_path / "b.map")
        assert_same(movingai.instance_from_scenarios(grid_map, scenarios, num_agents), board)
        rows = (tmp_path / "b.scen").read_text().splitlines()[1:]
        for row, start, goal in zip(rows, oracle_board.starts, oracle_board.goals, strict=True):
            steps = distances_to(oracle_board, goal).get(start, math.inf)
            assert float(row.split("\t")[-1]) == steps


@pytest.mark.parametrize(
    ("text", "replacement", "message"),
    [
        ("octile", "hex", r"a.map: the first lines must be 'type octile'"),
        ("height 3", "height x", r"a.map: the first lines must be"),
        ("height 3", "height 4", r"a.map: the map must have 4 rows, got 3"),
        ("....", "..\0.", r"a.map: text must be UTF-8, got UTF-16 or zero bytes"),
        ("SO.W", "SO.", r"a.map:6: a row must have 4 cells, got 3"),
        ("SO.W", "SO.x", r"a.map:6: cells must be \. G S \(passable\) .* got 'x'"),
        (
            "version 1",
            "version 2",
            r"a.scen:1: the first line must be 'version 1', got 'version 2'",
        ),
        ("\t4.00000000", "", r"a.scen:3: a row must have the 9 fields bucket, .* got 8"),
        ("\t3\t2\t0", "\t-3\t2\t0", r"a.scen:3: start x must be .* got '-3'"),
    ],
)
def test_invalid_file_error_names_line_and_field(tmp_path, text, replacement, message):
    name = message.partition(":")[0]
    content = {"a.map": MAP, "a.scen": SCEN}[name]
    read_file = {"a.map": movingai.read_map, "a.scen": movingai.read_scen}[name]
    assert text in content
    with pytest.raises(DatasetError, match=message):
        read_file(write_text(tmp_path / name, content.replace(text, replacement, 1)))


@pytest.mark.parametrize(
    ("tasks", "num_agents", "message"),
    [
        ([(0, 0, 2, 1)], 2, r"num_agents must be in \[1, 1\], got 2"),
        ([(0, 0, 2, 0)], 1, r"a.scen:2: the goal x = 2, y = 0 must be a passable cell"),
        ([(0, 0, 0, 3)], 1, r"a.scen:2: the goal x = 0, y = 3 must be a passable cell"),
        (
            [(0, 0, 2, 1), (0, 0, 0, 1)],
            2,
            r"a.scen:2: .*, got \(0, 0\) as start of agent 0 and as start of agent 1",
        ),
    ],
)
def test_non_lake_tasks_are_rejected(tmp_path, tasks, num_agents, message):
    grid_map = movingai.read_map(write_text(tmp_path / "a.map", MAP))
    lines = ["version 1", *(f"0 a.map 4 3 {a} {b} {c} {d} 1.0" for a, b, c, d in tasks)]
    scenarios = movingai.read_scen(write_text(tmp_path / "a.scen", "\n".join(lines)))
    with pytest.raises(DatasetError, match=message):
        movingai.instance_from_scenarios(grid_map, scenarios, num_agents)


def test_maps_larger_than_boards_are_rejected():
    scenarios = [Scenario("a.map", (2, 33), (0, 0), (1, 1))]
    with pytest.raises(DatasetError, match="map must have at most 32x32 cells, got 2x33"):
        movingai.instance_from_scenarios(np.ones((2, 33), bool), scenarios, 1)
