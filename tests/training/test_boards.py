"""Records in, records out: solved boards check as optimal, wrong plans are named right."""

import itertools
import json
import random

import numpy as np
import pytest

from tests import oracles
from training.boards import MAX_STEPS, check_lines, solve_lines

CHECK_KEYS = [
    *["id", "parsed", "valid", "optimal_sum_of_costs", "optimal_makespan"],
    *["failure", "agent", "time", "sum_of_costs", "makespan"],
]
SOLVE_KEYS = [
    *["id", "status", "sum_of_costs", "makespan", "needs_wait", "plan"],
    *["makespan_plan", "expansions"],
]

ISSUE_GRID = ["S F G", "s H F", "g F F"]
OPEN_GRID = ["S F F G", "s F F g", "F F H F", "F F F F"]


# A winding corridor: to change their order the agents must walk to the bay at its far end and back.
CORRIDOR = [
    *["S s g G F F F F F F", "H H H H H H H H H F", "F F F F F F F F F F", "F H H H H H H H H H"],
    *["F F F F F F F F F F", "H H H H H H H H H F", "F F F F F F F F F F", "F H H H H H H H H H"],
    *["F F F F F F F F F F", "H H H H H F H H H H"],
]


def answer(function, records):
    pairs = list(function(json.dumps(record) for record in records))
    assert [number for number, _ in pairs] == list(range(1, len(records) + 1))
    return [record for _, record in pairs]


def check(**fields):
    (record,) = answer(check_lines, [{"id": 0, **fields}])
    return record


def failure(**fields):
    record = check(**fields)
    assert not record["valid"]
    assert record["sum_of_costs"] is record["makespan"] is None
    assert not record["optimal_sum_of_costs"]
    assert not record["optimal_makespan"]
    return record["failure"], record["agent"], record["time"]


# Size, hole ratio, agents: all mixed, more than a batch.
KINDS = [(2 + i % 9, 0.05 * (i % 10), 2) for i in range(400)]
KINDS += [(4 + i % 7, 0.05 * (i % 10), 2 + i % 4) for i in range(200)]


@pytest.fixture(scope="module")
def solved():
    rng = random.Random(0)
    boards = [
        {"id": f"b{i}", "grid": oracles.random_grid(rng, *kind)} for i, kind in enumerate(KINDS)
    ]
    return boards, answer(solve_lines, boards)


def test_answers_come_in_order_with_the_issues_keys(solved):
    boards, solutions = solved
    assert [solution["id"] for solution in solutions] == [board["id"] for board in boards]
    assert all(list(solution) == SOLVE_KEYS for solution in solutions)


def test_a_board_is_solved_or_everything_about_its_optimum_is_null(solved):
    _, solutions = solved
    statuses = {solution["status"] for solution in solutions}
    assert statuses == {"OPTIMAL", "UNSOLVABLE"}
    for solution in solutions:
        nulls = [solution[key] is None for key in SOLVE_KEYS[2:-1]]
        assert nulls == [solution["status"] != "OPTIMAL"] * 5
        assert solution["expansions"] >= 0


def test_every_plan_of_the_solver_checks_as_valid_and_of_optimal_sum_of_costs(solved):
    boards, solutions = solved
    pairs = [
        (board, solution)
        for board, solution in zip(boards, solutions, strict=True)
        if solution["status"] == "OPTIMAL"
    ]
    assert len(pairs) > 300
    outcomes = answer(check_lines, [board | {"plan": s["plan"]} for board, s in pairs])
    for (_, solution), outcome in zip(pairs, outcomes, strict=True):
        assert list(outcome) == CHECK_KEYS
        assert outcome["valid"]
        assert outcome["optimal_sum_of_costs"]
        assert outcome["sum_of_costs"] == solution["sum_of_costs"]
        assert outcome["makespan"] >= solution["makespan"]
        assert outcome["optimal_makespan"] == (outcome["makespan"] == solution["makespan"])
        assert sum(map(len, solution["plan"])) == solution["sum_of_costs"]
        assert max(map(len, solution["makespan_plan"])) == solution["makespan"]
        for names in (*solution["plan"], *solution["makespan_plan"]):
            assert names[-1] != "WAIT"
        assert outcome["failure"] is outcome["agent"] is outcome["time"] is None


def test_every_makespan_plan_checks_as_valid_and_of_optimal_makespan(solved):
    boards, solutions = solved
    pairs = [p for p in zip(boards, solutions, strict=True) if p[1]["plan"] is not None]
    outcomes = answer(check_lines, [board | {"plan": s["makespan_plan"]} for board, s in pairs])
    both = 0
    for (_, solution), outcome in zip(pairs, outcomes, strict=True):
        assert outcome["valid"]
        assert outcome["optimal_makespan"]
        assert outcome["makespan"] == solution["makespan"]
        assert outcome["sum_of_costs"] >= solution["sum_of_costs"]
        both += outcome["optimal_sum_of_costs"]
    assert 0 < both < len(pairs)


def test_the_number_of_agents_and_the_size_of_other_boards_in_the_file_change_nothing(solved):
    boards, solutions = solved
    order = np.random.default_rng(1).permutation(len(boards))
    again = answer(solve_lines, [boards[i] for i in order])
    fields = ("id", "status", "sum_of_costs", "makespan", "needs_wait")
    for i, solution in zip(order, again, strict=True):
        assert [solution[name] for name in fields] == [solutions[i][name] for name in fields]


def test_a_plan_without_its_last_moves_leaves_that_agent_away_from_its_goal(solved):
    boards, solutions = solved
    pairs = [
        (board, solution)
        for board, solution in zip(boards, solutions, strict=True)
        if solution["plan"] is not None and len(solution["plan"]) == 2
    ][:100]
    records = [
        board | {"plan": [solution["plan"][0], solution["plan"][1][:-1]]}
        for board, solution in pairs
    ]
    for (_, solution), outcome in zip(pairs, answer(check_lines, records), strict=True):
        first, second = map(len, solution["plan"])
        if outcome["failure"] == "goal_not_reached":
            assert (outcome["agent"], outcome["time"]) == (1, max(first, second - 1))
        else:
            # The agent that stopped short stands in the other's way.
            assert outcome["failure"] == "vertex_conflict"
            assert second <= outcome["time"] + 1 <= first


def test_a_text_and_the_plan_it_says_have_the_same_outcome():
    plan = [["RIGHT", "RIGHT"], ["WAIT", "DOWN"]]
    text = "<think>hm</think>**Agent 0:** right, right\n**Agent 1:** wait, down"
    assert check(grid=ISSUE_GRID, plan=plan) == check(grid=ISSUE_GRID, text=text)
    assert check(grid=ISSUE_GRID, text=text)["sum_of_costs"] == 4


def test_costs_are_the_plans_own_and_optimality_is_told_for_each_cost():
    late = check(grid=ISSUE_GRID, plan=[["RIGHT", "RIGHT"], ["WAIT", "DOWN"]])
    assert late["valid"]
    assert (late["sum_of_costs"], late["makespan"]) == (4, 2)
    assert (late["optimal_sum_of_costs"], late["optimal_makespan"]) == (False, True)


def test_waiting_at_the_goal_is_free_unless_the_agent_leaves_again():
    stays = check(grid=ISSUE_GRID, plan=[["right", "Right", "WAIT", "WAIT"], ["DOWN"]])
    assert (stays["sum_of_costs"], stays["makespan"]) == (3, 2)
    leaves = check(grid=ISSUE_GRID, plan=[["RIGHT", "RIGHT"], ["DOWN", "WAIT", "RIGHT", "LEFT"]])
    assert (leaves["sum_of_costs"], leaves["makespan"]) == (6, 4)


@pytest.mark.parametrize(
    ("grid", "plan", "expected"),
    [
        (OPEN_GRID, [["UP"], []], ("off_board", 0, 0)),
        (OPEN_GRID, [["RIGHT"], ["RIGHT", "LEFT", "LEFT"]], ("off_board", 1, 2)),
        (ISSUE_GRID, [["RIGHT", "DOWN"], []], ("hole", 0, 1)),
        (ISSUE_GRID, [[], ["RIGHT"]], ("hole", 1, 0)),
        (OPEN_GRID, [["DOWN"], []], ("vertex_conflict", 0, 0)),
        (OPEN_GRID, [["RIGHT", "DOWN"], ["RIGHT"]], ("vertex_conflict", 0, 1)),
        (OPEN_GRID, [["DOWN"], ["UP"]], ("swapping_conflict", 0, 0)),
        (OPEN_GRID, [["RIGHT", "DOWN"], ["RIGHT", "UP"]], ("swapping_conflict", 0, 1)),
        (OPEN_GRID, [["RIGHT"] * 3, ["RIGHT"] * 2], ("goal_not_reached", 1, 3)),
        (OPEN_GRID, [[], []], ("goal_not_reached", 0, 0)),
    ],
)
def test_each_failure_is_named_with_its_agent_and_time(grid, plan, expected):
    assert failure(grid=grid, plan=plan) == expected


def test_a_shorter_plan_waits_where_it_ended_and_blocks_that_cell():
    grid = ["S F G", "s F g", "F F F"]
    assert failure(grid=grid, plan=[["RIGHT"], ["RIGHT", "UP"]]) == ("vertex_conflict", 0, 1)


CROWD = ["S F s A F", "F F H F F", "B F C F F", "F F F F F", "G g a b c"]
SWAP, COLLIDE, FALL, LEAVE = {1: "RIGHT", 2: "LEFT"}, {0: "DOWN", 3: "UP"}, {4: "UP"}, {3: "LEFT"}


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        (SWAP, ("swapping_conflict", 1, 0)),
        (SWAP | {3: "RIGHT", 4: "LEFT"}, ("vertex_conflict", 3, 0)),
        (SWAP | COLLIDE, ("vertex_conflict", 0, 0)),
        (SWAP | COLLIDE | FALL, ("hole", 4, 0)),
        (SWAP | FALL | LEAVE, ("off_board", 3, 0)),
        ({0: "UP"} | FALL | LEAVE, ("off_board", 0, 0)),
    ],
)
def test_within_one_step_the_earlier_kind_counts_whoever_it_befalls(moves, expected):
    plan = [[moves.get(agent, "WAIT")] for agent in range(5)]
    assert failure(grid=CROWD, plan=plan) == expected


def test_the_first_failure_in_time_counts_whatever_its_kind():
    plan = [["WAIT", "UP"], ["RIGHT"], ["LEFT"], ["WAIT", "LEFT"], ["WAIT", "UP"]]
    assert failure(grid=CROWD, plan=plan) == ("swapping_conflict", 1, 0)
    plan[1].insert(0, "WAIT")
    assert failure(grid=CROWD, plan=plan)[::2] == ("vertex_conflict", 0)
    plan[2].insert(0, "WAIT")
    assert failure(grid=CROWD, plan=plan) == ("off_board", 0, 1)


def test_following_and_cycles_are_allowed():
    follow = check(
        grid=["s S g G", "F F F F", "F F F F", "F F F F"], plan=[["RIGHT"] * 2, ["RIGHT"] * 2]
    )
    assert follow["valid"]
    cycle = ["S s F F", "B A F F", "F F F F", "G g a b"]
    assert failure(grid=cycle, plan=[["RIGHT"], ["DOWN"], ["LEFT"], ["UP"]]) == (
        "goal_not_reached",
        0,
        1,
    )


@pytest.mark.parametrize("num_agents", [2, 3, 4, 5])
def test_optimality_is_told_for_any_number_of_agents(num_agents):
    starts = " ".join("SsABC"[:num_agents] + "F" * (5 - num_agents))
    goals = " ".join("Ggabc"[:num_agents] + "F" * (5 - num_agents))
    grid = [starts, *["F F F F F"] * 3, goals]
    outcome = check(grid=grid, plan=[["DOWN"] * 4] * num_agents)
    assert outcome["valid"]
    assert (outcome["sum_of_costs"], outcome["makespan"]) == (4 * num_agents, 4)
    assert (outcome["optimal_sum_of_costs"], outcome["optimal_makespan"]) == (True, True)
    late = check(grid=grid, plan=[["WAIT"] + ["DOWN"] * 4] + [["DOWN"] * 4] * (num_agents - 1))
    assert (late["optimal_sum_of_costs"], late["optimal_makespan"]) == (False, False)
    (solution,) = answer(solve_lines, [{"id": 1, "grid": grid}])
    assert (solution["sum_of_costs"], solution["makespan"]) == (4 * num_agents, 4)
    assert solution["plan"] == solution["makespan_plan"] == [["DOWN"] * 4] * num_agents


def test_one_agent_is_checked_and_not_solved():
    outcome = check(grid=["S F", "F G"], plan=[["DOWN", "RIGHT"]])
    assert outcome["valid"]
    assert (outcome["sum_of_costs"], outcome["makespan"]) == (2, 2)
    (unsolved,) = answer(solve_lines, [{"id": 1, "grid": ["S F", "F G"]}])
    assert unsolved == {"id": 1, "error": "grid: got 1 agents, 2 to 5 are allowed"}


def test_boards_up_to_the_largest_size_are_solved_and_checked():
    rng = random.Random(2)
    boards = [
        {"id": size, "grid": oracles.random_grid(rng, size, 0.1, 2, together=True)}
        for size in (10, 17, 32)
    ]
    solutions = answer(solve_lines, boards)
    for board, solution in zip(boards, solutions, strict=True):
        assert solution["sum_of_costs"] == oracles.sat_sum_of_costs(board["grid"]).value
        outcome = check(grid=board["grid"], plan=solution["plan"])
        assert outcome["optimal_sum_of_costs"]


@pytest.mark.parametrize(
    "fields",
    [
        {"plan": [["RIGHT", "JUMP"], ["DOWN"]]},
        {"plan": [["RIGHT", 4], ["DOWN"]]},
        {"plan": [["R"], ["D"]]},
        {"plan": [["RIGHT"]]},
        {"plan": [["RIGHT"], ["DOWN"], []]},
        {"plan": ["RIGHT", "DOWN"]},
        {"plan": "RIGHT DOWN"},
        {"plan": {"0": ["RIGHT"], "1": ["DOWN"]}},
        {"plan": None},
        {"plan": []},
        {"plan": [["R\u0131GHT"], ["DOWN"]]},
        {"text": ""},
        {"text": "Agent 0: RIGHT"},
        {"text": "x" * 10_000},
        {"text": "Agent 0: " * 1_200},
    ],
)
def test_what_is_no_plan_is_a_parse_error_of_nobody_at_no_time(fields):
    record = check(grid=ISSUE_GRID, **fields)
    assert not record["parsed"]
    assert failure(grid=ISSUE_GRID, **fields) == ("parse_error", None, None)


def test_plans_of_any_length_up_to_the_limit_are_checked_and_longer_ones_are_errors():
    for waits in (0, 30, 31, 32, 33, 500, MAX_STEPS - 2):
        plan = [["WAIT"] * waits + ["RIGHT", "RIGHT"], ["DOWN"]]
        outcome = check(grid=ISSUE_GRID, plan=plan)
        assert (outcome["sum_of_costs"], outcome["makespan"]) == (waits + 3, waits + 2)
    long = ["WAIT"] * (MAX_STEPS + 1)
    (record,) = answer(check_lines, [{"id": 7, "grid": ISSUE_GRID, "plan": [long, []]}])
    assert record == {"id": 7, "error": "plan: got 4097 steps, at most 4096 are allowed"}


@pytest.mark.parametrize(
    ("line", "id", "said"),
    [
        ("{", None, "not JSON"),
        ("[" * 100_000, None, "not JSON"),
        ('{"id": NaN}', None, "NaN is not a JSON value"),
        ("[1]", None, "got [1], a JSON object is needed"),
        ('{"grid": ["S G", "s g"]}', None, "id: missing"),
        ('{"id": 3}', 3, "grid: missing"),
        ('{"id": 3, "grid": "S G"}', 3, 'grid: got "S G", a list of strings is needed'),
        ('{"id": 3, "grid": [["S", "G"]]}', 3, "a list of strings is needed"),
        ('{"id": 3, "grid": ["S"]}', 3, "grid: got 1 rows, 2 to 32 are allowed"),
        (json.dumps({"id": 3, "grid": ["F"] * 33}), 3, "grid: got 33 rows, 2 to 32 are allowed"),
        ('{"id": 3, "grid": ["S G", "s"]}', 3, "row 1: got 1 cells"),
        ('{"id": 3, "grid": ["S G", "s x"]}', 3, "row 1, column 1: got 'x'"),
        ('{"id": 3, "grid": ["S G", "s F"]}', 3, "'s' without its partner 'g'"),
        ('{"id": 3, "grid": ["S G", "S F"]}', 3, "'S' again"),
        ('{"id": 3, "grid": ["F F", "F F"]}', 3, "no agents"),
        ('{"id": {"a": 1}, "grid": ["A a", "F F"]}', {"a": 1}, "without gaps"),
    ],
)
def test_a_bad_line_is_answered_with_what_is_wrong_and_the_others_go_on(line, id, said):
    good = json.dumps({"id": "good", "grid": ISSUE_GRID})
    results = list(solve_lines([good, "\n", line, good]))
    assert [number for number, _ in results] == [1, 3, 4]
    assert [result["id"] for _, result in results] == ["good", id, "good"]
    assert said in results[1][1]["error"]
    assert "error" not in results[2][1]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "plan, text: got neither, exactly one is needed"),
        ({"plan": [[], []], "text": ""}, "plan, text: got plan and text, exactly one is needed"),
        ({"text": ["Agent 0: UP"]}, 'text: got ["Agent 0: UP"], a string is needed'),
    ],
)
def test_a_record_to_check_has_one_of_plan_and_text(fields, said):
    (record,) = answer(check_lines, [{"id": 5, "grid": ISSUE_GRID, **fields}])
    assert record == {"id": 5, "error": said}


def test_an_endless_stream_is_answered_as_it_comes():
    endless = (json.dumps({"id": n, "grid": ISSUE_GRID}) for n in itertools.count())
    taken = list(itertools.islice(solve_lines(endless), 1200))
    assert [record["id"] for _, record in taken] == list(range(1200))
    assert {record["sum_of_costs"] for _, record in taken} == {3}


def test_a_board_whose_plans_outlast_the_usual_horizon_is_solved_all_the_same():
    (solution,) = answer(solve_lines, [{"id": 0, "grid": CORRIDOR}])
    assert solution["status"] == "OPTIMAL"
    assert solution["makespan"] == oracles.least_makespan(CORRIDOR) > 64
    outcome = check(grid=CORRIDOR, plan=solution["plan"])
    assert outcome["optimal_sum_of_costs"]
