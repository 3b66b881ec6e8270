"""`jaxlake generate` and `jaxlake feasibility`: boards, or the reason for a shortfall."""

import pytest

from jaxlake.command_line.board_records import check_lines, solve_lines

GENERATE_OPTIONS = {"size": 4, "hole_ratio": 0.2, "wait_ratio": 0.5, "count": 7, "seed": 3}


def make_arguments(**changes):
    options = GENERATE_OPTIONS | changes
    pairs = ([f"--{name.replace('_', '-')}", value] for name, value in options.items())
    return ["generate", *(argument for option in pairs for argument in option)]


def test_generate_follows_request_and_seed(cli, tmp_path):
    result = cli(*make_arguments())
    assert result.status == 0
    boards = result.records
    assert len(boards) == len({board["id"] for board in boards}) == 7
    assert [list(board) for board in boards] == [
        ["id", "grid", "sum_of_costs", "makespan", "needs_wait", "plan", "hole_ratio"]
    ] * 7
    assert sum(board["needs_wait"] for board in boards) == round(0.5 * 7)
    for board in boards:
        assert len(board["grid"]) == 4
        assert "".join(board["grid"]).count("H") == 3
        assert board["hole_ratio"] == 0.2
    lines = result.out.encode().splitlines()
    for board, (_, solution) in zip(boards, solve_lines(lines), strict=True):
        for key in ("id", "sum_of_costs", "makespan", "needs_wait"):
            assert board[key] == solution[key]
    assert all(outcome["optimal_sum_of_costs"] for _, outcome in check_lines(lines))

    output_file = tmp_path / "again.jsonl"
    assert cli(*make_arguments(), "--output", output_file) == (0, "", "")
    assert output_file.read_text() == result.out


@pytest.mark.slow
def test_generate_makes_boards_larger_than_ten_rows(cli):
    result = cli(*make_arguments(size=12, hole_ratio=0.1, wait_ratio=0, count=3))
    assert result.status == 0
    lines = result.out.encode().splitlines()
    assert [len(board["grid"]) for board in result.records] == [12] * 3
    assert all(outcome["optimal_makespan"] for _, outcome in check_lines(lines))


@pytest.mark.slow
def test_feasibility_map_lists_every_kind(cli):
    options = ["--sizes", 2, 3, "--hole-ratios", 0.3, "--wait-ratios", 0.5]
    result = cli("feasibility", *options, "--candidates", 128)
    assert result.status == 0
    _, first_row, second_row, _, problem = result.out.splitlines()
    assert first_row.split()[:5] == ["2", "2", "0.3", "0.5", "0.00000"]
    assert second_row.split()[:2] == ["2", "3"]
    assert float(second_row.split()[4]) > 0
    assert problem.startswith("2 agents, 2x2, holes 0.3, waits 0.5: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            make_arguments(size=3, hole_ratio=0.5, agents=3),
            "a 3x3 board with hole_ratio 0.5 has 4 holes and 5 free cells, but 3 agents need 6",
        ),
        (make_arguments(agents=1), "--wait-ratio must be 0 with --agents 1, got 0.5"),
        (make_arguments(size=33), "--size: must be from 2 to 32, got 33"),
        (make_arguments(wait_ratio="nan"), "--wait-ratio: must be from 0 to 1, got nan"),
    ],
)
def test_impossible_request_is_rejected_with_the_reason(arguments, message, cli):
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert message in err
