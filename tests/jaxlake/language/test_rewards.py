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

GRID = ["S F F", "F H F", "F G F"]
OPTIMAL_PLAN = "Agent 0: DOWN DOWN RIGHT"
DETOUR = "Agent 0: RIGHT RIGHT DOWN DOWN LEFT"
PREFIX = "Agent 0: DOWN DOWN"
PROSE = "I would go down, then right."


def _draw_board_and_plan(rng: random.Random) -> tuple[list[str], list[list[int]]]:
    """Return a board whose goals are the ends of random walks, and these walks as a plan."""
    while True:
        size, num_agents = rng.choice([(2, 1), (3, 2), (4, 3), (5, 5), (6, 2)])
        grid = oracles.random_grid(rng, size, 0.2, num_agents)
        board = oracles.parse_board(grid)
        positions, plan = list(board.starts), []
        for _ in range(rng.randint(1, 5)):
            actions = []
            for i, (r, c) in enumerate(positions):
                steps = [(a, (r + dr, c + dc)) for a, (dr, dc) in oracles.MOVES.items()]
                action, positions[i] = rng.choice([step for step in steps if step[1] in board.free])
                actions.append(action)
            plan.append(actions)
        if len({*positions, *board.starts}) == 2 * num_agents:
            symbols = "SsABC"[:num_agents] + "Ggabc"[:num_agents]
            symbol_by_cell = dict(zip((*board.starts, *positions), symbols, strict=True))
            symbol_rows = [
                [symbol_by_cell.get((r, c), "HF"[(r, c) in board.free]) for c in range(size)]
                for r in range(size)
            ]
            return [" ".join(row) for row in symbol_rows], plan


def _format_plan(plan: list[list[int]]) -> str:
    columns = zip(*plan, strict=True)
    return "\n".join(
        f"Agent {i}: " + " ".join(Action(action).name for action in actions)
        for i, actions in enumerate(columns)
    )


@pytest.fixture(scope="module")
def examples():
    """Return 400 boards of 1 to 5 agents with plans that often solve them, and their optima."""
    rng = random.Random(3)
    pairs = [_draw_board_and_plan(rng) for _ in range(400)]
    for _, plan in pairs[::3]:
        rng.choice(plan)[0] = rng.randrange(5)
    optima = [oracles.least_sum_of_costs(grid) if len(grid) < 5 else None for grid, _ in pairs]
    return [(*pair, optimum and optimum[0]) for pair, optimum in zip(pairs, optima, strict=True)]


def test_scores_match_python_reference(examples):
    grids, plans, optima = (list(column) for column in zip(*examples, strict=True))
    seen_results = set()
    for (grid, plan, optimum), result in zip(
        examples, score_batch([_format_plan(plan) for plan in plans], grids, optima), strict=True
    ):
        verdict = oracles.check_plan(grid, plan)
        assert result.parsed
        assert result.plan == tuple(zip(*plan, strict=True))
        assert result.failure.label == (verdict.failure or "none")
        assert result.valid == (verdict.failure is None)
        assert (result.agent, result.time) == (verdict.agent, verdict.time)
        assert (result.sum_of_costs, result.makespan) == (verdict.sum_of_costs, verdict.makespan)
        is_optimal = verdict.sum_of_costs == optimum if optimum is not None else None
        assert result.optimal == (is_optimal if result.valid else False)
        assert result.reward == (1.0 if result.optimal else 0.6 if result.valid else 0.0)
        seen_results.add((result.optimal, result.failure))
    failures = set(Failure) - {Failure.NONE, Failure.PARSE_ERROR}
    assert {failure for optimal, failure in seen_results if not optimal} >= failures
    assert seen_results >= {(optimal, Failure.NONE) for optimal in (True, False, None)}


def test_score_batch_compiles_once(examples):
    score(OPTIMAL_PLAN, GRID, 3)
    cache_size = verify_batch._cache_size()
    for count in (1, 2, 7, BATCH_SIZE, BATCH_SIZE + 1, 400):
        subset = examples[:count]
        assert (
            len(
                score_batch(
                    [_format_plan(plan) for _, plan, _ in subset], [grid for grid, *_ in subset]
                )
            )
            == count
        )
    assert verify_batch._cache_size() == cache_size


def test_rewards_solve_boards_without_optimum():
    assert score(OPTIMAL_PLAN, GRID).reward == 1.0
    result = score(DETOUR, GRID)
    assert (result.reward, result.optimal, result.sum_of_costs) == (0.6, False, 5)
    result = score(DETOUR, GRID, find_optimum=False)
    assert (result.reward, result.optimal, result.valid) == (0.6, None, True)


def test_rewards_accept_a_solution_as_optimum():
    solution = solve(parse_grid(GRID, max_size=10))
    for text in (OPTIMAL_PLAN, DETOUR, PREFIX):
        assert score(text, GRID, solution) == score(text, GRID, 3)
    unknown_solution = replace(solution, status=np.int8(Status.UNKNOWN))
    assert score(DETOUR, GRID, unknown_solution, find_optimum=False).optimal is None


def test_rewards_solve_only_for_valid_answers(monkeypatch):
    monkeypatch.setattr(rewards, "solve", None)
    for text in (PREFIX, PROSE):
        assert score(text, GRID).optimal is False
    assert score(DETOUR, GRID, 3).optimal is False


@pytest.mark.parametrize(
    "board",
    [
        GRID,
        tuple(GRID),
        "\n".join(GRID) + "\n",
        parse_grid(GRID),
        parse_grid(GRID, max_size=12, max_agents=7),
    ],
)
def test_rewards_accept_every_board_format(board):
    assert score(DETOUR, board, 3) == score(DETOUR, GRID, 3)
    assert score(PREFIX, board, 3).failure is Failure.GOAL_NOT_REACHED


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        (OPTIMAL_PLAN, OPTIMAL_PLAN),
        ([{"role": "assistant", "content": OPTIMAL_PLAN}], OPTIMAL_PLAN),
        (
            [
                {"role": "assistant", "content": DETOUR},
                {"role": "tool", "content": "?"},
                {"role": "assistant", "content": OPTIMAL_PLAN},
            ],
            OPTIMAL_PLAN,
        ),
        (
            [{"role": "assistant", "content": [{"type": "text", "text": OPTIMAL_PLAN}]}],
            OPTIMAL_PLAN,
        ),
        ([SimpleNamespace(role="assistant", content=OPTIMAL_PLAN)], OPTIMAL_PLAN),
        ([{"role": "assistant", "content": None}], ""),
    ],
)
def test_completion_text_takes_last_assistant_message(completion, text):
    assert rewards.completion_text(completion) == text
    reward = lake_reward([None], [completion], grid=[GRID], sum_of_costs=[3])
    assert reward == [1.0 if text else 0.0]


def test_reward_function_reads_its_columns():
    texts = [OPTIMAL_PLAN, DETOUR, PREFIX, PROSE]
    values = RewardValues(optimal=2.0, valid=1.0, parsed=-0.5, unparsable=-1.0)
    custom_reward = reward_function(board="map", optimum="best", values=values)
    assert custom_reward.__name__ == "lake_reward"
    columns = {"map": [GRID] * 4, "best": [3] * 4, "grid": [None] * 4, "trainer_state": object()}
    assert custom_reward(prompts=[""] * 4, completions=texts, **columns) == [2.0, 1.0, -0.5, -1.0]
    reward_without_optimum = reward_function(optimum=None)
    assert reward_without_optimum([""] * 4, texts, grid=[GRID] * 4) == [0.6, 0.6, 0.0, 0.0]
    short_reward = reward_function(max_steps=3)
    assert short_reward([""] * 4, texts, grid=[GRID] * 4, sum_of_costs=[3] * 4) == [
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
        ["2 + 2 = 4", OPTIMAL_PLAN, PROSE],
        grid=[None, GRID, GRID],
        sum_of_costs=[None, 3, 3],
        log_metric=metrics.__setitem__,
        log_extra=extra.__setitem__,
    )
    assert values == [None, 1.0, 0.0]
    assert metrics["lake/valid"] == 0.5
    assert extra == {"failure": ["", "none", "parse_error"]}
    with pytest.raises(ValueError, match=r"boards\[1\]: "):
        lake_reward([""] * 2, [OPTIMAL_PLAN] * 2, grid=[None, ["S"]], sum_of_costs=[None, 3])
    with pytest.raises(ValueError, match="grid must have one row per completion, got 1 rows for 2"):
        lake_reward([""] * 2, [OPTIMAL_PLAN] * 2, grid=[GRID], sum_of_costs=[3, 3])


@pytest.mark.parametrize(("optimum", "share"), [([None, None], None), ([3, None], 1.0)])
def test_lake_reward_logs_optimal_share_of_known_optima(optimum, share):
    metrics = {}
    lake_reward(
        [""] * 2,
        [OPTIMAL_PLAN, PROSE],
        grid=[GRID] * 2,
        sum_of_costs=optimum,
        log_metric=metrics.__setitem__,
    )
    assert metrics.get("lake/optimal") == share


def test_rewards_of_arrays_equal_scores(examples):
    grids, plans, optima = (list(column) for column in zip(*examples[:60], strict=True))
    texts = [PROSE if row % 7 == 0 else _format_plan(plan) for row, plan in enumerate(plans)]
    instances = stack_instances([parse_grid(grid, max_agents=5) for grid in grids])
    costs = np.array([-1 if result is None else result for result in optima], np.int16)
    solutions = rewards._make_solutions(costs, 5)
    outcomes = rewards.judge_texts(texts, instances, solutions, max_steps=64).outcomes
    values = rewards.reward(outcomes)
    assert values.dtype == np.float32
    scores = score_batch(texts, grids, optima)
    np.testing.assert_array_equal(values, np.float32([result.reward for result in scores]))
    np.testing.assert_array_equal(values, jax.jit(rewards.reward)(outcomes))
    assert {0.0, 0.6, 1.0} == {result.reward for result in scores}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([OPTIMAL_PLAN], [["S F", "F"]]), r"boards\[0\]: row 1 must have 2 cells"),
        (
            ([OPTIMAL_PLAN], [stack_instances([parse_grid(GRID)] * 2)]),
            r"boards\[0\]: must be one board, got a batch of shape",
        ),
        (([OPTIMAL_PLAN], [None]), r"boards\[0\]: "),
        (([OPTIMAL_PLAN] * 2, [GRID]), r"boards must have one element per text, got 1, not 2"),
        (([OPTIMAL_PLAN], [GRID], [3, 3]), r"optima must have one element per text, got 2, not 1"),
        (([OPTIMAL_PLAN], [GRID], ["3"]), r"optima: row 0 must be .*, got '3'"),
        (([OPTIMAL_PLAN], [GRID], [-2]), r"optima: row 0 must be .*, got -2"),
        (
            ([PREFIX, DETOUR], [GRID] * 2, [3, 9]),
            r"optima: row 1 must be .*, got 9, .* solves the board at 5",
        ),
    ],
)
def test_unscorable_rows_are_rejected_by_number(arguments, message):
    with pytest.raises(ValueError, match=message):
        score_batch(*arguments)


def test_agents_beyond_the_first_slots_are_rejected():
    board = replace(parse_grid(["S G", "s g"]), agent_mask=np.array([False, True]))
    with pytest.raises(ValueError, match=r"agent_mask must .*, got \[False, True\]"):
        score(OPTIMAL_PLAN, board, 3)


def test_completions_of_other_types_are_rejected():
    with pytest.raises(TypeError, match="texts: row 1 must be a string, got NoneType"):
        score_batch([OPTIMAL_PLAN, None], [GRID] * 2)
    with pytest.raises(TypeError, match=r"completion must be .*, got int"):
        lake_reward([""], [7], grid=[GRID], sum_of_costs=[3])


@pytest.mark.parametrize(
    ("completion", "problem"),
    [
        (7, "completion must be a string or a list of messages, got int"),
        (OPTIMAL_PLAN.encode(), "a list of messages, got bytes"),
        ([5, 6, 7], "a list of messages, got a list with int 5"),
        ([OPTIMAL_PLAN], "got a list with str 'Agent 0: DOWN DOWN RIGHT'"),
        (
            [[{"role": "assistant", "content": OPTIMAL_PLAN}]],
            "a list of messages, got a list with list",
        ),
        (
            [{"role": "user", "content": OPTIMAL_PLAN}],
            r"a message by 'assistant', got messages by \['user'\]",
        ),
        ([], r"a message by 'assistant', got messages by \[\]"),
        (
            [{"role": "assistant", "content": 7}],
            "content must be a string or a list of parts, got int",
        ),
        ([{"role": "assistant", "content": b"x"}], "a list of parts, got bytes"),
        (
            [{"role": "assistant", "content": [OPTIMAL_PLAN]}],
            "content parts must have a field type, got str",
        ),
    ],
)
def test_completion_text_rejects_missing_answers(completion, problem):
    with pytest.raises(TypeError, match=problem):
        lake_reward([""], [completion], grid=[GRID], sum_of_costs=[3])


DRAFT = f"Let me try\n{OPTIMAL_PLAN}\n\nBut wait, is"


def test_score_counts_only_text_after_thinking():
    assert score(DRAFT, GRID, 3).reward == 1.0  # the text alone does not show where it began
    open_result = score(DRAFT, GRID, 3, thinking=True)
    assert (open_result.parsed, open_result.reward) == (False, 0.0)
    assert open_result.reason == "the thinking block is never closed"
    closed_result = score(f"{DRAFT} it?\n</think>\n\n{DETOUR}", GRID, thinking=True)
    assert (closed_result.reward, closed_result.sum_of_costs) == (0.6, 5)


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
    assert lake_reward([prompt], [DRAFT], grid=[GRID], sum_of_costs=[3]) == [expected]
    thinking_reward = reward_function(thinking=True)
    assert thinking_reward([prompt], [DRAFT], grid=[GRID], sum_of_costs=[3]) == [0.0]


def test_lake_reward_reads_pandas_columns():
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"grid": [GRID, GRID, None], "sum_of_costs": [3, None, None]})
    assert rows.sum_of_costs.dtype == float
    texts = [OPTIMAL_PLAN] * 3
    for column in (rows.sum_of_costs, rows.sum_of_costs.astype("Int64")):
        for grids in (rows.grid, [GRID, GRID, pandas.NA]):
            values = lake_reward([""] * 3, texts, grid=list(grids), sum_of_costs=list(column))
            assert values == [1.0, 0.6, None]
    with pytest.raises(
        ValueError, match=r"optima: row 0 must be a number of steps or None, got 2.5"
    ):
        score_batch([OPTIMAL_PLAN], [GRID], [2.5])


def test_missing_column_error_lists_columns():
    with pytest.raises(ValueError, match=r"no column 'grid', only \['map', 'sum_of_costs'\]"):
        lake_reward([""], [OPTIMAL_PLAN], map=[GRID], sum_of_costs=[3])
    with pytest.raises(ValueError, match=r"no column 'sum_of_costs'.*optimum=None"):
        lake_reward([""], [OPTIMAL_PLAN], grid=[GRID])


@pytest.mark.parametrize(
    "values", [{"valid": 1.5}, {"parsed": float("nan")}, {"unparsable": 0.1}, {"valid": "much"}]
)
def test_decreasing_rewards_are_rejected(values):
    with pytest.raises(ValueError, match="descending order"):
        RewardValues(**values)
