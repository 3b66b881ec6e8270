"""The paper's benchmark: its shape, its substitution rule and its hashes."""

import pytest

from benchmarks.oracles import MOVES, check_plan, hole_count, least_makespan, least_sum_of_costs
from jaxlake import format_grid
from jaxlake.datasets import Benchmark, paper_benchmark, read_published
from jaxlake.datasets.paper_benchmark import (
    V2,
    cell_name,
    make_cell,
    make_record,
    read_published_record,
)

# 24 boards of two agents exist on 2x2, all solvable without waits and without room for holes. The
# benchmark needs exactly 24: two hole ratios, three configurations, four boards each.
SMALL_BENCHMARK = Benchmark(
    version="small",
    seed=1,
    cells=((2, 2), (2, 4)),
    hole_ratios=(0.1, 0.5),
    wait_ratios=(0.25, 0.5, 0.75),
    boards_each=4,
    max_candidates=4096,
    max_size=4,
    max_agents=2,
    horizon=16,
)
ACTIONS = {"WAIT": 0, "UP": 1, "DOWN": 2, "LEFT": 3, "RIGHT": 4}
assert set(ACTIONS.values()) == set(MOVES)


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    directory = tmp_path_factory.mktemp("benchmark")
    rows = paper_benchmark.write_benchmark(directory, benchmark=SMALL_BENCHMARK)
    assert paper_benchmark.read_benchmark(directory, benchmark=SMALL_BENCHMARK) == rows
    return directory, rows, make_record(SMALL_BENCHMARK, rows)


def flatten_rows(benchmark):
    return [row for rows in benchmark[1].values() for row in rows]


def test_configurations_have_each_id_once(benchmark):
    expected = [
        f"2ag_{n}x{n}_hr{holes}_{i:03d}" for n in (2, 4) for holes in (0.1, 0.5) for i in range(4)
    ]
    assert sorted(benchmark[1]) == ["benchmark_wr0.25", "benchmark_wr0.5", "benchmark_wr0.75"]
    grids = [tuple(row["grid"]) for row in flatten_rows(benchmark)]
    assert len(grids) == len(set(grids)) == 48
    for config, rows in benchmark[1].items():
        assert [row["sample_id"] for row in rows] == expected
        assert {f"benchmark_wr{row['requested_wait_ratio']}" for row in rows} == {config}
        for row in rows:
            assert f"_hr{row['requested_hole_ratio']}_" in row["sample_id"]


def test_rows_describe_their_boards(benchmark):
    for row in flatten_rows(benchmark):
        grid = row["grid"]
        assert (row["num_agents"], row["size"]) == (2, len(grid))
        assert row["holes"] == sum(grid_row.count("H") for grid_row in grid)
        cost, needs_wait = least_sum_of_costs(grid)
        assert (row["sum_of_costs"], row["needs_wait"]) == (cost, needs_wait)
        assert row["makespan"] == least_makespan(grid)
        num_steps = max(map(len, row["plan"]))
        plan = [[ACTIONS[a] for a in p] + [0] * (num_steps - len(p)) for p in row["plan"]]
        assert (
            check_plan(grid, [list(step) for step in zip(*plan, strict=True)]).sum_of_costs == cost
        )


def test_feasible_rows_are_kept(benchmark):
    for rows in benchmark[1].values():
        for ratio in SMALL_BENCHMARK.hole_ratios:
            cell_rows = [r for r in rows if r["size"] == 4 and r["requested_hole_ratio"] == ratio]
            assert len(cell_rows) == 4
            num_waits = sum(row["needs_wait"] for row in cell_rows)
            assert num_waits == {0.25: 1, 0.5: 2, 0.75: 3}[cell_rows[0]["requested_wait_ratio"]]
            for row in cell_rows:
                assert row["holes"] == row["requested_holes"] == hole_count(4, ratio)
                assert row["needs_wait"] == row["requested_needs_wait"]


def test_infeasible_rows_are_kept_and_marked(benchmark):
    for config, rows in benchmark[1].items():
        dense_rows = [r for r in rows if r["size"] == 2 and r["requested_hole_ratio"] == 0.5]
        assert [(row["requested_holes"], row["holes"]) for row in dense_rows] == [(2, 0)] * 4
        num_requested_waits = sum(row["requested_needs_wait"] for row in dense_rows)
        assert (
            num_requested_waits
            == {"benchmark_wr0.25": 1, "benchmark_wr0.5": 2, "benchmark_wr0.75": 3}[config]
        )
        assert not any(row["needs_wait"] for row in dense_rows)


def test_files_load_as_published_rows(benchmark):
    rows = [row for row in read_published(benchmark[0]) if row.config == "benchmark_wr0.5"]
    assert [row.sample_id for row in rows] == [
        r["sample_id"] for r in benchmark[1]["benchmark_wr0.5"]
    ]
    for row, expected in zip(rows, benchmark[1]["benchmark_wr0.5"], strict=True):
        assert format_grid(row.instance) == expected["grid"]
        assert row.text == expected["text"]


def test_record_covers_the_whole_benchmark():
    record = read_published_record()
    assert (record["version"], record["rows"]) == ("v2", 3150)
    assert list(record["cells"]) == [cell_name(num_agents, size) for num_agents, size in V2.cells]
    assert {cell["rows"] for cell in record["cells"].values()} == {150}
    # The stated rule changes one cell: 3 agents on 3x3 leave room for 3 holes, not 4.
    changed_cells = {name for name, cell in record["cells"].items() if cell["fewer_holes"]}
    assert changed_cells == {"3ag_3x3"}


@pytest.mark.slow
def test_cell_boards_match_the_record():
    """This checks only the cell that the stated rule changes."""
    rows = make_cell(V2, 3, 3)
    assert (
        make_record(V2, rows)["cells"]["3ag_3x3"]["sha256"]
        == (read_published_record()["cells"]["3ag_3x3"]["sha256"])
    )
