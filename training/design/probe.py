"""Probe: try a configuration out from the present weights, for the oracle engineer."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from engineer import LakeConfiguration
from engineer.engineers.oracle import ProbeResult
from engineer.space import Configuration
from training.instances import InstanceSet, cells_of, draw, grid_cells
from training.judge import judge
from training.learning.learner import LearnerState
from training.phases.boards import rows_of_the_budget
from training.phases.context import Run
from training.phases.train import take_update
from training.phases.validate import answer
from training.run.directory import write_json_lines
from training.run.records import PROBES
from training.sampling.vllm_sampler import VllmSampler


class Prober:
    """A branch for each configuration: a few GRPO updates on it, then answers to fresh boards.

    All branches start from the same weights and optimizer, draw with the same keys and answer the
    same boards, which are of the validation set's cells but none of them a validation board. Once a
    branch is scored vLLM has the weights again that it had before; the learner is not touched,
    since a branch works on a copy of it.

    Args:
      run: the run, whose `engineer.oracle` says how long a branch is.
      sampler: holds the weights of `state`.
      state: the learner that the next stage will start with.
      stage: the stage that has just ended.
    """

    def __init__(self, run: Run, sampler: VllmSampler, state: LearnerState, stage: int) -> None:
        self._run = run
        self._sampler = sampler
        self._state = state
        self._stage = stage
        self._records: list[dict[str, Any]] = []

    def __call__(self, configuration: Configuration) -> ProbeResult:
        """Train a copy, score it, and write what came of it to `probes.jsonl`.

        Raises:
          SyncError: after an update vLLM's log-probabilities are not the trainer's.
        """
        run, settings = self._run, self._run.config.grpo
        probe = len(self._records)
        lake = LakeConfiguration.model_validate(configuration.model_dump())
        boards = self._training_boards(lake)
        state = jax.tree.map(jnp.copy, self._state)
        self._sampler.sync(run.policy.tensors(state.params))
        try:
            for number in range(len(boards) // settings.prompts_per_update):
                first = number * settings.prompts_per_update
                chosen = boards.take(range(first, first + settings.prompts_per_update))
                seed = run.entropy("probe", self._stage, 2, number)
                state = take_update(run, state, self._sampler, chosen, seed=seed, seconds={}).state
            title = f"round {self._stage}: probe {probe + 1}"
            texts = answer(run.config, run.policy, self._sampler, self._questions, title=title)
        finally:
            self._sampler.sync(run.policy.tensors(self._state.params))
        valid = int(judge(self._questions, texts, run.config.prompt).outcomes.valid.sum())
        result = ProbeResult(
            score=valid / len(texts),
            instances=len(boards),
            rollouts=len(boards) * settings.completions + len(texts),
        )
        self._records.append(
            {
                "probe": probe,
                "configuration": lake.model_dump(mode="json"),
                "valid": valid,
                "count": len(texts),
                **result.model_dump(mode="json", exclude={"score"}),
            }
        )
        write_json_lines(run.directory.stage(self._stage) / PROBES, self._records)
        return result

    def _training_boards(self, configuration: LakeConfiguration) -> InstanceSet:
        """Boards of the configuration for all updates of a branch, in the order of training.

        Where they can't all be made some come again, as in a round.
        """
        config = self._run.config
        count = config.engineer.oracle.updates * config.grpo.prompts_per_update
        boards, fills = draw(
            self._run.key("probe", self._stage, 0),
            cells_of(configuration, count, num_agents=config.environment.num_agents),
            max_size=max(config.environment.bounds.sizes),
            max_candidates=config.environment.max_candidates,
            exclude=(*self._run.validation.grids, *self._questions.grids),
            substitute=True,
        )
        rng = np.random.default_rng(self._run.entropy("probe", self._stage, 0))
        rows = rows_of_the_budget(boards, fills, rng)
        order = jax.random.permutation(self._run.key("probe", self._stage, 0, 1), len(rows))
        return boards.take(rows[jax.device_get(order)])

    @property
    def rollouts(self) -> int:
        """The most answers that one branch draws, in training and to be scored."""
        config = self._run.config
        branch, wanted = config.engineer.oracle, config.validation
        cells = len(wanted.sizes) * len(wanted.hole_ratios) * len(wanted.wait_ratios)
        trained = branch.updates * config.grpo.prompts_per_update * config.grpo.completions
        return trained + cells * branch.per_cell

    @cached_property
    def _questions(self) -> InstanceSet:
        """What every branch is scored on."""
        wanted = self._run.config.validation
        boards, _ = draw(
            self._run.key("probe", self._stage, 1),
            grid_cells(
                wanted.sizes,
                wanted.hole_ratios,
                wanted.wait_ratios,
                self._run.config.engineer.oracle.per_cell,
                num_agents=self._run.config.environment.num_agents,
            ),
            max_size=max((*wanted.sizes, *self._run.config.environment.bounds.sizes)),
            max_candidates=self._run.config.environment.max_candidates,
            exclude=self._run.validation.grids,
        )
        return boards
