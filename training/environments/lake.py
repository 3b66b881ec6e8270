"""MAPF-FrozenLake as the loop asks it: boards are arrays, and plans are verified on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from engineer import Configuration, Domain
from engineer.lake import LakeConfiguration, lake_evidence
from jaxlake import Action, Failure, Statistics, statistics_rows, tabulate
from jaxlake.generator.board_digests import DigestSet
from jaxlake.language.answers import Answer
from jaxlake.language.prompts import render, target
from jaxlake.language.rewards import reward
from jaxlake.runtime.random_keys import threefry_key
from training.environments.protocol import Judged, Scores, VerifiedAnswers
from training.rollout.instances import (
    InstanceSet,
    StageBoards,
    draw_validation_cells,
    fill_stage,
)
from training.rollout.judging import judge_boards
from training.run.progress import console
from training.run.records import EpisodeRecord, Rates, ValidationRecord
from training.run.seeds import seed_of
from training.schema import RunConfig

_tabulate = jax.jit(tabulate)

_LABELS = np.array([kind.label if kind else None for kind in Failure], np.object_)


@dataclass(frozen=True)
class Lake:
    """The lake behind the protocol `TrainingEnvironment`."""

    config: RunConfig
    rates_by: str = "by_size"

    @property
    def domain(self) -> Domain:
        """The lake within the run's bounds."""
        return self.config.domain

    def validation_set(self) -> InstanceSet:
        """Draw the boards of every cell; they depend on `validation` and the number of agents."""
        key = threefry_key(self.config.validation.seed)
        boards, outcomes = draw_validation_cells(key, self.config, self.config.cells.per_cell)
        for outcome in outcomes:
            if outcome.missing:
                console.print(f"validation set: {outcome}", style="yellow")
        return boards

    def warm_start_set(
        self, key: jax.Array, count: int, held_out: InstanceSet | None
    ) -> InstanceSet:
        """Draw at least `count` solved boards, in the proportions of the validation set."""
        per_cell = -(-count // self.config.cells.cells)
        seen = DigestSet() if held_out is None else DigestSet(held_out.instances)
        boards, outcomes = draw_validation_cells(
            key, self.config, per_cell, seen=seen, substitute=True
        )
        for outcome in outcomes:
            if outcome.missing:
                console.print(f"warm start: {outcome}", style="yellow")
        return boards

    def stage_set(
        self, key: jax.Array, configuration: Configuration, count: int, held_out: InstanceSet
    ) -> StageBoards:
        """Draw the boards of a stage; see `fill_stage`."""
        lake = LakeConfiguration.model_validate(configuration.model_dump())
        rng = np.random.default_rng(seed_of(key))
        return fill_stage(self.config, key, rng, lake, count, DigestSet(held_out.instances))

    def groups(self, instances: InstanceSet) -> np.ndarray:
        """Return the map sizes, int (B,)."""
        return np.asarray(instances.instances.size)

    def prompts(self, instances: InstanceSet) -> list[str]:
        """Write the boards in the style of `prompt.style`."""
        return [render(board, self.config.prompt.style) for board in instances]

    def demonstrations(self, instances: InstanceSet) -> list[str]:
        """Write the optimal plans."""
        return [target(plan) for plan in instances.solutions.plan]

    def judge(self, instances: InstanceSet, texts: Sequence[str]) -> Judged:
        """Read the plans and verify them in batches on the device."""
        verdict = judge_boards(instances, texts, self.config.prompt)
        outcomes = verdict.outcomes
        scores = Scores(
            rewards=np.asarray(reward(outcomes, self.config.reward)),
            valid=np.asarray(outcomes.valid),
            best=np.asarray(outcomes.optimal_sum_of_costs),
            parsed=np.asarray(outcomes.parsed),
            failures=_LABELS[np.asarray(outcomes.failure)],
        )
        return Judged(verdict.answers, outcomes, scores)

    def describe(
        self, stage: int, instances: InstanceSet, texts: Sequence[str], judged: Judged
    ) -> VerifiedAnswers:
        """Tabulate the outcomes on the device, and write each answer down."""
        boards, outcomes, solutions = jax.tree.map(
            jnp.asarray, (instances.instances, judged.outcomes, instances.solutions)
        )
        table: Statistics = jax.device_get(
            _tabulate(boards, solutions.needs_wait, outcomes, solutions=solutions)
        )
        return VerifiedAnswers(
            episodes=tuple(
                _episode(instances, row, text, judged) for row, text in enumerate(texts)
            ),
            evidence=lake_evidence(stage, table),
            rates=ValidationRecord(
                stage=stage,
                rows=tuple(_rates(row) for row in statistics_rows(table, by=("size",))),
                total=_rates(statistics_rows(table, by=())[0]),
            ),
        )

    def digest_lines(self, instances: InstanceSet) -> Iterator[Any]:
        """Yield symbols, optimal costs and whether it needs a wait, for each board.

        Neither the padding nor the choice among several optimal plans is part of it.
        """
        costs, makespans = instances.solutions.sum_of_costs, instances.solutions.makespan
        waits = instances.solutions.needs_wait
        return (
            [instances.grid(row), int(costs[row]), int(makespans[row]), bool(waits[row])]
            for row in range(len(instances))
        )


def _episode(boards: InstanceSet, row: int, text: str, judged: Judged) -> EpisodeRecord:
    outcomes = judged.outcomes
    answer: Answer = judged.answers[row]
    plan = None
    if answer.plan is not None:
        plan = tuple(tuple(Action(one).name for one in actions) for actions in answer.plan)
    return EpisodeRecord(
        id=row,
        size=int(boards.instances.size[row]),
        grid=tuple(boards.grid(row)),
        needs_wait=bool(boards.solutions.needs_wait[row]),
        optimum=int(boards.solutions.sum_of_costs[row]),
        text=text,
        plan=plan,
        valid=bool(outcomes.valid[row]),
        optimal_sum_of_costs=bool(outcomes.optimal_sum_of_costs[row]),
        optimal_makespan=bool(outcomes.optimal_makespan[row]),
        failure=None if outcomes.valid[row] else Failure(int(outcomes.failure[row])).label,
        agent=_known(outcomes.agent[row]),
        time=_known(outcomes.time[row]),
        sum_of_costs=_known(outcomes.sum_of_costs[row]),
        reason=answer.reason,
    )


def _known(value: Any) -> int | None:
    return None if value < 0 else int(value)


def _rates(row: dict[str, Any]) -> Rates:
    row["count"] = row.pop("total")
    failures = {kind.label: row.pop(kind.label) for kind in Failure if kind is not Failure.NONE}
    return Rates(**row, failures=failures)
