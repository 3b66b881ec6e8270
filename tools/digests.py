"""Digests of behaviour that must survive a refactoring bit for bit.

    python -m tools.digests --write FILE
    python -m tools.digests --check FILE --only prompts --only reviews

A section computes named values and hashes each of them as plain JSON, so renamed classes and fields
leave the digests unchanged. `--check` compares with digests that the same machine wrote with
`--write`: floating-point results differ between machines. Only the functions in the section
"Interfaces" use the project's interfaces; adapt them when an interface changes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

# Interfaces


def _threefry(seed: int) -> jax.Array:
    return jax.random.key(seed, impl="threefry2x32")


def _generate(
    seed: int,
    sizes: Sequence[int],
    agent_counts: Sequence[int],
    boards_per_cell: int,
    max_agents: int,
) -> Any:
    """Generate boards of every size with every number of agents."""
    import jaxlake

    cells = [(size, count) for count in agent_counts for size in sizes]
    params = jaxlake.lake_params(
        [size for size, _ in cells], 0.15, 0.25, [count for _, count in cells]
    )
    return jaxlake.generate(
        _threefry(seed),
        params,
        boards_per_cell,
        max_size=max(sizes),
        max_agents=max_agents,
        horizon=_HORIZON,
    )


def _generated_fields(lakes: Any) -> dict[str, Any]:
    """Return the fields of generated boards by name."""
    counts = {
        **vars(lakes),
        "instances": None,
        "solutions": None,
        "filled": None,
        "component": None,
    }
    return {
        "boards": jax.tree.leaves(lakes.instances),
        "solutions": _solution_fields(lakes.solutions),
        "filled": [lakes.filled, lakes.component],
        "counts by cell": [value for value in counts.values() if value is not None],
    }


def _solution_fields(solution: Any) -> list[Any]:
    costs = [solution.status, solution.sum_of_costs, solution.makespan, solution.needs_wait]
    return [*costs, solution.plan, solution.makespan_plan, solution.expansions]


def _solve(instances: Any) -> list[Any]:
    from jaxlake.solver import solve_batch

    return _solution_fields(solve_batch(instances, horizon=_HORIZON))


def _tabulate_statistics(instances: Any, needs_wait: Any, plans: Any) -> Any:
    """Verify plans (B, T, K) and count their outcomes by size, agents, holes and waits."""
    import jaxlake

    @jax.jit
    def table(instances: Any, needs_wait: Any, plans: Any) -> Any:
        outcomes = jax.vmap(jaxlake.verify)(instances, plans)
        return jaxlake.tabulate(instances, needs_wait, outcomes), outcomes

    return jax.tree.leaves(table(instances, needs_wait, plans))


def _make_instances(boards: Sequence[Mapping[str, Any]]) -> Any:
    from jaxlake import Instance, stack_instances

    return stack_instances([Instance(**board) for board in boards])


def _render_board(board: Mapping[str, Any], style: Any) -> str:
    from jaxlake import Instance
    from jaxlake.language.prompts import render

    return render(Instance(**board), style)


def _make_domain() -> Any:
    from engineer.lake import Bounds, lake_domain

    bounds = Bounds(
        sizes=(3, 4, 5, 6),
        max_hole_ratio=0.4,
        max_wait_ratio=0.6,
        min_share=0.05,
        step=0.05,
        edit_steps=1,
    )
    return lake_domain(bounds)


def _simulate_views(seed: int, num_runs: int, num_stages: int) -> list[Any]:
    """Return the views that an engineer reads after each stage of simulated runs."""
    from engineer.synthetic import simulate_run

    rng = np.random.default_rng(seed)
    return [view for _ in range(num_runs) for view in simulate_run(rng, _make_domain(), num_stages)]


def _build_context(view: Any, style: Any, blocks: Sequence[Any] | None) -> str:
    from engineer import BLOCKS, build_context

    return build_context(view, style=style, blocks=BLOCKS if blocks is None else blocks).text


def _rule_answers(view: Any) -> list[str]:
    """Write the rule's design as edits and as JSON."""
    from engineer import answer_text
    from engineer.context.symbols import make_compact_context
    from engineer.edits import edits_text
    from engineer.engineers.rule import compute_rule_edits, rule_configuration

    context = make_compact_context(view, _COMPACT_BLOCKS)
    edits = edits_text(compute_rule_edits(context, view.domain), view.domain)
    return [edits, answer_text(rule_configuration(view))]


def _review_answer(text: str, view: Any, max_step: float | None) -> Any:
    from engineer import StepLimit, review_answer

    step_limit = StepLimit(max_step=max_step)
    review = review_answer(text, view.current, view.domain, step_limit)
    repairs = [(repair.name, repair.field, repair.old, repair.new) for repair in review.repairs]
    values = None if review.configuration is None else review.configuration.values()
    return [review.kind, repairs, values]


def _derive_key_data(seed: int, stream: str, indices: Sequence[int]) -> Any:
    from training.run.seeds import derive_key, derive_seed

    return [
        jax.random.key_data(derive_key(seed, stream, *indices)),
        derive_seed(seed, stream, *indices),
    ]


def _make_config() -> Any:
    from training.schema import RunConfig

    return RunConfig.model_validate(_RUN)


def _load_policy() -> tuple[Any, Any]:
    """Open the shipped base model: the policy and its weights."""
    from training.policy import huggingface
    from training.policy.policy import load_run_policy

    config = _make_config()
    return load_run_policy(huggingface.resolve_model(config.model.pretrained), config)


def _get_tensors(policy: Any, params: Any) -> dict[str, Any]:
    """Name weights, or a gradient, as Hugging Face does."""
    return dict(policy.tensors(params))


def _sample_completions(
    policy: Any, params: Any, prompts: Sequence[str], num_completions: int, seed: int
) -> list[Any]:
    """Sample completions per prompt with the JAX sampler, those of the first prompt first."""
    from training.sampling.jax_sampler import JaxSampler
    from training.sampling.sampler import SamplingRequest

    request = SamplingRequest(
        prompts=[policy.encode_prompt(prompt) for prompt in prompts],
        n=num_completions,
        temperature=1.0,
        max_tokens=40,
        stop_token_ids=policy.stop_ids,
        seed=seed,
    )
    groups = JaxSampler(policy, params, _make_config().sampling).sample(request)
    return [completion for group in groups for completion in group]


def _plain_completion(policy: Any, completion: Any) -> list[Any]:
    tokens = completion.token_ids
    return [tokens, policy.decode(tokens), completion.logprobs, completion.truncated]


def _grpo_step(
    policy: Any, params: Any, prompts: Sequence[str], completions: Sequence[Any], rewards: Any
) -> dict[str, Any]:
    """Return loss and gradient of one batch, and the weights after its optimizer step."""
    from dataclasses import replace
    from functools import partial

    from training.learner.gradient_program import jit_gradients
    from training.learner.grpo import loss_weight, summed_loss
    from training.learner.grpo_step import make_grpo_optimizer, make_grpo_step
    from training.learner.optimizer import initial_state
    from training.phases.grpo_update import make_grpo_batch

    config = _make_config()
    run: Any = SimpleNamespace(config=config, policy=policy, reference=None)
    prompt_ids = [policy.encode_prompt(prompt) for prompt in prompts]
    batch = make_grpo_batch(
        run, params, prompt_ids, completions, rewards, width=40, bundles=2, minibatches=1
    )
    loss = partial(summed_loss, graphdef=policy.graphdef, settings=config.grpo, temperature=1.0)
    differentiate = jit_gradients(jax.value_and_grad(loss, has_aux=True))
    (value, _), gradient = differentiate(params, batch)
    result = {
        "loss": [value, loss_weight(batch, config.grpo)],
        "gradient": _get_tensors(policy, gradient),
    }
    # Make old log-probabilities differ from the new ones, so that ratios are clipped and capped.
    rng = np.random.default_rng(8)
    noise = rng.normal(0.0, 0.5, batch.sampler_logprobs.shape).astype(np.float32)
    stale_batch = replace(batch, old_logprobs=batch.sampler_logprobs + noise)
    (value, _), gradient = differentiate(params, stale_batch)
    result |= {"clipped loss": value, "clipped gradient": _get_tensors(policy, gradient)}
    state = initial_state(jax.tree.map(np.array, params), make_grpo_optimizer(config.grpo, 8))
    take_step = make_grpo_step(policy.graphdef, config.grpo, None, 1.0, 8)
    state, metrics = take_step(state, jax.tree.map(lambda leaf: leaf[None], batch), None, None)
    step_metrics = [metrics["loss"], metrics["grad_norm"]]
    return {**result, "step": step_metrics, "weights": _get_tensors(policy, state.params)}


def _answer_fields(answer: Any) -> list[Any]:
    lake_fields = [answer.lake.agent, answer.lake.sum_of_costs]
    return [answer.text, answer.valid, answer.failure, answer.time, *lake_fields]


def _run_stages(folder: Path) -> Iterator[tuple[str, Any]]:
    """Run the whole loop; yield its validation answers and designs by stage."""
    from training import loop
    from training.run.directory import RunDirectory

    config = _make_config()
    loop.run(config, folder)
    directory = RunDirectory(folder)
    for stage in range(config.stages.count + 1):
        files = directory.stage(stage)
        yield (f"answers {stage}", [_answer_fields(record) for record in files.episodes.read()])
        if stage:
            yield (
                f"attempts {stage}",
                [[record.context, record.text, record.kind] for record in files.answers.read()],
            )
            decision = files.decision.read()
            yield f"design {stage}", [decision.kind, decision.configuration.values()]


# Sections

_HORIZON = 24
_COMPACT_BLOCKS: tuple[Any, ...] = ("failure_breakdown", "training_details", "history")
_KNOBS = {"data_ratio": 0.25, "hole_ratio": 0.1, "wait_ratio": 0.2}

# `configs/miniature.yaml` of 0.2.0, shortened.
_RUN: dict[str, Any] = {
    "name": "digests",
    "seed": 0,
    "model": {"pretrained": "jaxlake-base"},
    "environment": {
        "num_agents": 2,
        "initial": {"sizes": {4: _KNOBS, 5: _KNOBS, 6: {**_KNOBS, "data_ratio": 0.5}}},
        "bounds": {
            "sizes": [4, 5, 6],
            "max_hole_ratio": 0.4,
            "max_wait_ratio": 0.6,
            "min_share": 0.05,
            "step": 0.05,
            "edit_steps": 1,
        },
        "max_candidates": 40000,
    },
    "prompt": {"style": "compact", "max_tokens": 40, "max_steps": 32},
    "sampling": {"engine": "jax", "temperature": 1.0, "max_model_len": 256, "max_num_seqs": 128},
    "stages": {"count": 2, "instances": 64},
    "grpo": {
        "prompts_per_update": 16,
        "completions": 8,
        "micro_batch_size": 32,
        "length_bucket": 40,
        "learning_rate": 2.0e-4,
        "prefetch": 0,
        "warmup_updates": 2,
        "checkpoint_every": 4,
    },
    "reward": {"optimal": 1.0, "valid": 0.6},
    "validation": {
        "sizes": [4, 5, 6],
        "hole_ratios": [0.2],
        "wait_ratios": [0.1],
        "per_cell": 20,
        "temperature": 1.0,
    },
    "engineer": {
        "kind": "checkpoint",
        "style": "compact",
        "blocks": list(_COMPACT_BLOCKS),
        "temperature": 0.2,
        "max_tokens": 32,
    },
}


def _compute_boards() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(0)
    for agent_counts, max_agents in (((2,), 2), ((3, 4, 5), 5)):
        lakes = _generate(7 + max_agents, (4, 5, 6), agent_counts, 96, max_agents)
        name = f"{max_agents} slots"
        for field, value in _generated_fields(lakes).items():
            yield f"{name} {field}", value
        yield f"{name} solve", _solve(lakes.instances)
        random_boards = [
            _random_board(rng, 4 + i % 3, agent_counts[i % len(agent_counts)], 6, max_agents)
            for i in range(96)
        ]
        yield f"{name} random boards", _solve(_make_instances(random_boards))
        plans = np.array(lakes.solutions.plan)
        random_actions = rng.integers(0, 5, plans.shape, np.int8)
        noisy_plans = np.where(rng.random(plans.shape) < 0.05, random_actions, plans)
        yield (
            f"{name} statistics",
            _tabulate_statistics(lakes.instances, lakes.solutions.needs_wait, noisy_plans),
        )


def _random_board(
    rng: np.random.Generator, size: int, num_agents: int, max_size: int, max_agents: int
) -> dict[str, Any]:
    """Draw a board, which may have no solution, with its agents in the first slots."""
    cells = rng.permutation(size * size)
    corners = np.zeros((2, max_agents, 2), np.int8)
    corners[:, :num_agents] = np.stack(np.divmod(cells[: 2 * num_agents], size), -1).reshape(
        2, num_agents, 2
    )
    holes = np.ones((max_size, max_size), bool)
    holes[:size, :size] = False
    hole_cells = cells[2 * num_agents : 2 * num_agents + (size * size - 2 * num_agents) // 3]
    holes[np.divmod(hole_cells, size)] = True
    mask = np.arange(max_agents) < num_agents
    return {
        "holes": holes,
        "size": np.int32(size),
        "starts": corners[0],
        "goals": corners[1],
        "agent_mask": mask,
    }


def _two_agent_prompts(count: int) -> list[str]:
    rng = np.random.default_rng(3)
    boards = [_random_board(rng, 3 + number % 4, 2, 6, 2) for number in range(count)]
    return [_render_board(board, "compact") for board in boards]


def _compute_prompts() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(1)
    boards = [_random_board(rng, 4 + index % 7, 1 + index % 5, 10, 5) for index in range(100)]
    for style in ("full", "compact"):
        yield f"policy {style}", [_render_board(board, style) for board in boards]
    views = _simulate_views(2, 20, 4)
    for style, blocks in (
        ("full", None),
        ("full", ("failure_breakdown",)),
        ("full", ("history", "summary", "guideline")),
        ("compact", _COMPACT_BLOCKS),
        ("compact", ("failure_breakdown",)),
    ):
        name = f"engineer {style} {'all' if blocks is None else '+'.join(blocks)}"
        yield name, [_build_context(view, style, blocks) for view in views]


def _compute_reviews() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(4)
    views = _simulate_views(5, 50, 4)
    answers = [
        (_mutate(rng, text, views), view) for view in views for text in _rule_answers(view) * 5
    ]
    for max_step in (None, 0.1):
        yield (
            f"{len(answers)} answers, step {max_step}",
            [_review_answer(text, view, max_step) for text, view in answers],
        )


_FRAGMENTS = (
    *("{", "}", "[", "]", ":", ",", '"', "\n", "```json\n", "</think>", "<think>", "NaN", "1e999"),
    *("-1", "0", "2", "0.333", "null", "true", '"3"', '"7"', "n3", "n9 = = =", "\nn3 + - =\n", "é"),
    *('{"3":{}}', '"hole_ratio"', "+", "-", "=", " ", "\ud800"),
)


def _mutate(rng: np.random.Generator, text: str, views: Sequence[Any]) -> str:
    """Apply up to five random changes to a valid answer, and sometimes add text around it."""
    for _ in range(int(rng.integers(0, 6))):
        start = int(rng.integers(0, len(text) + 1))
        end = min(len(text), start + int(rng.choice([0, 0, 1, 1, 4, 40])))
        fragment = _FRAGMENTS[int(rng.integers(len(_FRAGMENTS)))] if rng.random() < 0.6 else ""
        if rng.random() < 0.3:  # a number that is out of range or off the grid
            fragment = f"{rng.uniform(-0.5, 1.5):.3f}"
        text = text[:start] + fragment + text[end:]
    if rng.random() < 0.3:
        alternatives = _rule_answers(views[int(rng.integers(len(views)))])
        text = f"I would try this.\n{alternatives[int(rng.integers(2))]}\nNo:\n{text}\nDone."
    return text


def _compute_seeds() -> Iterator[tuple[str, Any]]:
    streams = ("warm_start", "train", "sample", "design", "summary", "atlas", "pretrain")
    for stream in (*streams, "rehearsal", "design_learning", "pool"):
        yield (
            stream,
            [
                _derive_key_data(seed, stream, indices)
                for seed in (0, 1, 2**31)
                for indices in ((), (0,), (1, 2), (3, 1, 4))
            ],
        )


def _compute_sampler() -> Iterator[tuple[str, Any]]:
    policy, params = _load_policy()
    yield "weights", _get_tensors(policy, params)
    prompts = _two_agent_prompts(100)
    yield "tokens", [policy.encode_prompt(prompt) for prompt in prompts]
    completions = _sample_completions(policy, params, prompts, 2, 11)
    yield "completions", [_plain_completion(policy, completion) for completion in completions]


def _compute_gradient() -> Iterator[tuple[str, Any]]:
    policy, params = _load_policy()
    prompts = _two_agent_prompts(16)
    completions = _sample_completions(policy, params, prompts, 8, 12)
    rng = np.random.default_rng(6)
    rewards = rng.choice(np.array([0.0, 0.6, 1.0], np.float32), (16, 8))
    rewards[3] = 0.6  # a group with nothing to learn from
    yield from _grpo_step(policy, params, prompts, completions, rewards).items()


def _compute_run() -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        yield from _run_stages(Path(folder) / "run")


SECTIONS: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    "boards": _compute_boards,
    "prompts": _compute_prompts,
    "reviews": _compute_reviews,
    "seeds": _compute_seeds,
    "sampler": _compute_sampler,
    "gradient": _compute_gradient,
    "run": _compute_run,
}


# Hashing


def to_plain(value: Any) -> Any:
    """Return nested lists, strings and integers that differ where values differ in a bit."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = np.asarray(value)
        return [str(array.dtype), list(array.shape), array.tobytes().hex()]
    if isinstance(value, Iterable):
        return [to_plain(item) for item in value]
    raise TypeError(f"cannot hash a {type(value).__name__}")


def hash_value(value: Any) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of a value."""
    text = json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compute_digests(sections: Sequence[str]) -> dict[str, dict[str, str]]:
    """Compute the digests of sections."""
    digests = {}
    for section in sections:
        start = time.monotonic()
        digests[section] = {name: hash_value(value) for name, value in SECTIONS[section]()}
        seconds = time.monotonic() - start
        print(f"{section}: {len(digests[section])} digests, {seconds:.0f} s", file=sys.stderr)
    return digests


def find_differences(
    expected: Mapping[str, Mapping[str, str]], actual: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Name the digests that are not the expected ones."""
    return [
        f"{section}: {name}: {actual[section].get(name)}, expected {expected_digest}"
        for section in actual
        for name, expected_digest in expected[section].items()
        if actual[section].get(name) != expected_digest
    ]


def main() -> int:
    """Write or check digests; exit status 1 if some differ."""
    parser = argparse.ArgumentParser(prog="python -m tools.digests", description=__doc__)
    default_path = Path(os.environ.get("JAXLAKE_DIGESTS", ".digests.json"))
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", metavar="FILE", nargs="?", type=Path, const=default_path)
    mode.add_argument("--check", metavar="FILE", nargs="?", type=Path, const=default_path)
    parser.add_argument("--only", action="append", choices=list(SECTIONS), metavar="SECTION")
    args = parser.parse_args()
    digests = compute_digests(args.only or list(SECTIONS))
    if args.write is not None:
        stored_digests = json.loads(args.write.read_text()) if args.write.exists() else {}
        args.write.write_text(json.dumps({**stored_digests, **digests}, indent=1) + "\n")
        return 0
    mismatches = find_differences(json.loads(args.check.read_text()), digests)
    print("\n".join(mismatches) or "all digests are the expected ones")
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
