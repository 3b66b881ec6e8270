"""Worker that takes the trainer's GRPO update, packing on the host included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from benchmarks.lake.protocol import ROOT, repeat, serve
from benchmarks.trainee.batches import ROLLOUT_SETS, read_update
from training.learner.grpo_step import make_grpo_optimizer, make_grpo_step
from training.learner.optimizer import initial_state
from training.phases import grpo_update
from training.policy.policy import load_run_policy
from training.run.active_run import ActiveRun
from training.schema import load


class OwnUpdate:
    """Takes updates one at a time and waits for each."""

    def prepare(self, folder: str) -> dict[str, Any]:
        """Read the model and the updates, and compile; return loss and gradient norm of each."""
        config = load(ROOT / "configs/scratch.yaml")
        policy, params = load_run_policy(Path(folder) / "model", config)
        self._run = ActiveRun(config, None, None, policy, None)  # type: ignore[arg-type]
        self._step = make_grpo_step(
            policy.graphdef, config.grpo, None, config.sampling.temperature, config.grpo_steps
        )
        state = initial_state(params, make_grpo_optimizer(config.grpo, config.grpo_steps))
        self._rollouts = {name: read_update(Path(folder), name).rollout() for name in ROLLOUT_SETS}
        self._states = {name: jax.tree.map(jax.numpy.copy, state) for name in ROLLOUT_SETS}
        return {name: self._update(name) for name in ROLLOUT_SETS}

    def measure(self, rollout_set: str, seconds: float) -> dict[str, Any]:
        """Take updates for `seconds`."""

        def call() -> float:
            self._update(rollout_set)
            return 1.0

        return repeat(call, seconds)

    def _update(self, rollout_set: str) -> dict[str, float]:
        params = self._states[rollout_set].params
        batch = grpo_update.make_rollout_batch(self._run, params, self._rollouts[rollout_set])
        (minibatch,) = grpo_update._split_minibatches(batch, self._run)
        self._states[rollout_set], metrics = self._step(self._states[rollout_set], minibatch)
        values = jax.device_get(metrics)
        jax.block_until_ready(self._states[rollout_set])
        return {name: float(values[name]) for name in ("loss", "grad_norm")}


if __name__ == "__main__":
    serve(OwnUpdate())
