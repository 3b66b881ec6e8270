"""What a GRPO update costs, and what it would cost if every completion had its prompt to itself.

python -m benchmarks.grpo_update --json benchmarks/results/grpo-update.json

Both updates learn from the same rollout with the same model, that of configs/scratch.yaml:
`plain` is `benchmarks.plain_grpo` with the settings that configs/scratch.yaml had, `shared` is the
trainer's own, packing on the host included. They take turns. Processor seconds are those of all
threads: where other programs run beside, they say more than wall time. Prompts are those of the
miniature's first stage. Three rollouts are measured. In `plans` a prompt's completions are about as
long as its optimal plan: up to four tokens shorter or longer, and one in 32 is cut by the token
limit. In `limit` all are cut. In `copies` half of a prompt's completions are copies of others, as
in the demo's third stage, and as long as in `plans`. Every group has something to learn from.

FLOPs are XLA's count for the program before it is optimised; those of one micro-batch and of the
optimizer, times the number of micro-batches.
"""

import argparse
import functools
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks.lake.protocol import ROOT
from benchmarks.plain_grpo import plain_batch, plain_summed_loss
from jaxlake.files import write_text_whole
from training.learner import grpo
from training.learner.batching import split_rows
from training.learner.grpo_step import compiled_step, grpo_optimizer
from training.learner.optimizer import gradient_step, initial_state
from training.phases import grpo_update
from training.phases.warm_start import texts_for_tokenizer
from training.policy.policy import Policy, load_policy, make_policy
from training.rollout.rollout import Rollout
from training.run.active_run import ActiveRun
from training.sampling.vllm_sampler import Completion
from training.schema import Grpo, RunConfig, load

PLAIN_BUCKET = 104  # tokens that the miniature padded its sequences to, of at most 70 + 32
PLAIN_ROWS = 32  # sequences of its micro-batches
ROLLOUTS = ("plans", "limit", "copies")
_COLUMNS = ("compiling", "wall", "processor", "gflop")

# An update: it takes a state and returns one. Beside it, the GFLOP that it takes.
Update = tuple[Callable[[Any], Any], float]


def miniature(folder: Path) -> tuple[RunConfig, Policy, Any, list[tuple[list[int], int]]]:
    """Make the miniature's policy in a new folder; with it come prompts and lengths of answers."""
    config = load(ROOT / "configs/scratch.yaml")
    texts = texts_for_tokenizer(config)
    make_policy(folder, config.model, texts, max_len=1024, seed=0)
    policy, params = load_policy(folder, config)
    pairs = zip(texts[::2], texts[1::2], strict=True)
    boards = [(prompt, answer) for prompt, answer in pairs if prompt.startswith("Find paths")]
    rng = np.random.default_rng(0)
    chosen = []
    shares = {size: knobs.data_ratio for size, knobs in config.lake.initial.sizes.items()}
    for size in rng.choice(list(shares), config.grpo.prompts_per_update, p=list(shares.values())):
        of_size = [board for board in boards if f" {size}x{size}" in board[0]]
        prompt, answer = of_size[rng.integers(len(of_size))]
        chosen.append((policy.encode_prompt(prompt), len(policy.encode_answer(answer))))
    return config, policy, params, chosen


def make_rollout(config: RunConfig, boards: list[tuple[list[int], int]], lengths: str) -> Rollout:
    """Draw completions of random tokens and rewards, as the module's docstring says."""
    rng = np.random.default_rng(1)
    count, limit = config.grpo.completions, config.prompt.max_tokens
    completions, rewards = [], []
    distinct = count // 2 if lengths == "copies" else count
    for _, length in boards:
        drawn = np.clip(length + rng.integers(-4, 5, distinct), 1, limit)
        drawn[(rng.random(distinct) < 1 / 32) | (lengths == "limit")] = limit
        answers = []
        for tokens in drawn.tolist():
            ids = tuple(rng.integers(0, config.model.scratch.vocab_size, tokens).tolist())
            sampled = rng.normal(-1, 0.1, tokens).astype(np.float32)
            answers.append(Completion(ids, sampled, truncated=tokens == limit))
        paid = rng.permutation([0.0, 1.0, *rng.choice([0.0, 0.6, 1.0], distinct - 2)])
        completions += [answers[number % distinct] for number in range(count)]
        rewards.append(np.resize(paid, count))
    prompts = [prompt for prompt, _ in boards]
    known = np.array(rewards, np.float32)
    return Rollout(None, prompts, completions, None, known, 0 * known)  # type: ignore[arg-type]


def shared_update(config: RunConfig, policy: Policy, rollout: Rollout, state: Any) -> Update:
    """Return the trainer's own update."""
    run = ActiveRun(config, None, None, policy, None)  # type: ignore[arg-type]
    step = compiled_step(
        policy.graphdef, config.grpo, None, config.sampling.temperature, config.grpo_steps
    )

    def batch() -> Any:
        (minibatch,) = grpo_update._minibatches(
            grpo_update.rollout_batch(run, state.params, rollout), run
        )
        return minibatch

    filled = int(batch().groups.targets.any(axis=(1, 2, 3)).sum())
    return lambda state: step(state, batch())[0], filled * _gflop(step, state, batch())


def plain_update(config: RunConfig, policy: Policy, rollout: Rollout, state: Any) -> Update:
    """Return the update in which every completion is a sequence of its own."""
    step = _plain_step(policy.graphdef, config.grpo, config.sampling.temperature)

    def batch() -> Any:
        learned = np.ones(rollout.rewards.shape, bool)
        padded = plain_batch(
            rollout.prompts,
            [one.token_ids for one in rollout.completions],
            learned,
            [one.logprobs for one in rollout.completions],
            grpo.group_advantages(rollout.rewards, divide_by_std=config.grpo.divide_by_std),
            bucket=PLAIN_BUCKET,
            pad_id=policy.pad_id,
        )
        return split_rows(padded, learned.size // PLAIN_ROWS)

    parts = len(rollout.completions) // PLAIN_ROWS
    return lambda state: step(state, batch())[0], parts * _gflop(step, state, batch())


@functools.cache
def _plain_step(graphdef: nnx.GraphDef, settings: Grpo, temperature: float) -> Any:
    optimizer = grpo_optimizer(settings, 1)
    loss = functools.partial(
        plain_summed_loss, graphdef=graphdef, settings=settings, temperature=temperature
    )

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, batch: Any) -> Any:
        filled = batch.sequences.targets.any(axis=(1, 2)).sum()
        tokens = batch.sequences.targets.sum().astype(jnp.float32)
        return gradient_step(state, batch, filled, tokens, loss=loss, optimizer=optimizer)

    return step


def _gflop(step: Any, state: Any, batch: Any) -> float:
    return step.lower(state, batch).cost_analysis()["flops"] / 1e9


def measure(repeats: int) -> dict[str, dict[str, float]]:
    """Measure both updates of both rollouts: medians over the repeats."""
    with tempfile.TemporaryDirectory() as scratch:
        config, policy, params, boards = miniature(Path(scratch) / "initial")
    first = initial_state(params, grpo_optimizer(config.grpo, config.grpo_steps))
    updates, states, rows = {}, {}, {}
    for lengths in ROLLOUTS:
        rollout = make_rollout(config, boards, lengths)
        for kind, make in (("plain", plain_update), ("shared", shared_update)):
            name = f"{kind}, {lengths}"
            print(f"GRPO update: {name}", file=sys.stderr, flush=True)
            updates[name], gflop = make(config, policy, rollout, first)
            states[name] = jax.tree.map(jnp.copy, first)
            rows[name] = {"gflop": gflop}
    timed: dict[str, list[tuple[float, float]]] = {name: [] for name in updates}
    for _ in range(1 + repeats):
        for name, update in updates.items():
            wall, processor = time.perf_counter(), time.process_time()
            states[name] = jax.block_until_ready(update(states[name]))
            spent = time.perf_counter() - wall, time.process_time() - processor
            timed[name].append(spent)
    for name, (compiled, *later) in timed.items():
        wall, processor = np.median(later, axis=0).tolist()
        compiling = max(0.0, compiled[0] - wall)  # the plain update has one shape for both rollouts
        rows[name] |= {"compiling": compiling, "wall": wall, "processor": processor}
    return rows


def ratios(rows: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return how many times as much the plain update takes, per rollout."""
    return {
        lengths: {
            column: rows[f"plain, {lengths}"][column] / rows[f"shared, {lengths}"][column]
            for column in _COLUMNS[1:]
        }
        for lengths in ROLLOUTS
    }


def table(rows: dict[str, dict[str, float]]) -> str:
    """Write the rows and the ratios as Markdown, in seconds and GFLOP."""
    heads = ["compiling", "wall", "processor", "GFLOP"]
    lines = [f"| update | {' | '.join(heads)} |", "| --- " * (len(heads) + 1) + "|"]
    times = {f"times less, {lengths}": row for lengths, row in ratios(rows).items()}
    for name, row in (rows | times).items():
        cells = [f"{row[column]:.3g}" if column in row else "" for column in _COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print the table and write the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grpo_update")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result here too")
    parser.add_argument("--repeats", metavar="N", type=int, default=7, help="7 unless told")
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    rows = measure(arguments.repeats)
    print(table(rows))
    if arguments.json is not None:
        result = {
            "unit": "seconds, and GFLOP",
            "repeats": arguments.repeats,
            "cores": len(os.sched_getaffinity(0)),
            "load_before": load_before,
            "python": platform.python_version(),
            **{name: version(name) for name in ("jax", "jaxlib", "numpy")},
            "updates": {
                name: {key: float(f"{value:.4g}") for key, value in row.items()}
                for name, row in rows.items()
            },
        }
        write_text_whole(arguments.json, json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
