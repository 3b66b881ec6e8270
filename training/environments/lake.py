"""MAPF-FrozenLake as a training environment, with batched verification on the device."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from engineer import Configuration, Domain
from engineer.lake import LakeConfiguration, lake_domain
from engineer.lake.domain import SCORES
from jaxlake import Action, Failure
from jaxlake.generator.board_digests import DigestSet
from jaxlake.generator.mixture import hole_count
from jaxlake.language.judging import Verdict, judge_texts
from jaxlake.language.prompts import target
from jaxlake.language.rewards import RewardValues, Score, compute_scores, reward
from jaxlake.runtime.random_keys import threefry_key
from jaxlake.solver import Status
from jaxlake.user_code import import_function
from training.environments.protocol import JudgedTexts, Scores
from training.errors import UserError, shorten
from training.prompts import board_prompt
from training.rollout.instances import (
    BoardRequest,
    InstanceSet,
    StageBoards,
    draw_boards,
    fill_budget,
    make_requests,
)
from training.run.progress import console
from training.run.records import EpisodeRecord, LakeAnswer, six_digits
from training.run.seeds import seed_from_key
from training.schema import RunConfig
from training.schema.learning_sections import REWARD_FUNCTIONS

_LARGEST_REWARD = float(np.finfo(np.float32).max)
_SCORE_KEYS = tuple(label.key for label in SCORES)
_FAILURE_LABELS = np.array([kind.label if kind else None for kind in Failure], np.object_)


@dataclass(frozen=True)
class Lake:
    """The lake, as a `TrainingEnvironment`."""

    config: RunConfig

    @property
    def domain(self) -> Domain:
        """The engineer's description of the lake, within the run's bounds."""
        lake = self.config.lake
        return lake_domain(lake.bounds, lake.num_agents)

    def validation_set(self) -> InstanceSet:
        """Return boards of all settings; they depend on `validation` and the agents only."""
        key, grid = threefry_key(self.config.validation.seed), self.config.validation_grid
        return self._draw_settings("validation set", key, grid.per_cell, DigestSet())

    def warm_start_set(
        self, key: jax.Array, count: int, held_out: InstanceSet | None
    ) -> InstanceSet:
        """Return at least `count` solved boards, in the proportions of the validation set."""
        per_setting = -(-count // self.config.validation_grid.num_settings)
        seen_boards = DigestSet() if held_out is None else DigestSet(held_out.instances)
        return self._draw_settings("warm start", key, per_setting, seen_boards, substitute=True)

    def _draw_settings(
        self, name: str, key: jax.Array, count: int, digests: DigestSet, *, substitute: bool = False
    ) -> InstanceSet:
        """Return `count` boards per size, hole ratio and wait ratio; print how many are missing."""
        grid, lake = self.config.validation_grid, self.config.lake
        boards, reports = draw_boards(
            key,
            [
                BoardRequest(*setting, count, lake.num_agents)
                for setting in product(grid.sizes, grid.hole_ratios, grid.wait_ratios)
            ],
            max_size=max((*grid.sizes, *lake.bounds.sizes)),
            max_candidates=lake.max_candidates,
            seen_boards=digests,
            substitute=substitute,
        )
        for report in reports:
            if report.missing:
                console.print(f"{name}: {report}", style="yellow")
        return boards

    def stage_set(
        self, key: jax.Array, configuration: Configuration, count: int, held_out: InstanceSet
    ) -> StageBoards:
        """Return the boards of a stage; `fill_budget` replaces infeasible ones."""
        lake = self.config.lake
        lake_configuration = LakeConfiguration.model_validate(configuration.model_dump())
        distinct_boards, reports = draw_boards(
            key,
            make_requests(lake_configuration, count, num_agents=lake.num_agents),
            max_size=max(lake.bounds.sizes),
            max_candidates=lake.max_candidates,
            seen_boards=DigestSet(held_out.instances),
            substitute=True,
        )
        rng = np.random.default_rng(seed_from_key(key))
        rows = rng.permutation(fill_budget(distinct_boards, reports, rng))
        return StageBoards(distinct_boards.take(rows), distinct_boards, tuple(reports))

    def groups(self, boards: InstanceSet) -> np.ndarray:
        """Return each board's group, which is its size, int (B,)."""
        return np.asarray(boards.instances.size)

    def prompts(self, boards: InstanceSet) -> list[str]:
        """Return the boards' prompts in the format of the section `prompt`."""
        return [board_prompt(board, self.config.prompt) for board in boards]

    def demonstrations(self, boards: InstanceSet) -> list[str]:
        """Return the optimal plans in the format that the prompts request."""
        style = self.config.prompt.style
        return [target(plan, style=style) for plan in boards.solutions.plan]

    def judge(self, boards: InstanceSet, texts: Sequence[str]) -> JudgedTexts:
        """Parse the plans, and verify them in batches on the device."""
        max_steps, settings = self.config.prompt.max_steps, self.config.reward
        verdict = judge_texts(texts, boards.instances, boards.solutions, max_steps=max_steps)
        outcomes = verdict.outcomes
        reward_values = RewardValues(
            optimal=settings.optimal, valid=settings.valid, parsed=settings.parsed
        )
        if settings.function is None:
            rewards = np.asarray(reward(outcomes, reward_values))
        else:
            has_optimum = np.asarray(boards.solutions.status) == Status.OPTIMAL
            answer_scores = compute_scores(verdict, has_optimum, reward_values)
            rewards = _call_reward_function(settings.function, texts, boards, answer_scores)
        scores = Scores(
            rewards=rewards,
            valid=np.asarray(outcomes.valid),
            best=np.asarray(outcomes.optimal_sum_of_costs),
            parsed=np.asarray(outcomes.parsed),
            failures=_FAILURE_LABELS[np.asarray(outcomes.failure)],
        )
        return JudgedTexts(scores, verdict)

    def episodes(
        self, boards: InstanceSet, texts: Sequence[str], judgement: JudgedTexts
    ) -> tuple[EpisodeRecord, ...]:
        """Return one record per board with its answer and the verifier's result."""
        ratios = self.config.validation_grid.hole_ratios
        return tuple(
            _make_episode(boards, row, text, judgement, ratios) for row, text in enumerate(texts)
        )

    def digest_lines(self, boards: InstanceSet) -> Iterator[Any]:
        """Yield the symbols, the optimal costs and the need for waits of each board."""
        costs, makespans = boards.solutions.sum_of_costs, boards.solutions.makespan
        needs_wait = boards.solutions.needs_wait
        return (
            [boards.grid(row), int(costs[row]), int(makespans[row]), bool(needs_wait[row])]
            for row in range(len(boards))
        )


def _call_reward_function(
    name: str, texts: Sequence[str], boards: InstanceSet, scores: Sequence[Score]
) -> np.ndarray:
    """Return the rewards of a user's function, float32 (B,); invalid ones raise `UserError`."""
    function, rewards = import_function(name, REWARD_FUNCTIONS), []
    for text, board, score in zip(texts, boards, scores, strict=True):
        value = function(text, board, score)
        if not (isinstance(value, Real) and abs(float(value)) <= _LARGEST_REWARD):
            raise UserError(
                f"reward.function: {name} returned {shorten(value)} for the answer {text!r:.100}; "
                "it must be a finite number"
            )
        rewards.append(value)
    return np.array(rewards, np.float32)


@lru_cache
def _nearest_hole_ratio(ratios: tuple[float, ...], size: int, holes: int) -> str:
    """Return the ratio of `ratios` that gives the number of holes closest to `holes`."""
    counts = np.asarray(hole_count(size, jnp.array(ratios)))
    return f"{ratios[int(np.argmin(np.abs(counts - holes)))]:g}"


def _make_episode(
    boards: InstanceSet, row: int, text: str, judgement: JudgedTexts, hole_ratios: tuple[float, ...]
) -> EpisodeRecord:
    verdict: Verdict = judgement.checks
    answer, outcomes, scores = verdict.answers[row], verdict.outcomes, judgement.scores
    plan = None
    if answer.plan is not None:
        plan = tuple(tuple(Action(step).name for step in actions) for actions in answer.plan)
    size = int(boards.instances.size[row])
    holes = int(boards.instances.holes[row, :size, :size].sum())
    needs_wait = bool(boards.solutions.needs_wait[row])
    return EpisodeRecord(
        id=row,
        group=str(size),
        lines=tuple(boards.grid(row)),
        slices={
            "hole_ratio": _nearest_hole_ratio(hole_ratios, size, holes),
            "waits": "wait needed" if needs_wait else "no wait needed",
        },
        text=text,
        reward=six_digits(scores.rewards[row]),
        valid=bool(scores.valid[row]),
        scores={key: bool(getattr(outcomes, key)[row]) for key in _SCORE_KEYS},
        parsed=bool(scores.parsed[row]),
        failure=scores.failures[row],
        time=_nonnegative_or_none(outcomes.time[row]),
        reason=answer.reason,
        lake=LakeAnswer(
            needs_wait=needs_wait,
            optimum=int(boards.solutions.sum_of_costs[row]),
            plan=plan,
            arrived=float(outcomes.at_goal[row].sum() / boards.instances.agent_mask[row].sum()),
            agent=_nonnegative_or_none(outcomes.agent[row]),
            sum_of_costs=_nonnegative_or_none(outcomes.sum_of_costs[row]),
        ),
    )


def _nonnegative_or_none(value: Any) -> int | None:
    return None if value < 0 else int(value)
