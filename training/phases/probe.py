"""Probe: try a configuration out from the weights in force, for the oracle engineer."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from engineer.engineers.oracle import ProbeResult
from engineer.lake import LakeConfiguration
from engineer.space import Configuration
from jaxlake.generator.board_digests import DigestSet
from training.learner.optimizer import LearnerState
from training.phases.grpo_update import take_update
from training.phases.validate import answer
from training.rollout.instances import (
    InstanceSet,
    draw_training_boards,
    draw_validation_cells,
    fill_budget,
)
from training.rollout.rollout import question_of
from training.run.active_run import ActiveRun
from training.run.records import ProbeRecord
from training.sampling.sampler import Sampler
from training.schema import RunConfig
from training.schema.environment_sections import OtherValidation


def rollouts_per_probe(config: RunConfig) -> int:
    """Return the most answers that one branch draws, for training and for its score.

    Only the lake has such branches: 0 for other environments.
    """
    if isinstance(config.validation, OtherValidation):
        return 0
    branch = config.engineer.oracle
    trained = branch.updates * config.grpo.prompts_per_update * config.grpo.completions
    trained *= 1 + config.grpo.resamples
    return trained + config.validation.cells * branch.per_cell


@dataclass
class Prober:
    """Makes a branch for each configuration: a few GRPO updates, then answers to fresh boards.

    All branches start from the same weights and optimizer, draw with the same keys and answer the
    same boards. These are of the validation set's cells, but none of them is a validation board.
    Once a branch is scored, the engine has the weights again that it had before; a branch works on
    a copy of the learner, which stays as it is.
    """

    run: ActiveRun
    sampler: Sampler  # holds the weights of `state`
    state: LearnerState  # that the next stage will start with
    stage: int  # has just ended
    records: list[ProbeRecord] = field(default_factory=list, init=False)

    def __call__(self, configuration: Configuration) -> ProbeResult:
        """Train a copy, score it, and add the result to `probes.jsonl`."""
        run, settings = self.run, self.run.config.grpo
        lake = LakeConfiguration.model_validate(configuration.model_dump())
        boards = self._training_boards(lake)
        state = jax.tree.map(jnp.copy, self.state)
        self.sampler.sync(run.policy.tensors(state.params))
        trained, count = len(boards), settings.prompts_per_update
        try:
            for number in range(len(boards) // count):
                chosen = boards.part(number, count)
                seed = run.seed("probe", self.stage, 2, number)
                spare = boards.without(range(number * count, (number + 1) * count))
                state, metrics = take_update(
                    run,
                    state,
                    self.sampler,
                    chosen,
                    question_of(run, chosen, seed=seed),
                    step=run.optimizer_step(self.stage + 1, number + 1),
                    seconds={},
                    spare=spare,
                )
                trained += metrics.get("resampled_boards", 0)
            title = f"stage {self.stage}: probe {len(self.records) + 1}"
            texts = answer(run.config, run.policy, self.sampler, self._scored_on, title=title)
        finally:
            self.sampler.sync(run.policy.tensors(self.state.params))
        record = ProbeRecord(
            probe=len(self.records),
            configuration=lake,
            valid=int(run.environment.judge(self._scored_on, texts).scores.valid.sum()),
            count=len(texts),
            instances=trained,
            rollouts=trained * settings.completions + len(texts),
        )
        self.records.append(record)
        run.directory.stage(self.stage).probes.write(self.records)
        score = record.valid / record.count
        return ProbeResult(score=score, instances=record.instances, rollouts=record.rollouts)

    def _training_boards(self, configuration: LakeConfiguration) -> InstanceSet:
        """Draw boards of the configuration for all updates of a branch, in the order of training.

        Where not all of them can be made, some come again, as in a stage.
        """
        config = self.run.config
        count = config.engineer.oracle.updates * config.grpo.prompts_per_update
        seen = DigestSet(self.run.validation.instances, self._scored_on.instances)
        key = self.run.key("probe", self.stage, 0)
        boards, outcomes = draw_training_boards(key, config, configuration, count, seen=seen)
        rng = np.random.default_rng(self.run.seed("probe", self.stage, 0))
        rows = fill_budget(boards, outcomes, rng)
        order = jax.random.permutation(jax.random.fold_in(key, 1), len(rows))
        return boards.take(rows[jax.device_get(order)])

    @cached_property
    def _scored_on(self) -> InstanceSet:
        """The boards that every branch answers."""
        key, config = self.run.key("probe", self.stage, 1), self.run.config
        seen = DigestSet(self.run.validation.instances)
        return draw_validation_cells(key, config, config.engineer.oracle.per_cell, seen=seen)[0]
