"""Train the designs of `jaxlake-base` by GRPO on the final valid rate of simulated runs.

    python -m examples.base_model.by_return examples/base_model/by_return.yaml

In each update, simulated learners train for all their stages. After every stage the policy samples
`grpo.completions` designs for the compact context of each learner. Every design is evaluated by
the rest of the run, with the learner's own random numbers and with `rule` as the designer of the
later stages. Its reward is the final valid rate, in points. The first design leads to the next
stage. One optimizer step uses the designs of all stages. It also imitates plans of solved boards,
so that the policy does not forget how to plan. The same command resumes an interrupted training.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from engineer import Domain, scripted_engineer
from engineer.bench import Learners, Prior, draw_learners, select_learners, train_learners
from engineer.bench.version import SIZES, STAGES
from engineer.context.build import answer_form
from engineer.engineers.base import Engineer, Proposal, Task
from engineer.engineers.catalogue import RunSettings
from engineer.lake import lake_domain
from examples.base_model.boards import draw_held_out, draw_plans
from examples.base_model.recipe import Recipe
from training.errors import UserError
from training.learner.batching import pad_sequences, split_rows
from training.learner.grpo import has_reward_variance
from training.learner.grpo_step import make_grpo_optimizer, make_grpo_step
from training.learner.optimizer import initial_state
from training.phases.grpo_update import make_grpo_batch, require_finite_metrics
from training.policy import huggingface
from training.policy.policy import load_run_policy
from training.run.active_run import ActiveRun
from training.run.checkpoints import Checkpoints, RunProgress
from training.run.directory import RunDirectory
from training.run.progress import console
from training.run.records import six_digits
from training.run.shared_directory import open_run
from training.sampling.engines import start_sampler
from training.sampling.sampler import Completion, Sampler, SamplingRequest, Tokens
from training.schema import RunConfig, load, load_config

NUM_DESIGNS = STAGES - 1
"""Number of designs in a simulated run."""
LAKE_VARIANTS = tuple((SIZES[groups], steps) for groups in (4, 2, 4) for steps in (3, 6))
"""Map sizes and edit steps; the updates cycle through them."""
NUM_HELD_OUT, EVALUATE_EVERY = 64, 10
"""Number of held-out learners, and of updates between two evaluations."""


@dataclass(frozen=True)
class Replay:
    """Engineer that gives recorded answers in the first stages, then asks another engineer."""

    texts: Sequence[str]
    successor: Engineer
    contexts: list[str] = field(default_factory=list)  # the first prompt of each stage
    name: str = "replay"

    def propose(self, task: Task) -> Proposal:
        """Return the recorded answer of the stage, or ask the other engineer."""
        if task.attempt == 0:
            self.contexts.append(task.context.text)
        stage = len(self.contexts)
        is_recorded = stage <= len(self.texts)
        return Proposal(self.texts[stage - 1], 0.0) if is_recorded else self.successor.propose(task)


def simulate_runs(
    texts: Sequence[Sequence[str]], learners: Learners, domain: Domain
) -> tuple[np.ndarray, list[str]]:
    """Simulate runs of N learners with recorded answers, then with `rule` in the later stages.

    Returns:
        The final valid rates in points, float (N,), and the contexts after the last recorded
        answers, which are empty after the last stage.
    """
    engineers: list[Replay] = []

    def make_engineer(run: RunSettings) -> Replay:
        engineers.append(Replay(texts[run.seed], scripted_engineer("rule", run)))
        return engineers[-1]

    final_rates = 100.0 * train_learners(make_engineer, learners, domain).final_rates
    return final_rates, [[*engineer.contexts, ""][len(engineer.texts)] for engineer in engineers]


def roll_out(
    run: ActiveRun,
    sampler: Sampler,
    learners: Learners,
    domain: Domain,
    *,
    n: int,
    temperature: float,
    update: int,
) -> tuple[list[Tokens], list[Completion], np.ndarray]:
    """Sample n designs for each of N learners after every stage, and simulate the run after each.

    Returns:
        P = NUM_DESIGNS * N prompts, stage by stage, their P * n designs, and the final valid rates
        in points, float32 (P, n).
    """
    num_learners, form = len(learners.skill), answer_form(domain, "compact")
    rows = np.repeat(np.arange(num_learners), n).tolist()
    texts: list[list[str]] = [[] for _ in range(num_learners)]
    _, contexts = simulate_runs(texts, learners, domain)
    prompts, completions, rewards = [], [], []
    for stage in range(1, NUM_DESIGNS + 1):
        request = SamplingRequest(
            prompts=[run.policy.encode_prompt(context) for context in contexts],
            n=n,
            temperature=temperature,
            max_tokens=run.config.engineer.max_tokens,
            stop_token_ids=run.policy.stop_ids,
            seed=run.seed("design_learning", stage, update),
            form=form,
        )
        designs = [completion for group in sampler.sample(request) for completion in group]
        answers = [run.policy.decode(completion.token_ids) for completion in designs]
        branches = list(zip(rows, answers, strict=True))
        branch_indices = {branch: index for index, branch in enumerate(dict.fromkeys(branches))}
        final_rates, next_contexts = simulate_runs(
            [[*texts[row], answer] for row, answer in branch_indices],
            select_learners(learners, [row for row, _ in branch_indices]),
            domain,
        )
        indices = [branch_indices[branch] for branch in branches]
        prompts += request.prompts
        completions += designs
        rewards.append(final_rates[indices].reshape(num_learners, n))
        texts = [[*prefix, answer] for prefix, answer in zip(texts, answers[::n], strict=True)]
        contexts = [next_contexts[index] for index in indices[::n]]
    return prompts, completions, np.concatenate(rewards).astype(np.float32)


def draw_update_learners(run: ActiveRun, update: int, num_learners: int) -> tuple[Learners, Domain]:
    """Draw the learners of an update; return them and their domain."""
    sizes, edit_steps = LAKE_VARIANTS[update % len(LAKE_VARIANTS)]
    bounds = {"sizes": sizes, "edit_steps": edit_steps}
    domain = lake_domain(run.config.lake.bounds.model_copy(update=bounds), acceptance=None)
    return draw_learners(Prior(), domain, num_learners, STAGES, (run.config.seed, update)), domain


def evaluate_held_out(run: ActiveRun, sampler: Sampler) -> dict[str, float]:
    """Return the final valid rates of greedy designs and of `rule` on 4 groups, in points."""
    learners, domain = draw_update_learners(run, len(LAKE_VARIANTS) * 10**6, NUM_HELD_OUT)
    *_, greedy_rates = roll_out(run, sampler, learners, domain, n=1, temperature=0.0, update=0)
    rule_rates = simulate_runs([[]] * NUM_HELD_OUT, learners, domain)[0]
    return {"greedy": greedy_rates[-NUM_HELD_OUT:].mean(), "rule": rule_rates.mean()}


def train(config: RunConfig, path: Path) -> Path:
    """Train in the directory `path`, or resume there, and return the folder of the model."""
    folder = huggingface.resolve_model(config.model.pretrained or "jaxlake-base")
    policy, params = load_run_policy(folder, config)
    recipe = load_config(Recipe, Path(__file__).with_name("recipe.yaml"), ["boards.count=4096"])
    plans = policy.encode_examples(draw_plans(recipe, draw_held_out(recipe, 32)))
    with (
        open_run(config, path) as (directory, _),
        closing(Checkpoints(directory.checkpoints)) as checkpoints,
    ):
        run = ActiveRun(config, directory, checkpoints, policy, validation=None)
        state = initial_state(params, make_grpo_optimizer(config.grpo, config.grpo_steps))
        progress = checkpoints.progress()
        state = checkpoints.restore(state) if progress else state
        with closing(start_sampler(policy, state.params, config.sampling, path)) as sampler:
            for update in range(progress.update if progress else 0, config.updates_per_stage + 1):
                record: dict[str, Any] = {"update": update}
                is_last = update == config.updates_per_stage
                if is_last or update % EVALUATE_EVERY == 0:
                    checkpoints.save(state, RunProgress("train", 1, update, update))
                    record |= evaluate_held_out(run, sampler)
                if not is_last:
                    state, metrics = _take_update(run, sampler, state, plans, update)
                    record |= metrics
                _log_record(directory, record)
        policy.export(state.params, path / "model")
    return path / "model"


def _take_update(
    run: ActiveRun, sampler: Sampler, state: Any, plans: Sequence[Any], update: int
) -> tuple[Any, dict[str, Any]]:
    start_time, config, grpo = time.process_time(), run.config, run.config.grpo
    rehearsal, temperature = config.rehearsal, config.sampling.temperature
    learners, domain = draw_update_learners(run, update, grpo.prompts_per_update // NUM_DESIGNS)
    prompts, completions, rewards = roll_out(
        run, sampler, learners, domain, n=grpo.completions, temperature=temperature, update=update
    )
    micro_batches, width = config.micro_batches, config.engineer.max_tokens
    batch = make_grpo_batch(
        run,
        state.params,
        prompts,
        completions,
        rewards,
        width=width,
        bundles=micro_batches,
        minibatches=1,
    )
    rng = np.random.default_rng([config.seed, update])
    rows = rng.choice(len(plans), rehearsal.contexts if rehearsal else 1, replace=False)
    length = max(len(prompt) + len(answer) for prompt, answer in plans)
    examples = pad_sequences(
        *zip(*(plans[row] for row in rows), strict=True), bucket=length, pad_id=run.policy.pad_id
    )
    take_step = make_grpo_step(run.policy.graphdef, grpo, rehearsal, temperature, config.grpo_steps)
    state, metrics = take_step(state, split_rows(batch, micro_batches), examples, np.int32(update))
    require_finite_metrics(jax.device_get(metrics))
    sampler.sync(run.policy.tensors(state.params))
    return state, {
        "reward": rewards.mean(),
        "spread": rewards.std(axis=1).mean(),
        "varied": has_reward_variance(rewards).mean(),
        "nats": -np.concatenate([completion.logprobs for completion in completions]).mean(),
        "grad_norm": metrics["grad_norm"],
        "rehearsal_loss": metrics["rehearsal_loss"],
        "seconds": time.process_time() - start_time,
    }


def _log_record(directory: RunDirectory, record: dict[str, Any]) -> None:
    with (directory.path / "by_return.jsonl").open("a") as file:
        print(json.dumps({name: six_digits(value) for name, value in record.items()}), file=file)
    console.print("  ".join(f"{name} {value:.5g}" for name, value in record.items()))


def main(arguments: list[str] | None = None) -> int:
    """Train the policy of a configuration, or resume its training."""
    parser = argparse.ArgumentParser(prog="python -m examples.base_model.by_return")
    parser.add_argument("config", type=Path)
    parser.add_argument("--set", metavar="KEY=VALUE", nargs="+", default=[])
    parser.add_argument("--run-dir", metavar="DIR", type=Path, help="default: runs/NAME")
    args = parser.parse_args(arguments)
    try:
        config = load(args.config, args.set)
        console.print(f"{train(config, args.run_dir or Path('runs') / config.name)}: the model")
    except UserError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
