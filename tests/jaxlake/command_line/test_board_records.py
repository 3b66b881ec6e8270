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
OPTIMA = ["sum_of_costs", "makespan", "needs_wait", "plan", "makespan_plan"]

ISSUE_GRID = ["S F G", "s H F", "g F F"]


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


def answer_records(function, records):
    pairs = list(function(json.dumps(record).encode() for record in records))
    assert [number for number, _ in pairs] == list(range(1, len(records) + 1))
    return [record for _, record in pairs]


def check(**fields):
    (record,) = answer_records(check_lines, [{"id": 0, **fields}])
    return record


def check_failure(**fields):
    record = check(**fields)
    assert not record["valid"]
    assert record["sum_of_costs"] is record["makespan"] is None
    assert not record["optimal_sum_of_costs"]
    assert not record["optimal_makespan"]
    return record["failure"], record["agent"], record["time"]


# Size, hole ratio, agents.
KINDS = [(2 + i % 9, 0.05 * (i % 10), 2) for i in range(300)]
KINDS += [(4 + i % 7, 0.05 * (i % 10), 2 + i % 4) for i in range(150)]


@pytest.fixture(scope="module")
def solved():
    """Return pairs of a board and its solution."""
    rng = random.Random(0)
    boards = [
        {"id": f"b{i}", "grid": oracles.random_grid(rng, *kind)} for i, kind in enumerate(KINDS)
    ]
    return list(zip(boards, answer_records(solve_lines, boards), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "cost", "other"),
    [("plan", "sum_of_costs", "makespan"), ("makespan_plan", "makespan", "sum_of_costs")],
)
def test_check_accepts_solver_plans_as_optimal(solved, which, cost, other):
    optimal = [pair for pair in solved if pair[1]["status"] == "OPTIMAL"]
    assert 200 < len(optimal) < len(KINDS)
    unsolved = [solution for _, solution in solved if solution["status"] != "OPTIMAL"]
    assert {solution[key] for solution in unsolved for key in OPTIMA} == {None}
    outcomes = answer_records(check_lines, [board | {"plan": s[which]} for board, s in optimal])
    for (_, solution), outcome in zip(optimal, outcomes, strict=True):
        assert list(outcome) == CHECK_KEYS
        assert outcome["valid"]
        assert outcome[f"optimal_{cost}"]
        assert outcome[cost] == solution[cost]
        assert outcome[other] >= solution[other]
        assert outcome[f"optimal_{other}"] == (outcome[other] == solution[other])
        assert sum(map(len, solution[which])) == outcome["sum_of_costs"]
        assert max(map(len, solution[which])) == outcome["makespan"]
        assert all(names[-1] != "WAIT" for names in solution[which])
        assert outcome["failure"] is outcome["agent"] is outcome["time"] is None
    assert 0 < sum(outcome[f"optimal_{other}"] for outcome in outcomes) < len(outcomes)


def test_check_of_text_equals_check_of_its_plan():
    plan = [["RIGHT", "RIGHT"], ["WAIT", "DOWN"]]
    text = "<think>hm</think>**Agent 0:** right, right\n**Agent 1:** wait, down"
    assert check(grid=ISSUE_GRID, plan=plan) == check(grid=ISSUE_GRID, text=text)
    assert check(grid=ISSUE_GRID, text=text)["sum_of_costs"] == 4


def test_check_without_optimum_skips_the_solver(monkeypatch):
    board = {"id": 1, "grid": ["S F G", "s F g", "F F F"]}
    plans = [board | {"plan": [["RIGHT"] * 2] * 2}, board | {"plan": [["RIGHT"], ["RIGHT"]]}]
    unknown = {"optimal_sum_of_costs": None, "optimal_makespan": None}
    expected = [outcome | unknown for outcome in answer_records(check_lines, plans)]
    monkeypatch.setattr(board_records, "_solve", lambda *_: pytest.fail("a board was solved"))
    assert answer_records(partial(check_lines, optimum=False), plans) == expected
    assert [outcome["valid"] for outcome in expected] == [True, False]


ALLOWED = "in plan must be one of WAIT, UP, DOWN, LEFT, RIGHT"
LISTS = "plan must be a list of actions for each agent"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"plan": [["RIGHT", "JUMP"], ["DOWN"]]}, f'step 1 of agent 0 {ALLOWED}, got "JUMP"'),
        ({"plan": [["RIGHT", "UP"], ["DOWN", 4]]}, f"step 1 of agent 1 {ALLOWED}, got 4"),
        ({"plan": [["RIGHT"]]}, "plan must have 2 lists of actions, got 1"),
        ({"plan": ["RIGHT", "DOWN"]}, f'{LISTS}, got ["RIGHT", "DOWN"]'),
        ({"plan": {"0": ["UP"], "1": []}}, f'{LISTS}, got {{"0": ["UP"], "1": []}}'),
        ({"plan": None}, f"{LISTS}, got null"),
        ({"plan": []}, "plan must have 2 lists of actions, got 0"),
        ({"plan": [["R\u0131GHT"], ["DOWN"]]}, "step 0 of agent 0 in plan must be"),
        ({"text": ""}, ""),
        ({"text": "x" * 10_000}, ""),
    ],
)
def test_check_parse_error_has_only_a_reason(fields, reason):
    record = check(grid=ISSUE_GRID, **fields)
    assert not record["parsed"]
    assert check_failure(grid=ISSUE_GRID, **fields) == ("parse_error", None, None)
    assert record["reason"].startswith(reason if "plan" in fields else "agent")
    assert len(record["reason"]) < 200


def test_check_rejects_plans_beyond_the_limit():
    for waits in (0, 30, 31, MAX_STEPS - 2):
        plan = [["WAIT"] * waits + ["RIGHT", "RIGHT"], ["DOWN"]]
        outcome = check(grid=ISSUE_GRID, plan=plan)
        assert (outcome["sum_of_costs"], outcome["makespan"]) == (waits + 3, waits + 2)
    long = ["WAIT"] * (MAX_STEPS + 1)
    (record,) = answer_records(check_lines, [{"id": 7, "grid": ISSUE_GRID, "plan": [long, []]}])
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
    good = {"id": "good", "grid": ISSUE_GRID}
    first, error, last = answer_records(solve_lines, [good, record, good])
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
    (record,) = answer_records(check_lines, [{"id": 5, "grid": ISSUE_GRID, **fields}])
    assert record == {"id": 5, "error": message}


@pytest.mark.slow
def test_solve_command_extends_the_horizon_for_long_plans():
    (solution,) = answer_records(solve_lines, [{"id": 0, "grid": CORRIDOR}])
    assert solution["status"] == "OPTIMAL"
    assert solution["makespan"] == oracles.least_makespan(CORRIDOR) > 64
    outcome = check(grid=CORRIDOR, plan=solution["plan"])
    assert outcome["optimal_sum_of_costs"]
