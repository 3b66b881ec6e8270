"""A run directory without training: real boards, plans, verdicts and decisions, invented curves.

Boards are generated and solved by the lake, answers are its optimal plans or damaged ones, every
verdict is the verifier's, and contexts and decisions come out of the engineer's own pipeline, asked
with scripted answers. Only the numbers of the optimizer (loss, entropy and the like) are made up.
"""

import math
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import engineer
from engineer import DesignSettings, GeneratorEngineer, LakeConfiguration
from jaxlake import Action
from training.config import RunConfig
from training.instances import InstanceSet, draw, grid_cells
from training.judge import Verdict, judge
from training.language.prompts import target
from training.phases import validate
from training.phases.design import evidence_of, history_before
from training.run.directory import RunDirectory, write_json, write_json_lines, write_text

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp; \u202e \ud800"
"""What a model may write and no page may run; the last character is half of a surrogate pair."""

CONFIG = {
    "name": "sample",
    "seed": 7,
    "model": {"pretrained": None},
    "environment": {
        "initial": {
            "sizes": {
                size: {"data_ratio": share, "hole_ratio": 0.1, "wait_ratio": 0.2}
                for size, share in ((3, 0.4), (4, 0.3), (5, 0.3))
            }
        },
        "bounds": {
            "sizes": [3, 4, 5],
            "max_hole_ratio": 0.3,
            "max_wait_ratio": 0.5,
            "min_share": 0.1,
        },
    },
    "warm_start": {"steps": 200},
    "stages": {"rounds": 3, "instances": 320},
    "grpo": {"prompts_per_update": 8, "completions": 8},
    "validation": {
        "sizes": [3, 4, 5],
        "hole_ratios": [0.1, 0.25],
        "wait_ratios": [0.3],
        "per_cell": 20,
    },
}
UPDATES = 40
COMPLETIONS = 16
SKILL = (0.25, 0.45, 0.6, 0.8)
"""Share of answers left undamaged after the warm start and after each round."""

DESIGNS = (
    (
        HOSTILE,
        '{"3": {"data_ratio": 0.2, "hole_ratio": 0.2, "wait_ratio": 0.3}, '
        '"4": {"data_ratio": 0.4, "hole_ratio": 0.2, "wait_ratio": 0.3}, '
        '"5": {"data_ratio": 0.4, "hole_ratio": 0.1, "wait_ratio": 0.2}}',
    ),
    (
        '{"3": {"data_ratio": 0.1, "hole_ratio": 0.2, "wait_ratio": 0.4}, '
        '"4": {"data_ratio": 0.4, "hole_ratio": 0.9, "wait_ratio": 0.3}, '
        '"5": {"data_ratio": 0.9, "hole_ratio": 0.2, "wait_ratio": 0.3}}',
    ),
    ("I would rather not.", "{}", HOSTILE),
)
"""What the engineer answers after each round: refused then accepted, repaired, never usable."""


def write_sample_run(path: Path) -> Path:
    """Write a finished run of three rounds, all but checkpoints and policies, and return `path`."""
    config = RunConfig.model_validate(CONFIG)
    directory = RunDirectory(path)
    directory.claim(config)
    rng = np.random.default_rng(config.seed)
    wanted = config.validation
    boards, _ = draw(
        jax.random.key(wanted.seed),
        grid_cells(
            wanted.sizes, wanted.hole_ratios, wanted.wait_ratios, wanted.per_cell, num_agents=2
        ),
        max_size=max(wanted.sizes),
        max_candidates=20_000,
    )
    warm = [
        {
            "phase": "warm_start",
            "step": step,
            "loss": 3.1 * math.exp(-step / 60) + 0.4,
            "engineer_loss": 4.2 * math.exp(-step / 50) + 0.2,
        }
        for step in range(10, 201, 10)
    ]
    updates = list(_updates(rng, boards, config))
    write_json_lines(path / "metrics.jsonl", [*warm, *updates])
    write_json_lines(path / "timings.jsonl", _timings(rng, updates))

    configuration = config.environment.initial
    for stage in range(config.stages.rounds + 1):
        folder = directory.stage(stage)
        texts = _answers(rng, boards, SKILL[stage])
        verdict = judge(boards, texts, config.prompt)
        validate.write_episodes(folder, boards, texts, verdict)
        validate.write_tables(folder, stage, validate.tally(boards, verdict))
        if stage > 0:
            write_json(folder / "configuration.json", configuration.model_dump(mode="json"))
            configuration = _design(directory, config, stage, configuration)
    write_json(directory.summary, {"finished": True, "name": config.name, "seed": config.seed})
    return path


def _answers(rng: np.random.Generator, boards: InstanceSet, skill: float) -> list[str]:
    """Optimal plans in words, all but a share of `skill` of them damaged in one of many ways."""
    plans = np.asarray(boards.solutions.plan)
    return [
        target(plan) if rng.random() < skill else _damaged(rng, plan, int(size))
        for plan, size in zip(plans, np.asarray(boards.instances.size), strict=True)
    ]


def _damaged(rng: np.random.Generator, plan: np.ndarray, size: int) -> str:
    kind = rng.choice(["junk", "short", "far", "swapped", "detour", "random"])
    plan = plan.copy()
    length = int(np.flatnonzero((plan != Action.WAIT).any(axis=1)).max()) + 1
    if kind == "junk":
        return f"Agent 0: {HOSTILE}"
    if kind == "short":
        plan[length - 1 :] = Action.WAIT
    elif kind == "far":
        plan[length : length + size] = rng.choice(list(Action)[1:])
    elif kind == "swapped":
        plan = plan[:, ::-1]
    elif kind == "detour":
        plan[:length] = np.roll(plan[:length], 1, axis=0)
    else:
        plan[:length] = rng.integers(0, 5, plan[:length].shape)
    return target(plan)


def _updates(
    rng: np.random.Generator, boards: InstanceSet, config: RunConfig
) -> Iterator[dict[str, Any]]:
    """Rollouts of a policy that gets better, verified together; optimizer numbers are invented."""
    count = UPDATES * config.stages.rounds
    rows = rng.integers(0, len(boards), count * COMPLETIONS)
    chosen = boards.take(rows)
    texts = []
    for number in range(count):
        part = boards.take(rows[number * COMPLETIONS : (number + 1) * COMPLETIONS])
        texts += _answers(rng, part, float(np.interp(number, [0, count - 1], SKILL[::3])))
    verdict = judge(chosen, texts, config.prompt)
    sizes = np.asarray(chosen.instances.size)
    for number in range(count):
        part_rows = slice(number * COMPLETIONS, (number + 1) * COMPLETIONS)
        stage, update = divmod(number, UPDATES)
        yield {
            "phase": "train",
            "stage": stage + 1,
            "update": update + 1,
            "step": 200 + number + 1,
            **_rates(verdict, sizes, part_rows),
            "loss": float(rng.normal(-0.01, 0.02)),
            "entropy": 0.5 * math.exp(-number / 80) + float(rng.normal(0.08, 0.01)),
            "clip_share": float(rng.uniform(0.0, 0.04)),
            "zero_variance_share": float(np.clip(rng.normal(0.35, 0.08), 0, 1)),
            "completion_length": float(rng.normal(18, 1)),
            "sync_max_abs_diff": float(10 ** rng.normal(-5.4, 0.2)),
            "importance_ratio_mean": float(rng.normal(1, 0.002)),
        }


def _rates(verdict: Verdict, sizes: np.ndarray, rows: slice) -> dict[str, Any]:
    valid = np.asarray(verdict.outcomes.valid)[rows]
    optimal = np.asarray(verdict.outcomes.optimal_sum_of_costs)[rows]
    return {
        "reward_mean": float((0.6 * valid + 0.4 * optimal).mean()),
        "valid_rate": float(valid.mean()),
        "optimal_rate": float(optimal.mean()),
        "parsed_rate": float(np.asarray(verdict.outcomes.parsed)[rows].mean()),
        "truncated_share": 0.0,
        "by_size": {
            str(size): {
                "count": int((sizes[rows] == size).sum()),
                "valid": int(valid[sizes[rows] == size].sum()),
                "learnability": _learnability(valid[sizes[rows] == size].mean()),
            }
            for size in np.unique(sizes[rows]).tolist()
        },
    }


def _learnability(rate: float) -> float:
    return float(rate * (1 - rate))


def _timings(rng: np.random.Generator, updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    train = [
        {
            **{name: record[name] for name in ("phase", "stage", "update", "step")},
            "seconds": {
                "rollout": float(rng.uniform(1.0, 1.5)),
                "verify": float(rng.uniform(0.02, 0.04)),
                "update": float(rng.uniform(0.8, 1.0)),
                "sync": float(rng.uniform(0.1, 0.2)),
            },
        }
        for record in updates
    ]
    validations = [
        {"phase": "validate", "stage": stage, "step": 200, "seconds": {"validate": 9.5}}
        for stage in range(4)
    ]
    return [*train, *validations]


def _design(
    directory: RunDirectory, config: RunConfig, stage: int, current: LakeConfiguration
) -> LakeConfiguration:
    """Ask for the next configuration with scripted answers, and write what the loop writes."""
    answers = DESIGNS[stage - 1]
    # Evidence is read from the directory: of a run only that and its configuration are needed.
    run: Any = types.SimpleNamespace(directory=directory, config=config)
    record = engineer.design(
        GeneratorEngineer(lambda context, schema, attempt: answers[min(attempt, len(answers) - 1)]),
        evidence_of(run, stage),
        current,
        history_before(run, stage),
        settings=DesignSettings(
            bounds=config.environment.bounds,
            attempts=len(answers),
            blocks=("failure_breakdown", "training_details", "history"),
        ),
        num_agents=config.environment.num_agents,
    )
    folder = directory.stage(stage)
    write_text(folder / "context.txt", record.context)
    write_json_lines(
        folder / "answers.jsonl",
        [
            {"attempt": number, **attempt.model_dump(mode="json")}
            for number, attempt in enumerate(record.attempts)
        ],
    )
    decision = record.model_dump(mode="json", exclude={"attempts", "seconds"})
    write_json(folder / "decision.json", decision)
    return record.configuration
