"""The warm start: a small policy learns the two languages it will need before it is rewarded.

It imitates the exact solver's plans, and the rule engineer's configurations for made-up evidence:
without the second, a policy of a million parameters could not do the engineer's job at all.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from engineer.rehearsal import rehearse
from training.config import RunConfig, WarmStart
from training.instances import InstanceSet, draw, grid_cells
from training.language.prompts import render, target
from training.learning import supervised
from training.learning.learner import LearnerState, Metrics, adamw, split, start, step
from training.learning.packing import Sequences, pack
from training.phases.context import Run
from training.policy import Policy
from training.run.checkpoints import Progress
from training.run.progress import console, track

LOG_EVERY = 10
REHEARSALS = 4096
LENGTH_STEP = 64  # batches are padded to multiples; each is one compilation


def optimizer(settings: WarmStart) -> Any:
    """AdamW with a cosine that ends with the warm start."""
    return adamw(
        settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        weight_decay=settings.weight_decay,
        max_grad_norm=1.0,
        decay_steps=settings.steps,
    )


def texts_for_tokenizer(config: RunConfig) -> list[str]:
    """Prompts, answers, contexts and configurations: all that the policy will read and write."""
    boards = _boards(config, jax.random.key(config.seed), 1024, ())
    pairs = [*_plans(config, boards), *_rehearsals(config, 512)]
    return [text for pair in pairs for text in pair]


def warm_start(run: Run, params: Any) -> Any:
    """Take the steps that the newest checkpoint has not taken, and return the weights after all."""
    settings = run.config.warm_start
    assert settings is not None
    boards = _boards(run.config, run.key("warm_start", 0), settings.instances, run.validation.grids)
    tx = optimizer(settings)
    state = start(params, tx)
    progress = run.checkpoints.progress()
    if progress is not None:
        state = run.checkpoints.restore(state)
    done = progress.step if progress is not None else 0
    run.directory.rewind(done)

    plans = _Pool(run.policy, _plans(run.config, boards))
    engineering = _Pool(
        run.policy, _rehearsals(run.config, REHEARSALS) if settings.engineer_batch_size else ()
    )
    update = _compile(run.policy, tx)
    recent: dict[str, list[Metrics]] = {"loss": [], "engineer_loss": []}
    began = time.perf_counter()
    with track("warm start", settings.steps, start=done) as advance:
        for number in range(done + 1, settings.steps + 1):
            rng = np.random.default_rng(run.entropy("warm_start", 1, number))
            if settings.engineer_batch_size and number % settings.engineer_every == 0:
                name, batch = "engineer_loss", engineering.draw(rng, settings.engineer_batch_size)
            else:
                name, batch = "loss", plans.draw(rng, settings.batch_size)
            state, metrics = update(state, batch)
            recent[name].append(metrics)
            if number % LOG_EVERY == 0:
                means = {
                    name: float(f"{np.mean([float(one['loss']) for one in losses]):.6g}")
                    for name, losses in recent.items()
                    if losses
                }
                recent = {name: [] for name in recent}
                run.directory.metrics.append({"phase": "warm_start", "step": number, **means})
                run.directory.timings.append(
                    {
                        "phase": "warm_start",
                        "stage": 0,
                        "step": number,
                        "seconds": {"warm_start": round(time.perf_counter() - began, 4)},
                    }
                )
                began = time.perf_counter()
                advance(number, "  ".join(f"{name} {value:.3f}" for name, value in means.items()))
            if number % settings.checkpoint_every == 0 or number == settings.steps:
                _save(run, state, number)
    return state.params


def _boards(
    config: RunConfig, key: jax.Array, count: int, exclude: Sequence[tuple[str, ...]]
) -> InstanceSet:
    """Solved boards to imitate: the validation set's mixture of cells, none of its boards."""
    wanted = config.validation
    kinds = len(wanted.sizes) * len(wanted.hole_ratios) * len(wanted.wait_ratios)
    boards, fills = draw(
        key,
        grid_cells(
            wanted.sizes,
            wanted.hole_ratios,
            wanted.wait_ratios,
            -(-count // kinds),
            num_agents=config.environment.num_agents,
        ),
        max_size=max((*wanted.sizes, *config.environment.bounds.sizes)),
        max_candidates=config.environment.max_candidates,
        exclude=exclude,
        substitute=True,
    )
    for fill in fills:
        if not fill.complete:
            console.print(f"warm start: {fill}", style="yellow")
    return boards


def _plans(config: RunConfig, boards: InstanceSet) -> list[tuple[str, str]]:
    return [
        (render(grid, config.prompt.style), target(plan))
        for grid, plan in zip(boards.grids, boards.solutions.plan, strict=True)
    ]


def _rehearsals(config: RunConfig, count: int) -> Sequence[tuple[str, str]]:
    rng = np.random.default_rng(config.seed)
    return [
        rehearse(
            rng,
            config.domain,
            blocks=config.engineer.blocks,
            style=config.engineer.style,
            max_history=config.stages.rounds - 1,
        )
        for _ in range(count)
    ]


class _Pool:
    """Examples in groups of about equal length, so that a batch holds little padding."""

    def __init__(self, policy: Policy, examples: Sequence[tuple[str, str]]) -> None:
        self._pad_id = policy.pad_id
        self._examples = [
            (policy.encode_prompt(prompt), policy.encode_answer(answer))
            for prompt, answer in examples
        ]
        self._groups: dict[int, list[int]] = {}
        for row, (prompt, answer) in enumerate(self._examples):
            length = -(-(len(prompt) + len(answer)) // LENGTH_STEP) * LENGTH_STEP
            self._groups.setdefault(length, []).append(row)

    def draw(self, rng: np.random.Generator, count: int) -> Sequences:
        """A batch from one group; each example is as likely as any other."""
        lengths = sorted(self._groups)
        shares = np.array([len(self._groups[length]) for length in lengths]) / len(self._examples)
        length = lengths[rng.choice(len(lengths), p=shares)]
        rows = rng.choice(self._groups[length], size=count)
        prompts, answers = zip(*(self._examples[row] for row in rows), strict=True)
        return pack(prompts, answers, bucket=1, pad_id=self._pad_id, length=length)


def _compile(policy: Policy, tx: Any) -> Any:
    loss = functools.partial(supervised.summed_loss, graphdef=policy.graphdef)

    @functools.partial(jax.jit, donate_argnums=0)
    def update(state: LearnerState, batch: Sequences) -> tuple[LearnerState, Metrics]:
        weight = batch.targets.sum().astype(np.float32)
        return step(state, split(batch, 1), 1, weight, loss=loss, optimizer=tx)

    return update


def _save(run: Run, state: LearnerState, number: int) -> None:
    run.checkpoints.save(
        state,
        Progress("warm_start", stage=0, update=number, step=number, seed=run.config.seed),
    )
