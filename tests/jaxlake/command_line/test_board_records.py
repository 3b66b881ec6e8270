"""`jaxlake solve` and `jaxlake check`: solved boards check as optimal, failures are named."""

import json
import random
from functools import partial

import pytest

from benchmarks import oracles
from jaxlake.command_line import board_records
from jaxlake.command_line.board_records import MAX_STEPS, check_lines, solve_lines

CHECK_KEYS = [
    *["id", "parsed", "valid", "optimal_sum_of_costs", "optimal_makespan"],
    *["failure", "agent", "time", "sum_of_costs", "makespan"],
]
SOLUTION_KEYS = ["sum_of_costs", "makespan", "needs_wait", "plan", "makespan_plan"]

GRID = ["S F G", "s H F", "g F F"]


# To swap places in this winding corridor, the agents must walk to the bay at its end and back.
CORRIDOR = [
    *["S s g G F F F F F F", "H H H H H H H H H F", "F F F F F F F F F F", "F H H H H H H H H H"],
    *["F F F F F F F F F F", "H H H H H H H H H F", "F F F F F F F F F F", "F H H H H H H H H H"],
    *["F F F F F F F F F F", "H H H H H F H H H H"],
]


@pytest.fixture(scope="module", autouse=True)
def _use_one_batch_size():
    """Compile each program for one batch size only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(board_records, "_BATCH_SIZES", (32, 32))
        yield


def process_records(process_lines, records):
    pairs = list(process_lines(json.dumps(record).encode() for record in records))
    assert [number for number, _ in pairs] == list(range(1, len(records) + 1))
    return [record for _, record in pairs]


def check_record(**fields):
    (record,) = process_records(check_lines, [{"id": 0, **fields}])
    return record


def check_failure(**fields):
    record = check_record(**fields)
    assert not record["valid"]
    assert record["sum_of_costs"] is record["makespan"] is None
    assert not record["optimal_sum_of_costs"]
    assert not record["optimal_makespan"]
    return record["failure"], record["agent"], record["time"]


# Size, hole ratio, agents.
BOARD_PARAMS = [(2 + i % 9, 0.05 * (i % 10), 2) for i in range(300)]
BOARD_PARAMS += [(4 + i % 7, 0.05 * (i % 10), 2 + i % 4) for i in range(150)]


@pytest.fixture(scope="module")
def solved_boards():
    """Return pairs of a board and its solution."""
    rng = random.Random(0)
    boards = [
        {"id": f"b{i}", "grid": oracles.random_grid(rng, *params)}
        for i, params in enumerate(BOARD_PARAMS)
    ]
    return list(zip(boards, process_records(solve_lines, boards), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan_key", "cost_key", "other_key"),
    [("plan", "sum_of_costs", "makespan"), ("makespan_plan", "makespan", "sum_of_costs")],
)
def test_check_accepts_solver_plans_as_optimal(solved_boards, plan_key, cost_key, other_key):
    pairs = [pair for pair in solved_boards if pair[1]["status"] == "OPTIMAL"]
    assert 200 < len(pairs) < len(BOARD_PARAMS)
    other_solutions = [solution for _, solution in solved_boards if solution["status"] != "OPTIMAL"]
    assert {solution[key] for solution in other_solutions for key in SOLUTION_KEYS} == {None}
    outcomes = process_records(check_lines, [board | {"plan": s[plan_key]} for board, s in pairs])
    for (_, solution), outcome in zip(pairs, outcomes, strict=True):
        assert list(outcome) == CHECK_KEYS
        assert outcome["valid"]
        assert outcome[f"optimal_{cost_key}"]
        assert outcome[cost_key] == solution[cost_key]
        assert outcome[other_key] >= solution[other_key]
        assert outcome[f"optimal_{other_key}"] == (outcome[other_key] == solution[other_key])
        assert sum(map(len, solution[plan_key])) == outcome["sum_of_costs"]
        assert max(map(len, solution[plan_key])) == outcome["makespan"]
        assert all(names[-1] != "WAIT" for names in solution[plan_key])
        assert outcome["failure"] is outcome["agent"] is outcome["time"] is None
    assert 0 < sum(outcome[f"optimal_{other_key}"] for outcome in outcomes) < len(outcomes)


def test_check_of_text_equals_check_of_its_plan():
    plan = [["RIGHT", "RIGHT"], ["WAIT", "DOWN"]]
    text = "<think>hm</think>**Agent 0:** right, right\n**Agent 1:** wait, down"
    assert check_record(grid=GRID, plan=plan) == check_record(grid=GRID, text=text)
    assert check_record(grid=GRID, text=text)["sum_of_costs"] == 4


def test_check_without_optimum_skips_the_solver(monkeypatch):
    board = {"id": 1, "grid": ["S F G", "s F g", "F F F"]}
    plans = [board | {"plan": [["RIGHT"] * 2] * 2}, board | {"plan": [["RIGHT"], ["RIGHT"]]}]
    no_optima = {"optimal_sum_of_costs": None, "optimal_makespan": None}
    expected = [outcome | no_optima for outcome in process_records(check_lines, plans)]
    monkeypatch.setattr(board_records, "_solve", lambda *_: pytest.fail("a board was solved"))
    assert process_records(partial(check_lines, optimum=False), plans) == expected
    assert [outcome["valid"] for outcome in expected] == [True, False]


ACTION_ERROR = "in plan must be one of WAIT, UP, DOWN, LEFT, RIGHT"
LISTS_ERROR = "plan must be a list of actions for each agent"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"plan": [["RIGHT", "JUMP"], ["DOWN"]]}, f'step 1 of agent 0 {ACTION_ERROR}, got "JUMP"'),
        ({"plan": [["RIGHT", "UP"], ["DOWN", 4]]}, f"step 1 of agent 1 {ACTION_ERROR}, got 4"),
        ({"plan": [["RIGHT"]]}, "plan must have 2 lists of actions, got 1"),
        ({"plan": ["RIGHT", "DOWN"]}, f'{LISTS_ERROR}, got ["RIGHT", "DOWN"]'),
        ({"plan": {"0": ["UP"], "1": []}}, f'{LISTS_ERROR}, got {{"0": ["UP"], "1": []}}'),
        ({"plan": None}, f"{LISTS_ERROR}, got null"),
        ({"plan": []}, "plan must have 2 lists of actions, got 0"),
        ({"plan": [["R\u0131GHT"], ["DOWN"]]}, "step 0 of agent 0 in plan must be"),
        ({"text": ""}, ""),
        ({"text": "x" * 10_000}, ""),
    ],
)
def test_check_parse_error_has_only_a_reason(fields, reason):
    record = check_record(grid=GRID, **fields)
    assert not record["parsed"]
    assert check_failure(grid=GRID, **fields) == ("parse_error", None, None)
    assert record["reason"].startswith(reason if "plan" in fields else "agent")
    assert len(record["reason"]) < 200


def test_check_rejects_plans_beyond_the_limit():
    for num_waits in (0, 30, 31, MAX_STEPS - 2):
        plan = [["WAIT"] * num_waits + ["RIGHT", "RIGHT"], ["DOWN"]]
        outcome = check_record(grid=GRID, plan=plan)
        assert (outcome["sum_of_costs"], outcome["makespan"]) == (num_waits + 3, num_waits + 2)
    long_actions = ["WAIT"] * (MAX_STEPS + 1)
    (record,) = process_records(check_lines, [{"id": 7, "grid": GRID, "plan": [long_actions, []]}])
    assert record == {"id": 7, "error": "plan must have at most 4096 steps, got 4097"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"grid": ["S G", "s g"]}, 'id must be set, got the fields ["grid"]'),
        ({"id": 3}, "grid must be set"),
        ({"id": 3, "grid": "S G"}, 'grid must be a list of strings, got "S G"'),
        ({"id": 3, "grid": ["S"]}, "grid must have 2 to 32 rows, got 1"),
        ({"id": 3, "grid": ["F"] * 33}, "grid must have 2 to 32 rows, got 33"),
        ({"id": 3, "grid": ["S G", "s x"]}, "got 'x'"),
        ({"id": 3, "grid": ["S G", "s F"]}, "'s' without its partner 'g'"),
        ({"id": 3, "grid": ["F F", "F F"]}, "got no agents"),
        ({"id": {"a": 1}, "grid": ["A a", "F F"]}, "without gaps"),
    ],
)
def test_invalid_board_record_gives_an_error(record, message):
    valid_record = {"id": "good", "grid": GRID}
    first, error, last = process_records(solve_lines, [valid_record, record, valid_record])
    assert first == last
    assert "error" not in first
    assert error == {"id": record.get("id"), "error": error["error"]}
    assert message in error["error"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, 'exactly one of plan and text must be set, got the fields ["grid", "id"]'),
        ({"plan": [[], []], "text": ""}, "exactly one of plan and text must be set, got both"),
        ({"text": ["Agent 0: UP"]}, 'text must be a string, got ["Agent 0: UP"]'),
    ],
)
def test_check_requires_exactly_one_of_plan_and_text(fields, message):
    (record,) = process_records(check_lines, [{"id": 5, "grid": GRID, **fields}])
    assert record == {"id": 5, "error": message}


@pytest.mark.slow
def test_solve_command_extends_the_horizon_for_long_plans():
    (solution,) = process_records(solve_lines, [{"id": 0, "grid": CORRIDOR}])
    assert solution["status"] == "OPTIMAL"
    assert solution["makespan"] == oracles.least_makespan(CORRIDOR) > 64
    outcome = check_record(grid=CORRIDOR, plan=solution["plan"])
    assert outcome["optimal_sum_of_costs"]
