"""Validate: the trainee answers the fixed validation set, and every answer is verified."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from engineer import lake_evidence
from jaxlake import Failure, Statistics, statistics, tabulate
from training.config import RunConfig
from training.instances import InstanceSet, draw, grid_cells
from training.judge import Verdict, judge
from training.language.prompts import render
from training.phases.context import Run
from training.policy import Policy
from training.run.directory import read_json, write_json, write_json_lines
from training.run.progress import console, track
from training.sampling.vllm_sampler import VllmSampler

CHUNK = 512  # prompts given to vLLM at a time, so that there is progress to show

_tabulate = jax.jit(tabulate)


def boards_for(config: RunConfig) -> InstanceSet:
    """The fixed validation set: it depends on `validation` and the number of agents alone."""
    wanted = config.validation
    boards, fills = draw(
        jax.random.key(wanted.seed),
        grid_cells(
            wanted.sizes,
            wanted.hole_ratios,
            wanted.wait_ratios,
            wanted.per_cell,
            num_agents=config.environment.num_agents,
        ),
        max_size=max((*wanted.sizes, *config.environment.bounds.sizes)),
        max_candidates=config.environment.max_candidates,
    )
    for fill in fills:
        if not fill.complete:
            console.print(f"validation set: {fill}", style="yellow")
    return boards


def validate(run: Run, sampler: VllmSampler, stage: int) -> dict[str, Any]:
    """Answer, verify, tabulate and write `validation.json`; a result that is there is read back.

    Returns: {"stage", "rows", "total"}, as `summarise` makes them.
    """
    folder = run.directory.stage(stage)
    if (folder / "validation.json").exists():
        return read_json(folder / "validation.json")
    seconds: dict[str, float] = {}
    with run.clock(seconds, "validate"):
        title = f"round {stage}: validate"
        texts = answer(run.config, run.policy, sampler, run.validation, title=title)
        verdict = judge(run.validation, texts, run.config.prompt)
        table = tally(run.validation, verdict)
    write_episodes(folder, run.validation, texts, verdict)
    result = write_tables(folder, stage, table)
    run.directory.timings.append(
        {
            "phase": "validate",
            "stage": stage,
            "step": run.step(stage, run.config.updates_per_round),
            "seconds": seconds,
        }
    )
    return result


def answer(
    config: RunConfig, policy: Policy, sampler: VllmSampler, boards: InstanceSet, *, title: str
) -> list[str]:
    """One answer a board, at the validation temperature."""
    prompts = [policy.encode_prompt(render(grid, config.prompt.style)) for grid in boards.grids]
    texts: list[str] = []
    with track(title, len(prompts)) as advance:
        for first in range(0, len(prompts), CHUNK):
            groups = sampler.sample(
                prompts[first : first + CHUNK],
                n=1,
                temperature=config.validation.temperature,
                max_tokens=config.prompt.max_tokens,
                stop_token_ids=policy.stop_ids,
                seed=config.validation.seed + first,
            )
            texts += [policy.decode(completion.token_ids) for (completion,) in groups]
            advance(len(texts))
    return texts


def tally(boards: InstanceSet, verdict: Verdict) -> Statistics:
    """Failure statistics by size, holes, waits and kind, reduced on the device."""
    return jax.device_get(
        _tabulate(
            jax.tree.map(jnp.asarray, boards.instances),
            jnp.asarray(boards.solutions.needs_wait),
            jax.tree.map(jnp.asarray, verdict.outcomes),
            solutions=jax.tree.map(jnp.asarray, boards.solutions),
        )
    )


def summarise(table: Statistics) -> dict[str, Any]:
    """The rows of `validation.json`: by size, and in all."""
    return {
        "rows": [_row(row) for row in statistics.rows(table, by=("size",))],
        "total": _row(statistics.rows(table, by=())[0]),
    }


def write_tables(folder: Path, stage: int, table: Statistics) -> dict[str, Any]:
    """Write `evidence.json`, for the engineer, and then `validation.json`, which is returned."""
    evidence = lake_evidence(stage, table)
    write_json(folder / "evidence.json", evidence.model_dump(mode="json"))
    result = {"stage": stage, **summarise(table)}
    write_json(folder / "validation.json", result)
    return result


def write_episodes(folder: Path, boards: InstanceSet, texts: list[str], verdict: Verdict) -> None:
    """Write `episodes.jsonl`, an answer a line, and `failures.jsonl`, those that failed."""
    episodes = episodes_of(boards, texts, verdict)
    write_json_lines(folder / "episodes.jsonl", episodes)
    write_json_lines(folder / "failures.jsonl", failures_of(episodes))


def episodes_of(
    boards: InstanceSet, texts: Sequence[str], verdict: Verdict
) -> list[dict[str, Any]]:
    """The records of `episodes.jsonl`: every board, the answer to it and what became of that."""
    outcomes = verdict.outcomes
    return [
        {
            "id": row,
            "size": int(boards.instances.size[row]),
            "grid": list(boards.grids[row]),
            "needs_wait": bool(boards.solutions.needs_wait[row]),
            "optimum": int(boards.solutions.sum_of_costs[row]),
            "text": texts[row],
            "plan": verdict.plan_names(row),
            "valid": bool(outcomes.valid[row]),
            "optimal_sum_of_costs": bool(outcomes.optimal_sum_of_costs[row]),
            "optimal_makespan": bool(outcomes.optimal_makespan[row]),
            "failure": None if outcomes.valid[row] else Failure(int(outcomes.failure[row])).label,
            "agent": _or_none(outcomes.agent[row]),
            "time": _or_none(outcomes.time[row]),
            "sum_of_costs": _or_none(outcomes.sum_of_costs[row]),
            "reason": verdict.answers[row].reason,
        }
        for row in range(len(boards))
    ]


def failures_of(episodes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of `failures.jsonl`: the episodes whose answer is not valid."""
    return [episode for episode in episodes if not episode["valid"]]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    labels = [kind.label for kind in Failure if kind is not Failure.NONE]
    kept = {name: value for name, value in row.items() if name not in labels and name != "total"}
    return kept | {"count": row["total"], "failures": {label: row[label] for label in labels}}


def _or_none(value: Any) -> int | None:
    return None if value < 0 else int(value)
