"""The loop: imitate plans and designs until held-out ones are mastered.

A pretraining that is killed goes on with the same command, and ends as if it had not been.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxlake.language.judging import judge_texts
from training.learner.batching import split_rows
from training.learner.finite import require_finite
from training.learner.imitation import LENGTH_STEP, Batch, ExamplePool, answer_nats
from training.learner.optimizer import LearnerState, Metrics, gradient_step, initial_state, muon
from training.learner.placement import placement_of
from training.memory import full_memory_told, require_memory
from training.policy.architectures import DecoderConfig
from training.policy.policy import Policy, make_policy, open_policy
from training.pretraining.boards import CellBoards, draw_held_out, draw_plans
from training.pretraining.card import shortfalls, write_card
from training.pretraining.designs import draw_examples, draw_swaps
from training.pretraining.files import Evaluation, PretrainDirectory, StepMetrics
from training.pretraining.schema import Designs, Goal, Optimization, PretrainConfig
from training.pretraining.scores import ReadingTest
from training.run.checkpoints import Checkpoints, RunProgress
from training.run.lock import hold
from training.run.progress import console, track, working
from training.run.records import six_digits
from training.run.seeds import seed_for
from training.sampling.engines import start_sampler
from training.sampling.sampler import Sampler
from training.schema import Model, Prompt

LOG_EVERY = 50
MAX_STEPS = 32
"""The longest plan of an agent, steps."""
TOKENIZER_PLANS = 2048
TOKENIZER_DESIGNS = 4096


@dataclass
class _Pretraining:
    """What does not change from step to step."""

    config: PretrainConfig
    directory: PretrainDirectory
    policy: Policy
    pool: ExamplePool
    held_out: CellBoards
    reading: ReadingTest
    sampler: Sampler | None = None

    def seed(self, *place: int) -> int:
        return seed_for(self.config.seed, "pretrain", *place)


def pretrain(config: PretrainConfig, path: Path, *, stop_after: int | None = None) -> Path | None:
    """Make the base model in the directory `path`, or go on where it was; return its folder.

    With `stop_after` it stops after this step, as if killed there, and returns None.
    """
    require_memory("scratch", DecoderConfig(**config.scratch.model_dump()))
    directory = PretrainDirectory(path)
    known = directory.claim(config)
    if directory.model.exists():
        console.print(f"{directory.model} is the finished model; remove {path} to start anew.")
        return directory.model
    console.print(f"{'Going on with' if known else 'Starting'} {config.name} in {path}.")
    less = "a smaller scratch or optimization.batch_size takes less, in a directory of its own"
    with hold(path), full_memory_told(less):
        return _pretrain(config, directory, stop_after)


def _pretrain(
    config: PretrainConfig, directory: PretrainDirectory, stop_after: int | None
) -> Path | None:
    """Do what is missing of the pretraining; the folder of the model, or None as in `pretrain`."""
    run, params = _prepare(config, directory)
    with closing(Checkpoints(directory.checkpoints)) as checkpoints:
        ended = _take_steps(run, checkpoints, params, stop_after)
    if ended is None:
        if run.sampler is not None:
            run.sampler.close()
        return None
    state, done = ended
    return _finish(run, state.params, done)


def _take_steps(
    run: _Pretraining, checkpoints: Checkpoints, params: Any, stop_after: int | None
) -> tuple[LearnerState, int] | None:
    """Go on from the newest checkpoint; return the state at the end and the steps done then.

    None: it stopped after the step `stop_after`, before the end.
    """
    config, directory, settings = run.config, run.directory, run.config.optimization
    progress = checkpoints.progress()
    done = progress.step if progress else 0
    directory.rewind(done)
    state = initial_state(params, _optimizer(settings))
    if progress:
        state = checkpoints.restore(state)

    step = _compiled_step(run.policy, settings)
    recent: list[Any] = []
    mastered = any(_meets(one, config.goal) for one in directory.evaluations.read())
    with track("pretraining", settings.most_steps, start=done, unit="steps") as advance:
        while done < settings.most_steps and not mastered:
            if done == stop_after:
                return None
            done += 1
            rng = np.random.default_rng(run.seed(10, done))
            share = _design_share(config.designs, settings, done)
            batch = run.pool.draw(rng, settings.batch_size, share)
            state, metrics = step(state, batch)
            recent.append(metrics)
            last = done == settings.most_steps
            saves = last or done % settings.checkpoint_every == 0
            if saves or done % LOG_EVERY == 0:  # so that a resumed one writes the same lines
                line = _metrics(done, recent, _schedule(settings))
                recent.clear()
                directory.metrics.append(line)
                advance(done, f"plans {line.plan_loss:.3f}  designs {line.design_loss:.3f} nats")
            if done % settings.evaluate_every == 0 or last:
                evaluation = _evaluate(run, state.params, done, last=last)
                directory.evaluations.append(evaluation)
                mastered = _meets(evaluation, config.goal)
            if saves or mastered:
                latest = jax.device_get({key: metrics[key] for key in ("loss", "grad_norm")})
                advice = "a smaller optimization.learning_rate"
                require_finite(f"step {done}", latest, help=advice)
                checkpoints.save(state, RunProgress("pretrain", 0, done, done))
    return state, done


def _prepare(config: PretrainConfig, directory: PretrainDirectory) -> tuple[_Pretraining, Any]:
    """Draw what is imitated and what is held out, and make the model with random weights."""
    with working("drawing boards and contexts"):
        held_out = draw_held_out(config, config.goal.boards_per_cell)
        if not directory.plans.exists():
            directory.plans.write(draw_plans(config, held_out))
        plans = directory.plans.read()
        rng = np.random.default_rng(seed_for(config.seed, "pretrain", 2))
        designs = draw_examples(rng, config.designs)
        swaps = draw_swaps(
            np.random.default_rng(seed_for(config.seed, "pretrain", 3)),
            config.designs,
            config.goal.contexts,
        )
    console.print(f"{len(plans)} plans, {len(designs)} contexts, {len(held_out.boards)} held out.")
    model = Model(scratch=config.scratch)
    if not directory.initial.exists():
        texts = [*_spread(plans, TOKENIZER_PLANS), *_spread(designs, TOKENIZER_DESIGNS)]
        length = config.sampling.max_model_len
        joined = [text for example in texts for text in example]
        make_policy(directory.initial, model, joined, max_len=length, seed=config.seed)
    prompt = Prompt(max_tokens=config.max_tokens, max_steps=MAX_STEPS)
    policy, params = open_policy(directory.initial, model, prompt, length_bucket=LENGTH_STEP)
    with working("encoding"):
        pool = ExamplePool(
            policy.encode_examples(plans),
            policy.encode_examples(designs),
            pad_id=policy.pad_id,
        )
    reading = ReadingTest(policy, swaps)
    return _Pretraining(config, directory, policy, pool, held_out, reading), params


def _spread(examples: Sequence[Any], count: int) -> list[Any]:
    rows = np.linspace(0, len(examples) - 1, min(count, len(examples))).astype(int)
    return [examples[row] for row in rows]


def _meets(evaluation: Evaluation, goal: Goal) -> bool:
    return evaluation.valid is not None and not shortfalls(evaluation, goal)


def _design_share(designs: Designs, settings: Optimization, step: int) -> float:
    if step > settings.most_steps - settings.decay_steps:
        return designs.last_share
    return designs.first_share if step <= designs.first_steps else designs.share


def _schedule(settings: Optimization) -> optax.Schedule:
    """Rise linearly, stay, and fall linearly to 0 over the last steps."""

    def rate(count: Any) -> Any:
        risen = jnp.minimum((count + 1) / settings.warmup_steps, 1.0)
        left = (settings.most_steps - count) / settings.decay_steps
        return settings.learning_rate * risen * jnp.clip(left, 0.0, 1.0)

    return rate


def _optimizer(settings: Optimization) -> optax.GradientTransformation:
    return muon(
        _schedule(settings),
        weight_decay=settings.weight_decay,
        max_grad_norm=1.0,
    )


@functools.cache
def _compiled_step(policy: Policy, settings: Optimization) -> Any:
    optimizer = _optimizer(settings)

    def loss(params: Any, batch: Batch) -> tuple[jax.Array, Metrics]:
        """Sum the negative log-likelihood of the answers' tokens, nats, also by kind."""
        tokens = batch.sequences
        nats = answer_nats(params, tokens, graphdef=policy.graphdef)
        counts = jnp.sum(tokens.targets, axis=1).astype(jnp.float32)
        designs = batch.designs.astype(jnp.float32)
        return jnp.sum(nats), {
            "plan_nats": jnp.sum(nats * (1.0 - designs)),
            "plan_tokens": jnp.sum(counts * (1.0 - designs)),
            "design_nats": jnp.sum(nats * designs),
            "design_tokens": jnp.sum(counts * designs),
        }

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: LearnerState, batch: Batch) -> tuple[LearnerState, Metrics]:
        weight = batch.sequences.targets.sum().astype(np.float32)
        return gradient_step(
            state,
            split_rows(batch, 1),
            1,
            weight,
            loss=loss,
            optimizer=optimizer,
            placement=placement_of(policy.graphdef, state.params),
        )

    return step


def _metrics(step: int, recent: Sequence[Any], schedule: optax.Schedule) -> StepMetrics:
    total = {name: sum(float(one[name]) for one in recent) for name in recent[0]}
    return StepMetrics(
        step=step,
        plan_loss=six_digits(total["plan_nats"] / max(total["plan_tokens"], 1e-9)),
        design_loss=six_digits(total["design_nats"] / max(total["design_tokens"], 1e-9)),
        learning_rate=six_digits(schedule(step - 1)),
    )


def _evaluate(run: _Pretraining, params: Any, step: int, *, last: bool) -> Evaluation:
    scores = run.reading.scores(params)
    asked = last or step % run.config.goal.validate_every == 0
    valid = _valid_rates(run, params, step) if asked else None
    flips = {fact: six_digits(share) for fact, share in scores.flips.items()}
    worst = min(flips, key=lambda fact: flips[fact])
    said = f"edits right {scores.edits_right:.1%}, flips from {flips[worst]:.1%} ({worst})"
    if valid:
        low, high = min(valid, key=valid.__getitem__), max(valid, key=valid.__getitem__)
        said += f", valid {valid[low]:.0%} ({low}) to {valid[high]:.0%} ({high})"
    console.print(f"step {step}: {said}", soft_wrap=True)
    return Evaluation(
        step=step,
        edits_right=six_digits(scores.edits_right),
        flips=flips,
        turned=scores.turned,
        valid=valid,
    )


def _valid_rates(run: _Pretraining, params: Any, step: int) -> dict[str, float]:
    """Let vLLM answer the held-out boards at temperature 1; the valid rate by cell."""
    if run.sampler is None:
        settings, folder = run.config.sampling, run.directory.engine
        run.sampler = start_sampler(run.policy, params, settings, folder, seed=run.config.seed)
    run.sampler.sync(run.policy.tensors(params))
    groups = run.sampler.sample(
        [run.policy.encode_board(board) for board in run.held_out.boards],
        n=1,
        temperature=1.0,
        max_tokens=run.config.max_tokens,
        stop_token_ids=run.policy.stop_ids,
        seed=run.seed(11, step),
    )
    texts = [run.policy.decode(completion.token_ids) for (completion,) in groups]
    boards, max_steps = run.held_out.boards, run.policy.prompt.max_steps
    verdict = judge_texts(texts, boards.instances, boards.solutions, max_steps=max_steps)
    valid = verdict.outcomes.valid
    return {
        name: six_digits(valid[list(rows)].mean())
        for name, rows in zip(run.held_out.names, run.held_out.rows, strict=True)
    }


def _finish(run: _Pretraining, params: Any, step: int) -> Path:
    """Write the model in bfloat16, with a card that says how good it is after rounding."""
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    evaluation = _evaluate(
        run, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), rounded), step, last=True
    )
    if run.sampler is not None:
        run.sampler.close()
    run.policy.export(rounded, run.directory.engine)
    write_card(run.directory.engine, run.config, evaluation)
    if missed := shortfalls(evaluation, run.config.goal):
        console.print(f"It falls short of its goal: {', '.join(missed)}.", soft_wrap=True)
    run.directory.write_records(run.directory.engine)
    run.directory.engine.rename(run.directory.model)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(nnx.to_pure_dict(rounded)))
    console.print(f"{run.directory.model}: {parameters:,} parameters after {step} steps.")
    return run.directory.model
