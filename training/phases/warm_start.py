"""Warm start: imitate demonstrations and the rule's edits of compact contexts."""

import functools
import time
from collections import defaultdict
from typing import Any

import jax
import numpy as np
import optax

from jaxlake.runtime.random_keys import threefry_key
from training.environments.catalogue import get_environment
from training.environments.protocol import TrainingEnvironment
from training.learner.batching import Sequences, split_rows
from training.learner.gradient_program import jit_gradients
from training.learner.imitation import ExamplePool, answer_nll
from training.learner.optimizer import (
    LearnerState,
    Metrics,
    adamw,
    gradient_step,
    initial_state,
    learning_rate_schedule,
    require_finite,
)
from training.learner.placement import get_placement
from training.phases.rehearsal import EXAMPLES, make_design_examples
from training.policy.policy import Policy
from training.run.active_run import ActiveRun
from training.run.checkpoints import RunProgress
from training.run.progress import track
from training.run.records import TimingRecord, WarmStartMetrics, make_record, six_digits
from training.schema import RunConfig
from training.schema.environment_sections import UserEnvironmentConfig

ENGINEER_EVERY = 3
LOG_EVERY = 10
TOKENIZER_INSTANCES = 1024
TOKENIZER_DESIGNS = 1024


def warm_start(run: ActiveRun, params: Any) -> Any:
    """Run or resume the warm start from its newest checkpoint, and return the final weights."""
    settings = run.config.warm_start
    assert settings is not None
    instances = run.environment.warm_start_set(
        run.key("warm_start", 0), settings.instances, run.validation
    )
    examples = make_design_examples(run.config, EXAMPLES) if settings.engineer_batch_size else ()
    pool = ExamplePool(
        run.policy.encode_examples(_pair_demonstrations(run.environment, instances)),
        run.policy.encode_examples(examples),
        pad_id=run.policy.pad_id,
    )
    optimizer = adamw(
        learning_rate_schedule(
            settings.learning_rate,
            "cosine",
            warmup_steps=settings.warmup_steps,
            steps=settings.steps,
        ),
        weight_decay=0.01,
        max_grad_norm=1.0,
    )
    state = initial_state(params, optimizer)
    progress = run.checkpoints.progress()
    if progress is not None:
        state = run.checkpoints.restore(state)
    num_done = progress.step if progress is not None else 0
    run.directory.rewind(num_done)

    step = _compile_step(run.policy, optimizer)
    losses: dict[str, list[jax.Array]] = defaultdict(list)
    start_time = time.perf_counter()
    with track("warm start", settings.steps, start=num_done, unit="steps") as advance:
        for number in range(num_done + 1, settings.steps + 1):
            rng = np.random.default_rng(run.seed("warm_start", 1, number))
            if settings.engineer_batch_size and number % ENGINEER_EVERY == 0:
                name, batch = "engineer_loss", pool.draw(rng, settings.engineer_batch_size, 1.0)
            else:
                name, batch = "loss", pool.draw(rng, settings.batch_size, 0.0)
            state, metrics = step(state, batch.sequences)
            losses[name].append(metrics["loss"])
            if number % LOG_EVERY == 0:
                means = {
                    name: six_digits(np.mean([float(loss) for loss in recent_losses]))
                    for name, recent_losses in losses.items()
                }
                losses.clear()
                record = make_record(WarmStartMetrics, step=number, **means)
                run.directory.metrics.append(record)
                run.trackers.log_warm_start(record)
                seconds = {"warm_start": round(time.perf_counter() - start_time, 4)}
                run.directory.timings.append(
                    TimingRecord(phase="warm_start", stage=0, step=number, seconds=seconds)
                )
                start_time = time.perf_counter()
                advance(number, "  ".join(f"{name} {value:.3f}" for name, value in means.items()))
            if number % settings.checkpoint_every == 0 or number == settings.steps:
                scalars = jax.device_get({key: metrics[key] for key in ("loss", "grad_norm")})
                advice = "a smaller warm_start.learning_rate or model.dtype=float32"
                require_finite(f"step {number} of the warm start", scalars, advice=advice)
                run.directory.metrics.sync()  # log lines must be on disk before the checkpoint
                logs = run.directory.log_digests()
                progress = RunProgress("warm_start", 0, number, number, logs=logs)
                run.checkpoints.save(state, progress)
    return state.params


def texts_for_tokenizer(config: RunConfig) -> list[str]:
    """Return typical prompts, plans, contexts and configurations to train the tokenizer on."""
    environment = get_environment(config)
    count = TOKENIZER_INSTANCES
    if isinstance(config.environment, UserEnvironmentConfig) and config.warm_start is not None:
        count = min(count, config.warm_start.instances)  # users may have few instances
    instances = environment.warm_start_set(threefry_key(config.seed), count, None)
    examples: list[tuple[str, str]] = _pair_demonstrations(environment, instances)
    examples += make_design_examples(config, TOKENIZER_DESIGNS)
    return [text for example in examples for text in example]


def _pair_demonstrations(environment: TrainingEnvironment, instances: Any) -> list[tuple[str, str]]:
    """Return pairs of each instance's prompt and the answer to imitate."""
    demonstrations = environment.demonstrations(instances)
    return list(zip(environment.prompts(instances), demonstrations, strict=True))


def _compile_step(policy: Policy, optimizer: optax.GradientTransformation) -> Any:
    def loss(params: Any, batch: Sequences) -> tuple[jax.Array, Metrics]:
        """Return the summed negative log-likelihood of the target tokens, nats."""
        return answer_nll(params, batch, graphdef=policy.graphdef).sum(), {}

    @functools.partial(jit_gradients, donate_argnums=0)
    def step(state: LearnerState, batch: Sequences) -> tuple[LearnerState, Metrics]:
        weight = batch.is_target.sum().astype(np.float32)
        return gradient_step(
            state,
            split_rows(batch, 1),
            1,
            weight,
            loss=loss,
            optimizer=optimizer,
            placement=get_placement(policy.graphdef, state.params),
        )

    return step
