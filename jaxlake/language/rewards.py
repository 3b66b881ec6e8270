"""Rewards for text answers to boards, for the built-in loop and for other trainers.

`score` scores one answer and `score_batch` many. `lake_reward` has the signature of reward
functions of TRL's `GRPOTrainer` and similar trainers, and `reward_function` returns variants of it.
All of them parse answers with `jaxlake.answers` and verify plans with `jaxlake.verify`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from numbers import Real
from operator import index
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.inputs import BoardLike, as_instance, pad_for_solver, stack_boards
from jaxlake.board.verification import Failure, Outcome
from jaxlake.language.answers import Answer, Plan
from jaxlake.language.judging import Verdict, judge_texts
from jaxlake.language.thinking import THINKING_PREFIX, opening_tag
from jaxlake.solver import Solution, Status, solve

DEFAULT_MAX_STEPS = 64
"""Default maximum number of actions per agent; `prompt.max_steps` of the loop's configuration."""

_PLACEHOLDER_BOARD = ("S G", "F F")  # for rows without a board, which get no reward

TextRewardFunction = Callable[..., list[float | None]]
"""Signature `f(prompts, completions, **columns)`; see `lake_reward`."""


@dataclass(frozen=True)
class RewardValues:
    """Rewards by quality of the answer, in descending order. The loop uses the defaults.

    Raises:
        ValueError: A value is not finite, or the values are not in descending order.
    """

    optimal: float = 1.0  # valid plan with the minimal sum of costs
    valid: float = 0.6  # valid plan that is suboptimal, or whose optimum is unknown
    parsed: float = 0.0  # plan that breaks a rule or misses a goal
    unparsable: float = 0.0  # text that can't be parsed as a plan

    def __post_init__(self) -> None:
        values = [self.optimal, self.valid, self.parsed, self.unparsable]
        is_finite = all(isinstance(value, Real) and np.isfinite(value) for value in values)
        if not is_finite or values != sorted(values, reverse=True):
            raise ValueError(
                "rewards must be finite and in descending order, got "
                f"optimal {self.optimal!r}, valid {self.valid!r}, parsed {self.parsed!r}, "
                f"unparsable {self.unparsable!r}"
            )


_DEFAULT_VALUES = RewardValues()


def reward(outcome: Outcome, values: RewardValues = _DEFAULT_VALUES) -> jax.Array:
    """Return the rewards of verified answers, float32 with the batch shape of `outcome`.

    | answer                                          | reward       |
    |-------------------------------------------------|--------------|
    | valid, with the minimal sum of costs            | `optimal`    |
    | valid, but suboptimal                           | `valid`      |
    | well-formed, but breaks a rule or misses a goal | `parsed`     |
    | can't be parsed as a plan                       | `unparsable` |

    Args:
        outcome: verified answers, with any batch shape.
        values: the rewards.

    Raises:
        TypeError: `values` is a mapping.
    """
    return jnp.asarray(_rewards_by_level(values), jnp.float32)[_level(outcome)]


def _rewards_by_level(values: RewardValues) -> list[float]:
    """Return the reward of each `_level`."""
    if isinstance(values, Mapping):
        raise TypeError(f"values must be RewardValues(...), got {type(values).__name__}")
    return [values.unparsable, values.parsed, values.valid, values.optimal]


def _level(outcome: Outcome) -> jax.Array:
    """Return how many of the nested flags parsed, valid and optimal are set, int32."""
    flags = (outcome.parsed, outcome.valid, outcome.optimal_sum_of_costs)
    return sum((jnp.asarray(flag).astype(jnp.int32) for flag in flags), jnp.int32(0))


@dataclass(frozen=True)
class Score:
    """The reward and the verification of one answer."""

    reward: float
    parsed: bool  # the answer can be parsed as a plan
    valid: bool  # the plan breaks no rule, and every agent ends at its goal
    optimal: bool | None  # valid with the minimal sum of costs; None if valid, optimum unknown
    failure: Failure  # the first failure of the plan; `Failure.NONE` if it is valid
    agent: int | None  # lowest agent involved in the failure
    time: int | None  # 0-based step of the failure
    sum_of_costs: int | None  # of a valid plan, steps
    makespan: int | None  # of a valid plan, steps
    plan: Plan | None  # the parsed `Action` values of each agent
    reason: str | None  # why the text can't be parsed


def score(
    text: str,
    board: BoardLike,
    optimum: int | Solution | None = None,
    *,
    values: RewardValues = _DEFAULT_VALUES,
    max_steps: int = DEFAULT_MAX_STEPS,
    find_optimum: bool = True,
    thinking: bool = False,
) -> Score:
    """Score a model's answer to one board, as the loop does.

    Args:
        text: The complete answer; it may contain thinking and prose (see `parse_answer`).
        board: The board.
        optimum: The solution of the board, or its minimal sum of costs in steps. If None and the
            plan is valid, the board is solved. The first board of each size and number of agents
            compiles the solver, which is slow, so pass the optimum if you know it.
        values: The rewards.
        max_steps: Maximum number of actions per agent; answers with longer plans are not parsed.
        find_optimum: Whether to solve boards without an optimum. If False, or if the solver fails,
            `optimal` is None and valid plans get the reward `valid`.
        thinking: Whether the prompt has opened a thinking block, as some chat templates do. Then
            only the text after this block counts.

    Returns:
        The `Score`.

    Raises:
        ValueError: The board is invalid or a batch, the optimum is invalid or above the cost of
            the plan, `max_steps` is out of range, or the solver does not support the board.
        TypeError: The text is not a string.
    """
    options: dict[str, Any] = {"values": values, "max_steps": max_steps, "thinking": thinking}
    (result,) = score_batch([text], [board], [optimum], **options)
    if result.optimal is not None or not find_optimum:
        return result
    solution = solve(pad_for_solver(as_instance(board)))
    if solution.status != Status.OPTIMAL:
        return result
    (result,) = score_batch([text], [board], [int(solution.sum_of_costs)], **options)
    return result


def score_batch(
    texts: Sequence[str],
    boards: Sequence[BoardLike],
    optima: Sequence[float | Solution | None] | None = None,
    *,
    values: RewardValues = _DEFAULT_VALUES,
    max_steps: int = DEFAULT_MAX_STEPS,
    thinking: bool = False,
) -> list[Score]:
    """Score B answers, one per board, with a single compiled program for any B.

    Args:
        texts: B answers.
        boards: B boards, possibly of different sizes and numbers of agents.
        optima: B optima, as in `score`. Boards are not solved: if an optimum is missing (None, NaN
            or `pandas.NA`), `optimal` is None for valid plans, which get the reward `valid`.
        values: The rewards.
        max_steps: See `score`.
        thinking: See `score`.

    Returns:
        B scores.

    Raises:
        ValueError: As for `score`, with the row of the answer; or the lengths differ.
        TypeError: A text is not a string.
    """
    num_texts = len(texts)
    optima = [None] * num_texts if optima is None else list(optima)
    for name, column in (("boards", boards), ("optima", optima)):
        if len(column) != num_texts:
            raise ValueError(
                f"{name} must have one element per text, got {len(column)}, not {num_texts}"
            )
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts: row {row} must be a string, got {type(text).__name__}")
    if not num_texts:
        return []
    if thinking:
        texts = [THINKING_PREFIX + text for text in texts]
    instances = stack_boards(boards)
    costs = np.array([_validate_optimum(value, row) for row, value in enumerate(optima)], np.int16)
    num_slots = np.shape(instances.agent_mask)[-1]
    verdict = judge_texts(texts, instances, _make_solutions(costs, num_slots), max_steps=max_steps)
    outcomes = verdict.outcomes
    is_cheaper = np.asarray(outcomes.valid) & (np.asarray(outcomes.sum_of_costs) < costs)
    if is_cheaper.any():
        row = int(np.flatnonzero(is_cheaper)[0])
        raise ValueError(
            f"optima: row {row} must be the minimal sum of costs, got {costs[row]}, but the "
            f"answer's plan solves the board at {int(outcomes.sum_of_costs[row])}"
        )
    return compute_scores(verdict, costs >= 0, values)


def compute_scores(
    verdict: Verdict, has_optimum: np.ndarray, values: RewardValues = _DEFAULT_VALUES
) -> list[Score]:
    """Return the scores of B judged answers; `has_optimum` is bool (B,)."""
    rewards = _rewards_by_level(values)
    levels = np.asarray(_level(verdict.outcomes)).tolist()
    return [
        _make_score(answer, verdict.outcomes, row, rewards[level], has_optimum=bool(is_known))
        for row, (answer, level, is_known) in enumerate(
            zip(verdict.answers, levels, has_optimum, strict=True)
        )
    ]


def _make_score(
    answer: Answer, outcomes: Outcome, row: int, reward_value: float, *, has_optimum: bool
) -> Score:
    def get_non_negative(name: str) -> int | None:
        value = int(getattr(outcomes, name)[row])
        return None if value < 0 else value

    is_valid = bool(outcomes.valid[row])
    return Score(
        reward=float(reward_value),
        parsed=answer.parsed,
        valid=is_valid,
        optimal=bool(outcomes.optimal_sum_of_costs[row]) if has_optimum or not is_valid else None,
        failure=Failure(int(outcomes.failure[row])),
        agent=get_non_negative("agent"),
        time=get_non_negative("time"),
        sum_of_costs=get_non_negative("sum_of_costs"),
        makespan=get_non_negative("makespan"),
        plan=answer.plan,
        reason=answer.reason,
    )


def lake_reward(
    prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
) -> list[float | None]:
    """Return the rewards of B completions; use it as `GRPOTrainer(reward_funcs=lake_reward, ...)`.

    If TRL passes `log_metric` and `log_extra`, the function logs the shares of parsed, valid and
    (among boards with a known optimum) optimal answers, and the failure of each answer.

    Args:
        prompts: B prompts, strings or chat messages. If a prompt ends with an opening thinking tag,
            its completion must close the block. Boards are not read from prompts.
        completions: B answers, each a string or chat messages, of which the last one by the
            assistant is used.
        columns: Lists of length B by name, as written by `jaxlake.datasets.to_hugging_face`:
            `grid`, the rows of each board, or None for prompts of other tasks; and
            `sum_of_costs`, the minimal one in steps, or None if unknown. NaN and `pandas.NA` count
            as None. Other columns are ignored.

    Returns:
        One reward per completion. It is None for rows without a board, which TRL leaves to other
        reward functions.

    Raises:
        ValueError: A column is missing or has another length, or as for `score`.
        TypeError: A completion is neither a string nor messages with one by the assistant.
    """
    return _reward_columns(prompts, completions, columns, _RewardOptions("grid", "sum_of_costs"))


def reward_function(
    *,
    board: str = "grid",
    optimum: str | None = "sum_of_costs",
    values: RewardValues = _DEFAULT_VALUES,
    max_steps: int = DEFAULT_MAX_STEPS,
    thinking: bool = False,
    name: str = "lake_reward",
) -> TextRewardFunction:
    """Return a reward function like `lake_reward` for other columns or rewards.

    Args:
        board: The column of the boards, each a `BoardLike`.
        optimum: The column of the minimal sums of costs in steps. If None, all valid plans get the
            same reward.
        values: The rewards.
        max_steps: Maximum number of actions per agent; answers with longer plans are not parsed.
        thinking: Whether the trainer's chat template ends prompts with an opening thinking tag,
            which prompts given as messages do not show; see `score`.
        name: The `__name__` of the function, which trainers use to log its rewards. It must be
            unique within a trainer.

    Raises:
        TypeError: `values` is a mapping.
    """
    _rewards_by_level(values)  # raises before training starts
    options = _RewardOptions(board, optimum, values, max_steps, thinking)

    def reward_completions(
        prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Reward completions; see `jaxlake.language.rewards.lake_reward`."""
        return _reward_columns(prompts, completions, columns, options)

    reward_completions.__name__ = reward_completions.__qualname__ = name
    return reward_completions


class _RewardOptions(NamedTuple):
    """The options of a reward function."""

    board: str
    optimum: str | None
    values: RewardValues = _DEFAULT_VALUES
    max_steps: int = DEFAULT_MAX_STEPS
    thinking: bool = False


def _reward_columns(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    columns: Mapping[str, Any],
    options: _RewardOptions,
) -> list[float | None]:
    _check_columns(prompts, completions, columns, options)
    has_board = [not _is_missing(board) for board in columns[options.board]]
    # Rows of other tasks stay in the batch, so that errors name the rows of the data set.
    boards = [
        board if is_lake else _PLACEHOLDER_BOARD
        for board, is_lake in zip(columns[options.board], has_board, strict=True)
    ]
    optima = [None] * len(boards) if options.optimum is None else columns[options.optimum]
    optima = [
        optimum if is_lake and not _is_missing(optimum) else None
        for optimum, is_lake in zip(optima, has_board, strict=True)
    ]
    texts = [
        _get_opening_tag(prompt) + completion_text(completion) if is_lake else ""
        for prompt, completion, is_lake in zip(prompts, completions, has_board, strict=True)
    ]
    scores = score_batch(
        texts,
        boards,
        optima,
        values=options.values,
        max_steps=options.max_steps,
        thinking=options.thinking,
    )
    has_optimum = [optimum is not None for optimum in optima]
    _log_shares(
        list(compress(scores, has_board)),
        list(compress(has_optimum, has_board)),
        columns.get("log_metric"),
    )
    rows = list(zip(scores, has_board, strict=True))
    if callable(log_extra := columns.get("log_extra")):
        labels = [answer_score.failure.label if is_lake else "" for answer_score, is_lake in rows]
        log_extra("failure", labels)
    return [answer_score.reward if is_lake else None for answer_score, is_lake in rows]


def _check_columns(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    columns: Mapping[str, Any],
    options: _RewardOptions,
) -> None:
    for field, name in (("board", options.board), ("optimum", options.optimum)):
        if name is not None and name not in columns:
            raise ValueError(
                f"{field}: there is no column {name!r}, only {sorted(columns)}; pass other names "
                "to `reward_function`, or optimum=None without optima"
            )
        if name is not None and len(columns[name]) != len(completions):
            raise ValueError(
                f"{name} must have one row per completion, got {len(columns[name])} rows for "
                f"{len(completions)} completions"
            )
    if len(prompts) != len(completions):
        raise ValueError(
            f"prompts must have one row per completion, got {len(prompts)} rows for "
            f"{len(completions)} completions"
        )


def _log_shares(scores: Sequence[Score], has_optimum: Sequence[bool], log_metric: Any) -> None:
    """Log the shares of parsed, valid and optimal answers with TRL's `log_metric`, if given."""
    if not callable(log_metric):
        return
    flags_by_name: dict[str, list[bool | None]] = {
        "parsed": [answer_score.parsed for answer_score in scores],
        "valid": [answer_score.valid for answer_score in scores],
        "optimal": [answer_score.optimal for answer_score in compress(scores, has_optimum)],
    }
    for name, flags in flags_by_name.items():
        if flags:
            log_metric(f"lake/{name}", sum(map(bool, flags)) / len(flags))


def completion_text(completion: Any) -> str:
    """Return the text of a completion.

    Args:
        completion: A string, or chat messages as mappings or objects. For messages, the text is
            the content of the last one by the assistant, or "" if its content is None.

    Raises:
        TypeError: The completion is neither a string nor messages, no message is by the assistant,
            or the content is neither a string nor a list of parts.
    """
    if isinstance(completion, str):
        return completion
    requirement = "completion must be a string or a list of messages"
    if not isinstance(completion, Sequence) or isinstance(completion, bytes):
        raise TypeError(f"{requirement}, got {type(completion).__name__}")
    for message in completion:
        if _get_field(message, "role") is None:
            kind = type(message).__name__
            raise TypeError(f"{requirement}, got a list with {kind} {message!r:.50}")
    roles = [_get_field(message, "role") for message in completion]
    if "assistant" not in roles:
        raise TypeError(f"completion must have a message by 'assistant', got messages by {roles}")
    answers = [
        message for message, role in zip(completion, roles, strict=True) if role == "assistant"
    ]
    content = _get_field(answers[-1], "content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise TypeError(
            f"content must be a string or a list of parts, got {type(content).__name__}"
        )
    for part in content:
        if _get_field(part, "type") is None:
            raise TypeError(f"content parts must have a field type, got {type(part).__name__}")
    return "".join(_get_field(part, "text") or "" for part in content)


def _get_field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)


def _get_opening_tag(prompt: Any) -> str:
    """Return the opening thinking tag at the end of a prompt (text or messages), or ""."""
    if isinstance(prompt, str):
        return opening_tag(prompt)
    last = prompt[-1] if isinstance(prompt, Sequence) and prompt else None
    content = _get_field(last, "content") if _get_field(last, "role") == "assistant" else None
    return opening_tag(content) if isinstance(content, str) else ""


def _is_missing(value: Any) -> bool:
    """Return whether a value of a column is None, NaN or `pandas.NA`."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, Real) and np.isnan(float(value))


def _validate_optimum(value: Any, row: int) -> int:
    """Return the minimal sum of costs, or -1 if it is unknown."""
    if isinstance(value, Solution):
        return int(value.sum_of_costs) if value.status == Status.OPTIMAL else -1
    if _is_missing(value):
        return -1
    try:
        is_whole = isinstance(value, Real) and float(value).is_integer()
        cost = int(value) if is_whole else index(value)
    except TypeError:
        cost = -1
    if not 0 <= cost <= np.iinfo(np.int16).max:
        raise ValueError(f"optima: row {row} must be a number of steps or None, got {value!r}")
    return cost


def _make_solutions(costs: np.ndarray, num_slots: int) -> Solution:
    """Return B solutions with the given minimal sums of costs, int16 (B,); -1 means unknown."""
    num_boards = len(costs)
    leaves: dict[str, Any] = {
        "status": np.where(costs < 0, Status.UNKNOWN, Status.OPTIMAL).astype(np.int8),
        "sum_of_costs": costs,
        "makespan": np.full(num_boards, -1, np.int16),
        "needs_wait": np.zeros(num_boards, bool),
        "plan": np.zeros((num_boards, 0, num_slots), np.int8),
        "makespan_plan": np.zeros((num_boards, 0, num_slots), np.int8),
        "expansions": np.zeros(num_boards, np.int32),
    }
    return Solution(**leaves)
