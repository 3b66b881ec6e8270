"""The training loop: imitate plans and designs until the goals on held-out ones are met.

The same command resumes a killed training and produces the same model.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import contrib

from examples.base_model.boards import HeldOut, draw_held_out, draw_plans
from examples.base_model.designs import draw_examples, draw_swaps
from examples.base_model.recipe import Designs, Goal, Optimization, Recipe
from examples.base_model.scores import EvidenceTest
from jaxlake.language.judging import judge_texts
from training.errors import UserError
from training.learner.batching import split_rows
from training.learner.imitation import LENGTH_STEP, Batch, ExamplePool, answer_nll
from training.learner.optimizer import LearnerState, Metrics, gradient_step, initial_state
from training.learner.placement import get_placement
from training.policy.policy import Policy, load_policy, write_random_policy
from training.run.checkpoints import Checkpoints, RunProgress
from training.run.progress import console, show_status, track
from training.run.records import six_digits
from training.run.seeds import derive_seed
from training.sampling.engines import start_sampler
from training.sampling.sampler import Sampler, SamplingRequest
from training.schema import ModelConfig, PromptConfig, dump

LOG_EVERY = 50
MAX_STEPS = 32
"""Longest plan of an agent, in steps."""
TOKENIZER_PLANS = 2048
TOKENIZER_DESIGNS = 4096
_EXAMPLE_STREAM, _SWAP_STREAM, _BATCH_STREAM, _EVALUATION_STREAM = 2, 3, 10, 11
"""Random streams of the training; `boards.py` uses 0 and 1."""


@dataclass
class _Training:
    """The constant inputs of all steps."""

    recipe: Recipe
    path: Path  # the training's directory; model/ is the result, in the Hugging Face layout
    policy: Policy
    pool: ExamplePool
    held_out: HeldOut
    evidence_test: EvidenceTest
    sampler: Sampler | None = None

    def seed(self, *stream: int) -> int:
        return derive_seed(self.recipe.seed, "pretrain", *stream)


def train(recipe: Recipe, path: Path, *, stop_after: int | None = None) -> Path | None:
    """Train the base model in the directory `path`, or resume there; return the model's folder.

    With `stop_after`, training stops after this step as if killed, and the function returns None.
    A resumed training repeats the lines of `metrics.jsonl` and `evaluations.jsonl` since the last
    checkpoint.
    """
    path.mkdir(parents=True, exist_ok=True)
    recipe_path = path / "recipe.yaml"
    if recipe_path.exists() and recipe_path.read_text() != dump(recipe):
        raise UserError(f"{path}: holds a training of another recipe")
    recipe_path.write_text(dump(recipe))
    run, params = _prepare(recipe, path)
    settings = recipe.sampling
    run.sampler = start_sampler(run.policy, params, settings, path / "engine", seed=recipe.seed)
    with closing(run.sampler), closing(Checkpoints(path / "checkpoints")) as checkpoints:
        result = _take_steps(run, checkpoints, params, stop_after)
        return None if result is None else _finish(run, *result)


def _take_steps(
    run: _Training, checkpoints: Checkpoints, params: Any, stop_after: int | None
) -> tuple[Any, int] | None:
    """Train from the newest checkpoint; return the last weights and the number of steps.

    Return None if training stopped after the step `stop_after`, before the end.
    """
    recipe, settings = run.recipe, run.recipe.optimization
    progress = checkpoints.progress()
    step_count = progress.step if progress else 0
    state = initial_state(params, _make_optimizer(settings))
    if progress:
        state = checkpoints.restore(state)

    take_step = _compile_step(run.policy, settings)
    history: list[Any] = []
    goals_met = False
    with track("training", settings.max_steps, start=step_count, unit="steps") as advance:
        while step_count < settings.max_steps and not goals_met:
            if step_count == stop_after:
                return None
            step_count += 1
            rng = np.random.default_rng(run.seed(_BATCH_STREAM, step_count))
            share = _get_design_share(recipe.designs, settings, step_count)
            state, metrics = take_step(state, run.pool.draw(rng, settings.batch_size, share))
            history.append(metrics)
            is_last = step_count == settings.max_steps
            saves_checkpoint = is_last or step_count % settings.checkpoint_every == 0
            if saves_checkpoint or step_count % LOG_EVERY == 0:
                record = _average_losses(step_count, history, _make_schedule(settings))
                history.clear()
                _append_line(run.path / "metrics.jsonl", record)
                text = f"plans {record['plan_loss']:.3f}  designs {record['design_loss']:.3f} nats"
                advance(step_count, text)
            if step_count % settings.evaluate_every == 0 or is_last:
                validate = is_last or step_count % recipe.goal.validate_every == 0
                evaluation = _evaluate(run, state.params, step_count, validate=validate)
                goals_met = validate and not find_missed_goals(evaluation, recipe.goal)
            if saves_checkpoint or goals_met:
                checkpoints.save(state, RunProgress("pretrain", 0, step_count, step_count))
    return state.params, step_count


def _append_line(path: Path, record: dict[str, Any]) -> None:
    with path.open("a") as file:
        print(json.dumps(record), file=file)


def _prepare(recipe: Recipe, path: Path) -> tuple[_Training, Any]:
    """Draw training and held-out examples, and create the model with random weights."""
    with show_status("drawing boards and contexts"):
        held_out = draw_held_out(recipe, recipe.goal.boards_per_cell)
        plans = draw_plans(recipe, held_out)
        example_rng, swap_rng = (
            np.random.default_rng(derive_seed(recipe.seed, "pretrain", stream))
            for stream in (_EXAMPLE_STREAM, _SWAP_STREAM)
        )
        designs = draw_examples(example_rng, recipe.designs)
        pairs = draw_swaps(swap_rng, recipe.designs, recipe.goal.contexts)
    console.print(f"{len(plans)} plans, {len(designs)} contexts, {len(held_out.boards)} held out.")
    model, initial_path = ModelConfig(scratch=recipe.scratch), path / "initial"
    if not initial_path.exists():
        sample = [*_subsample(plans, TOKENIZER_PLANS), *_subsample(designs, TOKENIZER_DESIGNS)]
        texts = [text for example in sample for text in example]
        max_len = recipe.sampling.max_model_len
        write_random_policy(initial_path, model, texts, max_len=max_len, seed=recipe.seed)
    prompt = PromptConfig(max_tokens=recipe.max_tokens, max_steps=MAX_STEPS)
    policy, params = load_policy(initial_path, model, prompt, length_bucket=LENGTH_STEP)
    token_ids = map(policy.encode_examples, (plans, designs))
    pool = ExamplePool(*token_ids, pad_id=policy.pad_id)
    return _Training(recipe, path, policy, pool, held_out, EvidenceTest(policy, pairs)), params


def _subsample(examples: Sequence[Any], count: int) -> list[Any]:
    rows = np.linspace(0, len(examples) - 1, min(count, len(examples))).astype(int)
    return [examples[row] for row in rows]


def _get_design_share(designs: Designs, settings: Optimization, step: int) -> float:
    if step > settings.max_steps - settings.decay_steps:
        return designs.final_share
    return designs.initial_share if step <= designs.initial_steps else designs.share


def _make_schedule(settings: Optimization) -> optax.Schedule:
    """Return a schedule with a linear warmup, a constant phase and a linear decay to 0."""

    def learning_rate(step: Any) -> Any:
        warmup = jnp.minimum((step + 1) / settings.warmup_steps, 1.0)
        decay = (settings.max_steps - step) / settings.decay_steps
        return settings.learning_rate * warmup * jnp.clip(decay, 0.0, 1.0)

    return learning_rate


def _make_optimizer(settings: Optimization) -> optax.GradientTransformation:
    """Build Muon (Jordan 2024) for the layers' matrices, after clipping the global norm.

    Each layer's update is orthogonalised and scaled to the RMS of an AdamW update (Liu et al. 2025,
    arXiv 2502.16982), so that one learning rate serves both. Embeddings, the output layer and norms
    use AdamW with Nesterov momentum and without weight decay.
    """
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        contrib.muon(
            _make_schedule(settings),
            weight_decay=settings.weight_decay,
            adam_b2=0.95,
            muon_weight_dimension_numbers=_label_matrices,
            consistent_rms=0.2,
        ),
    )


def _label_matrices(params: Any) -> Any:
    """Return the input and output axes of stacked kernels (N, in, out); None for other leaves."""
    kernel = contrib.MuonDimensionNumbers(reduction_axis=(1,), output_axis=(2,))
    return jax.tree.map(lambda leaf: kernel if leaf.ndim == 3 else None, params)


@functools.cache
def _compile_step(policy: Policy, settings: Optimization) -> Any:
    optimizer = _make_optimizer(settings)

    def loss(params: Any, batch: Batch) -> tuple[jax.Array, Metrics]:
        """Return the summed negative log-likelihood of answer tokens, in nats; split it by kind."""
        tokens = batch.sequences
        nats = answer_nll(params, tokens, graphdef=policy.graphdef)
        counts = jnp.sum(tokens.is_target, axis=1).astype(jnp.float32)
        designs = batch.is_design.astype(jnp.float32)
        return jnp.sum(nats), {
            "plan_nats": jnp.sum(nats * (1.0 - designs)),
            "plan_tokens": jnp.sum(counts * (1.0 - designs)),
            "design_nats": jnp.sum(nats * designs),
            "design_tokens": jnp.sum(counts * designs),
        }

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: LearnerState, batch: Batch) -> tuple[LearnerState, Metrics]:
        weight = batch.sequences.is_target.sum().astype(np.float32)
        batches, placement = split_rows(batch, 1), get_placement(policy.graphdef, state.params)
        options: Any = {"loss": loss, "optimizer": optimizer, "placement": placement}
        return gradient_step(state, batches, 1, weight, **options)

    return step


def _average_losses(step: int, history: Sequence[Any], schedule: optax.Schedule) -> dict[str, Any]:
    """Return the mean losses since the last logged line, in nats per token."""
    totals = {name: sum(float(metrics[name]) for metrics in history) for name in history[0]}
    return {
        "step": step,
        "plan_loss": six_digits(totals["plan_nats"] / max(totals["plan_tokens"], 1e-9)),
        "design_loss": six_digits(totals["design_nats"] / max(totals["design_tokens"], 1e-9)),
        "learning_rate": six_digits(schedule(step - 1)),
    }


class Evaluation(NamedTuple):
    """A line of `evaluations.jsonl`."""

    step: int
    edit_accuracy: float  # share of edits that equal the rule's
    flip_rates: dict[str, float]  # by fact: share of edits that change with it
    valid: dict[str, float] | None  # by cell, at temperature 1


def _evaluate(run: _Training, params: Any, step: int, *, validate: bool) -> Evaluation:
    """Evaluate the weights, optionally with answers to held-out boards, and log a line."""
    edit_accuracy, flip_rates = run.evidence_test.compute_scores(params)
    flip_rates = {fact: six_digits(rate) for fact, rate in flip_rates.items()}
    valid = _measure_valid_rates(run, params, step) if validate else None
    evaluation = Evaluation(step, six_digits(edit_accuracy), flip_rates, valid)
    _append_line(run.path / "evaluations.jsonl", evaluation._asdict())
    valid_text = f", valid from {min(valid.values()):.0%}" if valid else ""
    console.print(
        f"step {step}: edit accuracy {edit_accuracy:.1%},"
        f" flip rates from {min(flip_rates.values()):.1%}{valid_text}"
    )
    return evaluation


def _measure_valid_rates(run: _Training, params: Any, step: int) -> dict[str, float]:
    """Sample an answer to each held-out board at temperature 1; return the valid rate by cell."""
    assert run.sampler is not None
    run.sampler.sync(run.policy.tensors(params))
    request = SamplingRequest(
        prompts=[run.policy.encode_board(board) for board in run.held_out.boards],
        n=1,
        temperature=1.0,
        max_tokens=run.recipe.max_tokens,
        stop_token_ids=run.policy.stop_ids,
        seed=run.seed(_EVALUATION_STREAM, step),
    )
    groups = run.sampler.sample(request)
    texts = [run.policy.decode(completion.token_ids) for (completion,) in groups]
    boards, max_steps = run.held_out.boards, run.policy.prompt.max_steps
    verdict = judge_texts(texts, boards.instances, boards.solutions, max_steps=max_steps)
    valid = verdict.outcomes.valid
    return {name: six_digits(valid[rows].mean()) for name, rows in run.held_out.cells.items()}


def _finish(run: _Training, params: Any, step: int) -> Path:
    """Write the model in bfloat16, and evaluate it after rounding."""
    rounded_params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    rounded_float32 = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), rounded_params)
    if missed_goals := find_missed_goals(
        _evaluate(run, rounded_float32, step, validate=True), run.recipe.goal
    ):
        console.print(f"The model misses its goals: {', '.join(missed_goals)}.", soft_wrap=True)
    run.policy.export(rounded_params, run.path / "model")
    console.print(f"{run.path / 'model'}: the model after {step} steps.")
    return run.path / "model"


def find_missed_goals(evaluation: Evaluation, goal: Goal) -> list[str]:
    """Return the goals that an evaluation misses, ignoring cells without answers."""
    measurements = [("edit accuracy", evaluation.edit_accuracy, goal.min_edit_accuracy)]
    measurements += [
        (f"flip rate of {fact}", rate, goal.min_flip_rate)
        for fact, rate in evaluation.flip_rates.items()
    ]
    cells = (evaluation.valid or {}).items()
    measurements += [(f"valid in {cell}", rate, goal.min_valid_rate) for cell, rate in cells]
    return [
        f"{name} {rate:.1%} (goal {goal_rate:.0%})"
        for name, rate, goal_rate in measurements
        if rate < goal_rate
    ]
