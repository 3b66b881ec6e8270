"""Rewards for other trainers agree with an independent walk in plain Python."""

import random
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from benchmarks import oracles
from jaxlake import Action, Failure, Status, parse_grid, rewards, solve, stack_instances
from jaxlake.language.judging import BATCH_SIZE, verify_batch
from jaxlake.language.rewards import RewardValues, lake_reward, reward_function, score, score_batch

CORNER = ["S F F", "F H F", "F G F"]
OPTIMAL = "Agent 0: DOWN DOWN RIGHT"
DETOUR = "Agent 0: RIGHT RIGHT DOWN DOWN LEFT"
INCOMPLETE = "Agent 0: DOWN DOWN"
PROSE = "I would go down, then right."


def _draw_board_and_plan(rng: random.Random) -> tuple[list[str], list[list[int]]]:
    """Return a board whose goals are the ends of random walks, and these walks as a plan."""
    while True:
        size, agents = rng.choice([(2, 1), (3, 2), (4, 3), (5, 5), (6, 2)])
        grid = oracles.random_grid(rng, size, 0.2, agents)
        board = oracles.read(grid)
        positions, plan = list(board.starts), []
        for _ in range(rng.randint(1, 5)):
            actions = []
            for i, (r, c) in enumerate(positions):
                steps = [(a, (r + dr, c + dc)) for a, (dr, dc) in oracles.MOVES.items()]
                action, positions[i] = rng.choice([step for step in steps if step[1] in board.free])
                actions.append(action)
            plan.append(actions)
        if len({*positions, *board.starts}) == 2 * agents:
            symbols = "SsABC"[:agents] + "Ggabc"[:agents]
            letters = dict(zip((*board.starts, *positions), symbols, strict=True))
            cells = [
                [letters.get((r, c), "HF"[(r, c) in board.free]) for c in range(size)]
                for r in range(size)
            ]
            return [" ".join(row) for row in cells], plan


def _plan_text(plan: list[list[int]]) -> str:
    columns = zip(*plan, strict=True)
    return "\n".join(
        f"Agent {i}: " + " ".join(Action(action).name for action in actions)
        for i, actions in enumerate(columns)
    )


@pytest.fixture(scope="module")
def walks():
    """Return 400 boards of 1 to 5 agents with plans that often solve them, and their optima."""
    rng = random.Random(3)
    pairs = [_draw_board_and_plan(rng) for _ in range(400)]
    for _, plan in pairs[::3]:
        rng.choice(plan)[0] = rng.randrange(5)
    optima = [oracles.least_sum_of_costs(grid) if len(grid) < 5 else None for grid, _ in pairs]
    return [(*walk, optimum and optimum[0]) for walk, optimum in zip(pairs, optima, strict=True)]


def test_scores_match_python_reference(walks):
    grids, plans, optima = (list(column) for column in zip(*walks, strict=True))
    seen_results = set()
    for (grid, plan, optimum), result in zip(
        walks, score_batch([_plan_text(plan) for plan in plans], grids, optima), strict=True
    ):
        verdict = oracles.check(grid, plan)
        assert result.parsed
        assert result.plan == tuple(zip(*plan, strict=True))
        assert result.failure.label == (verdict.failure or "none")
        assert result.valid == (verdict.failure is None)
        assert (result.agent, result.time) == (verdict.agent, verdict.time)
        assert (result.sum_of_costs, result.makespan) == (verdict.sum_of_costs, verdict.makespan)
        optimal = verdict.sum_of_costs == optimum if optimum is not None else None
        assert result.optimal == (optimal if result.valid else False)
        assert result.reward == (1.0 if result.optimal else 0.6 if result.valid else 0.0)
        seen_results.add((result.optimal, result.failure))
    failures = set(Failure) - {Failure.NONE, Failure.PARSE_ERROR}
    assert {failure for is_optimal, failure in seen_results if not is_optimal} >= failures
    assert seen_results >= {(is_optimal, Failure.NONE) for is_optimal in (True, False, None)}


def test_score_batch_compiles_once(walks):
    score(OPTIMAL, CORNER, 3)
    before = verify_batch._cache_size()
    for count in (1, 2, 7, BATCH_SIZE, BATCH_SIZE + 1, 400):
        subset = walks[:count]
        assert (
            len(
                score_batch(
                    [_plan_text(plan) for _, plan, _ in subset], [grid for grid, *_ in subset]
                )
            )
            == count
        )
    assert verify_batch._cache_size() == before


def test_rewards_solve_boards_without_optimum():
    assert score(OPTIMAL, CORNER).reward == 1.0
    suboptimal = score(DETOUR, CORNER)
    assert (suboptimal.reward, suboptimal.optimal, suboptimal.sum_of_costs) == (0.6, False, 5)
    unknown = score(DETOUR, CORNER, find_optimum=False)
    assert (unknown.reward, unknown.optimal, unknown.valid) == (0.6, None, True)


def test_rewards_accept_a_solution_as_optimum():
    solution = solve(parse_grid(CORNER, max_size=10))
    for text in (OPTIMAL, DETOUR, INCOMPLETE):
        assert score(text, CORNER, solution) == score(text, CORNER, 3)
    unknown = replace(solution, status=np.int8(Status.UNKNOWN))
    assert score(DETOUR, CORNER, unknown, find_optimum=False).optimal is None


def test_rewards_solve_only_for_valid_answers(monkeypatch):
    monkeypatch.setattr(rewards, "solve", None)
    for text in (INCOMPLETE, PROSE):
        assert score(text, CORNER).optimal is False
    assert score(DETOUR, CORNER, 3).optimal is False


@pytest.mark.parametrize(
    "board",
    [
        CORNER,
        tuple(CORNER),
        "\n".join(CORNER) + "\n",
        parse_grid(CORNER),
        parse_grid(CORNER, max_size=12, max_agents=7),
    ],
)
def test_rewards_accept_every_board_format(board):
    assert score(DETOUR, board, 3) == score(DETOUR, CORNER, 3)
    assert score(INCOMPLETE, board, 3).failure is Failure.GOAL_NOT_REACHED


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        (OPTIMAL, OPTIMAL),
        ([{"role": "assistant", "content": OPTIMAL}], OPTIMAL),
        (
            [
                {"role": "assistant", "content": DETOUR},
                {"role": "tool", "content": "?"},
                {"role": "assistant", "content": OPTIMAL},
            ],
            OPTIMAL,
        ),
        ([{"role": "assistant", "content": [{"type": "text", "text": OPTIMAL}]}], OPTIMAL),
        ([SimpleNamespace(role="assistant", content=OPTIMAL)], OPTIMAL),
        ([{"role": "assistant", "content": None}], ""),
    ],
)
def test_completion_text_takes_last_assistant_message(completion, text):
    assert rewards.completion_text(completion) == text
    reward = lake_reward([None], [completion], grid=[CORNER], sum_of_costs=[3])
    assert reward == [1.0 if text else 0.0]


def test_reward_function_reads_its_columns():
    texts = [OPTIMAL, DETOUR, INCOMPLETE, PROSE]
    values = RewardValues(optimal=2.0, valid=1.0, parsed=-0.5, unparsable=-1.0)
    custom = reward_function(board="map", optimum="best", values=values)
    assert custom.__name__ == "lake_reward"
    columns = {"map": [CORNER] * 4, "best": [3] * 4, "grid": [None] * 4, "trainer_state": object()}
    assert custom(prompts=[""] * 4, completions=texts, **columns) == [2.0, 1.0, -0.5, -1.0]
    without_optimum = reward_function(optimum=None)
    assert without_optimum([""] * 4, texts, grid=[CORNER] * 4) == [0.6, 0.6, 0.0, 0.0]
    short_limit = reward_function(max_steps=3)
    assert short_limit([""] * 4, texts, grid=[CORNER] * 4, sum_of_costs=[3] * 4) == [
        1.0,
        0.0,
        0.0,
        0.0,
    ]
    assert lake_reward([], [], grid=[], sum_of_costs=[]) == []


def test_reward_function_skips_rows_of_other_tasks():
    metrics, extra = {}, {}
    values = lake_reward(
        [""] * 3,
        ["2 + 2 = 4", OPTIMAL, PROSE],
        grid=[None, CORNER, CORNER],
        sum_of_costs=[None, 3, 3],
        log_metric=metrics.__setitem__,
        log_extra=extra.__setitem__,
    )
    assert values == [None, 1.0, 0.0]
    assert metrics["lake/valid"] == 0.5
    assert extra == {"failure": ["", "none", "parse_error"]}
    with pytest.raises(ValueError, match=r"boards\[1\]: "):
        lake_reward([""] * 2, [OPTIMAL] * 2, grid=[None, ["S"]], sum_of_costs=[None, 3])
    with pytest.raises(ValueError, match="grid must have one row per completion, got 1 rows for 2"):
        lake_reward([""] * 2, [OPTIMAL] * 2, grid=[CORNER], sum_of_costs=[3, 3])


@pytest.mark.parametrize(("optimum", "share"), [([None, None], None), ([3, None], 1.0)])
def test_lake_reward_logs_optimal_share_of_known_optima(optimum, share):
    metrics = {}
    lake_reward(
        [""] * 2,
        [OPTIMAL, PROSE],
        grid=[CORNER] * 2,
        sum_of_costs=optimum,
        log_metric=metrics.__setitem__,
    )
    assert metrics.get("lake/optimal") == share


def test_rewards_of_arrays_equal_scores(walks):
    grids, plans, optima = (list(column) for column in zip(*walks[:60], strict=True))
    texts = [PROSE if row % 7 == 0 else _plan_text(plan) for row, plan in enumerate(plans)]
    instances = stack_instances([parse_grid(grid, max_agents=5) for grid in grids])
    costs = np.array([-1 if item is None else item for item in optima], np.int16)
    solutions = rewards._make_solutions(costs, 5)
    outcomes = rewards.judge_texts(texts, instances, solutions, max_steps=64).outcomes
    values = rewards.reward(outcomes)
    assert values.dtype == np.float32
    scores = score_batch(texts, grids, optima)
    np.testing.assert_array_equal(values, np.float32([item.reward for item in scores]))
    np.testing.assert_array_equal(values, jax.jit(rewards.reward)(outcomes))
    assert {0.0, 0.6, 1.0} == {item.reward for item in scores}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([OPTIMAL], [["S F", "F"]]), r"boards\[0\]: row 1 must have 2 cells"),
        (
            ([OPTIMAL], [stack_instances([parse_grid(CORNER)] * 2)]),
            r"boards\[0\]: must be one board, got a batch of shape",
        ),
        (([OPTIMAL], [None]), r"boards\[0\]: "),
        (([OPTIMAL] * 2, [CORNER]), r"boards must have one element per text, got 1, not 2"),
        (([OPTIMAL], [CORNER], [3, 3]), r"optima must have one element per text, got 2, not 1"),
        (([OPTIMAL], [CORNER], ["3"]), r"optima: row 0 must be .*, got '3'"),
        (([OPTIMAL], [CORNER], [-2]), r"optima: row 0 must be .*, got -2"),
        (
            ([INCOMPLETE, DETOUR], [CORNER] * 2, [3, 9]),
            r"optima: row 1 must be .*, got 9, .* solves the board at 5",
        ),
    ],
)
def test_unscorable_rows_are_rejected_by_number(arguments, message):
    with pytest.raises(ValueError, match=message):
        score_batch(*arguments)


def test_agents_beyond_the_first_slots_are_rejected():
    gap = replace(parse_grid(["S G", "s g"]), agent_mask=np.array([False, True]))
    with pytest.raises(ValueError, match=r"agent_mask must .*, got \[False, True\]"):
        score(OPTIMAL, gap, 3)


def test_completions_of_other_types_are_rejected():
    with pytest.raises(TypeError, match="texts: row 1 must be a string, got NoneType"):
        score_batch([OPTIMAL, None], [CORNER] * 2)
    with pytest.raises(TypeError, match=r"completion must be .*, got int"):
        lake_reward([""], [7], grid=[CORNER], sum_of_costs=[3])


@pytest.mark.parametrize(
    ("completion", "problem"),
    [
        (7, "completion must be a string or a list of messages, got int"),
        (OPTIMAL.encode(), "a list of messages, got bytes"),
        ([5, 6, 7], "a list of messages, got a list with int 5"),
        ([OPTIMAL], "got a list with str 'Agent 0: DOWN DOWN RIGHT'"),
        ([[{"role": "assistant", "content": OPTIMAL}]], "a list of messages, got a list with list"),
        (
            [{"role": "user", "content": OPTIMAL}],
            r"a message by 'assistant', got messages by \['user'\]",
        ),
        ([], r"a message by 'assistant', got messages by \[\]"),
        (
            [{"role": "assistant", "content": 7}],
            "content must be a string or a list of parts, got int",
        ),
        ([{"role": "assistant", "content": b"x"}], "a list of parts, got bytes"),
        (
            [{"role": "assistant", "content": [OPTIMAL]}],
            "content parts must have a field type, got str",
        ),
    ],
)
def test_completion_text_rejects_missing_answers(completion, problem):
    with pytest.raises(TypeError, match=problem):
        lake_reward([""], [completion], grid=[CORNER], sum_of_costs=[3])


DRAFT = f"Let me try\n{OPTIMAL}\n\nBut wait, is"


def test_score_counts_only_text_after_thinking():
    assert score(DRAFT, CORNER, 3).reward == 1.0  # the text alone does not show where it began
    unfinished = score(DRAFT, CORNER, 3, thinking=True)
    assert (unfinished.parsed, unfinished.reward) == (False, 0.0)
    assert unfinished.reason == "the thinking block is never closed"
    finished = score(f"{DRAFT} it?\n</think>\n\n{DETOUR}", CORNER, thinking=True)
    assert (finished.reward, finished.sum_of_costs) == (0.6, 5)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|assistant|>\n<think>\n", 0.0),
        ("<|assistant|>[THINK]", 0.0),
        ([{"role": "user", "content": "?"}, {"role": "assistant", "content": "<reasoning>"}], 0.0),
        ("Put your thoughts into <think>.", 1.0),
        ([{"role": "user", "content": "<think>"}], 1.0),
    ],
)
def test_lake_reward_detects_opened_thinking(prompt, expected):
    assert lake_reward([prompt], [DRAFT], grid=[CORNER], sum_of_costs=[3]) == [expected]
    always_thinking = reward_function(thinking=True)
    assert always_thinking([prompt], [DRAFT], grid=[CORNER], sum_of_costs=[3]) == [0.0]


def test_lake_reward_reads_pandas_columns():
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"grid": [CORNER, CORNER, None], "sum_of_costs": [3, None, None]})
    assert rows.sum_of_costs.dtype == float
    texts = [OPTIMAL] * 3
    for column in (rows.sum_of_costs, rows.sum_of_costs.astype("Int64")):
        for grids in (rows.grid, [CORNER, CORNER, pandas.NA]):
            values = lake_reward([""] * 3, texts, grid=list(grids), sum_of_costs=list(column))
            assert values == [1.0, 0.6, None]
    with pytest.raises(
        ValueError, match=r"optima: row 0 must be a number of steps or None, got 2.5"
    ):
        score_batch([OPTIMAL], [CORNER], [2.5])


def test_missing_column_error_lists_columns():
    with pytest.raises(ValueError, match=r"no column 'grid', only \['map', 'sum_of_costs'\]"):
        lake_reward([""], [OPTIMAL], map=[CORNER], sum_of_costs=[3])
    with pytest.raises(ValueError, match=r"no column 'sum_of_costs'.*optimum=None"):
        lake_reward([""], [OPTIMAL], grid=[CORNER])


@pytest.mark.parametrize(
    "values", [{"valid": 1.5}, {"parsed": float("nan")}, {"unparsable": 0.1}, {"valid": "much"}]
)
def test_decreasing_rewards_are_rejected(values):
    with pytest.raises(ValueError, match="descending order"):
        RewardValues(**values)
