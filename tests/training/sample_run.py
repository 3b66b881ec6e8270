"""A run directory without training: real boards, plans, verdicts and decisions, invented curves.

Boards are generated and solved by the lake, answers are its optimal plans or damaged ones, every
verdict is the verifier's, and contexts and decisions come out of the engineer's own pipeline, asked
with scripted answers. Only the weights and the optimizer's numbers (loss, entropy and the like) are
made up.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from transformers import PreTrainedTokenizerFast

import engineer
from engineer import Engineer, GeneratorEngineer, ShuffledEngineer, Writer
from engineer.attempt import writable
from engineer.context.budget import CountTokens, characters_over_three
from engineer.context.summary import summary_question
from engineer.engineers import (
    CopyPreviousEngineer,
    FixedEngineer,
    Generated,
    OracleEngineer,
    ProbeResult,
)
from engineer.engineers.catalogue import SHUFFLED
from engineer.space import Configuration
from jaxlake import Action
from training.config import ORACLE, RunConfig
from training.design.gate import gate
from training.design.phase import write_record
from training.instances import InstanceSet
from training.judge import Verdict, judge
from training.language.prompts import target
from training.language.tokenizer import train_tokenizer
from training.phases import validate
from training.phases.boards import draw_boards, write_boards
from training.phases.context import entropy_for
from training.provenance import seal
from training.run.directory import RunDirectory, write_json, write_json_lines, write_text
from training.run.records import (
    NOTES as NOTES_FILE,
)
from training.run.records import (
    NOTES_PROMPT,
    charged,
    configuration_for,
    settings_of,
    view_of,
    write_configuration,
)
from training.run.summary import summarise

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
        "max_candidates": 20_000,
    },
    "sampling": {"max_model_len": 8192},
    "warm_start": {"steps": 200},
    "stages": {"rounds": 3, "instances": 320},
    "grpo": {"prompts_per_update": 8, "completions": 8},
    "validation": {
        "sizes": [3, 4, 5],
        "hole_ratios": [0.1, 0.25],
        "wait_ratios": [0.3],
        "per_cell": 20,
    },
    "engineer": {"style": "full"},
}
PROBE_ROLLOUTS = 100
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

NOTES = ("More holes next.", f"Size 5 again.\n{HOSTILE[:-1]}", "")
"""What it writes down for the next round where there is a Summary block; nothing in the last."""


def write_run(path: Path, choice: dict[str, Any], skill: tuple[float, ...] = SKILL) -> Path:
    """A sample run with this `engineer` section, whose policies have a tokenizer."""
    config = RunConfig.model_validate(CONFIG | {"engineer": choice})
    tokenizer = train_tokenizer([writable(text) for answers in DESIGNS for text in answers], 300)
    return write_sample_run(path, config, skill=skill, tokenizer=tokenizer)


def write_sample_run(
    path: Path,
    config: RunConfig | None = None,
    *,
    skill: Sequence[float] = SKILL,
    count_tokens: CountTokens | None = None,
    design_seconds: float | None = None,
    tokenizer: PreTrainedTokenizerFast | None = None,
) -> Path:
    """Write a finished run of three rounds, all but checkpoints, and return `path`.

    Args:
        path: the run's directory.
        config: like `CONFIG`, of three rounds; None: `CONFIG`.
        skill: see `SKILL`.
        count_tokens: of the engineer's answers; None: tokens are unknown.
        design_seconds: logged for each Design phase; None: none is logged.
        tokenizer: of the policy, counts tokens then; None: leave out the policies, what is known of
            the training boards, and the chain.
    """
    config = config or RunConfig.model_validate(CONFIG)
    directory = RunDirectory(path)
    directory.claim(config)
    rng = np.random.default_rng(config.seed)
    boards = validate.boards_for(config)
    if tokenizer is not None:
        count_tokens = _counter(tokenizer)
    warm = [
        {
            "phase": "warm_start",
            "step": step,
            "loss": 3.1 * math.exp(-step / 60) + 0.4,
            "engineer_loss": 4.2 * math.exp(-step / 50) + 0.2,
        }
        for step in range(10, 201, 10)
    ]
    updates = list(_updates(rng, boards, config, skill))
    write_json_lines(path / "metrics.jsonl", [*warm, *updates])
    write_json_lines(path / "timings.jsonl", _timings(rng, updates, design_seconds))

    for stage in range(config.stages.rounds + 1):
        folder = directory.stage(stage)
        trained_on = None
        if stage > 0:
            write_configuration(directory, stage, configuration_for(config, directory, stage))
            if tokenizer is not None:
                trained_on = _draw(directory, config, stage, boards)
        texts = _answers(rng, boards, skill[stage])
        verdict = judge(boards, texts, config.prompt)
        validate.write_episodes(folder, boards, texts, verdict)
        validate.write_tables(folder, stage, validate.tally(boards, verdict))
        if stage > 0:
            _design(directory, config, stage, count_tokens)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder / "policy")
            weights = {"weight": np.full((2, 3), stage, np.float32)}
            save_file(weights, folder / "policy" / "model.safetensors")
            seal(config, directory, boards, stage, trained_on)
    write_json(directory.summary, summarise(directory, config))
    return path


def _counter(tokenizer: PreTrainedTokenizerFast) -> CountTokens:
    """How many tokens any text is, half surrogate pairs too, which no tokenizer takes."""
    return lambda text: len(tokenizer.encode(writable(text), add_special_tokens=False))


def _draw(
    directory: RunDirectory, config: RunConfig, stage: int, validation: InstanceSet
) -> InstanceSet:
    """Draw what a round trains on, and write what the loop writes of it."""
    configuration = configuration_for(config, directory, stage)
    drawn = draw_boards(config, stage, configuration, validation)
    write_boards(directory.stage(stage), drawn)
    return drawn.boards


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
    rng: np.random.Generator, boards: InstanceSet, config: RunConfig, skill: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """Rollouts of a policy that gets better, verified together; optimizer numbers are invented."""
    count = UPDATES * config.stages.rounds
    rows = rng.integers(0, len(boards), count * COMPLETIONS)
    chosen = boards.take(rows)
    texts = []
    for number in range(count):
        part = boards.take(rows[number * COMPLETIONS : (number + 1) * COMPLETIONS])
        texts += _answers(rng, part, float(np.interp(number, [0, count - 1], skill[::3])))
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


def _timings(
    rng: np.random.Generator, updates: list[dict[str, Any]], design_seconds: float | None
) -> list[dict[str, Any]]:
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
    designs = [
        {"phase": "design", "stage": stage, "step": 200, "seconds": {"design": design_seconds}}
        for stage in range(1, 4)
        if design_seconds is not None
    ]
    return [*train, *validations, *designs]


def _oracle(
    directory: RunDirectory, config: RunConfig, stage: int, checkpoint: Engineer
) -> OracleEngineer:
    """The configuration's oracle, whose probes score ever higher."""
    scripted = {
        "checkpoint": checkpoint,
        "fixed": FixedEngineer(config.environment.initial),
        "copy_previous": CopyPreviousEngineer(),
        "shuffled:checkpoint": ShuffledEngineer(checkpoint),
    }
    records: list[dict[str, Any]] = []

    def probe(configuration: Configuration) -> ProbeResult:
        records.append(
            {
                "probe": len(records),
                "configuration": configuration.model_dump(mode="json"),
                "valid": 10 + len(records),
                "count": 36,
                "instances": 16,
                "rollouts": PROBE_ROLLOUTS,
            }
        )
        write_json_lines(directory.stage(stage) / "probes.jsonl", records)
        score = records[-1]["valid"] / records[-1]["count"]
        return ProbeResult(score=score, instances=16, rollouts=PROBE_ROLLOUTS)

    return OracleEngineer(
        tuple(scripted[name] for name in config.engineer.oracle.candidates),
        probe,
        config.engineer.oracle.max_probes,
        PROBE_ROLLOUTS,
        settings_of(config, view_of(config, directory, stage)).guard,
    )


def _design(
    directory: RunDirectory, config: RunConfig, stage: int, count_tokens: CountTokens | None
) -> None:
    """Ask for the next configuration with scripted answers, and write what the loop writes."""
    answers = iter(DESIGNS[stage - 1])
    gate(config, directory, stage)
    view = view_of(config, directory, stage)
    count = count_tokens or characters_over_three

    def generate(prompt: str, schema: object, seed: int, most: int | None) -> Generated:
        text = next(answers, "no more")
        return Generated(text, count(text))

    asked: Engineer = GeneratorEngineer(generate)
    if config.engineer.kind.startswith(SHUFFLED):
        asked = ShuffledEngineer(asked)
    if config.engineer.kind == ORACLE:
        asked = _oracle(directory, config, stage, asked)
    record = engineer.design(
        asked,
        view,
        settings_of(config, view),
        seed=lambda attempt: entropy_for(config.seed, "design", stage, attempt),
        count_tokens=count,
    )
    note, tokens = NOTES[stage - 1], 0
    if "summary" in config.engineer.blocks and note and isinstance(asked, Writer):
        prompt = summary_question(view, record.configuration, config.engineer.style)
        write_text(directory.stage(stage) / NOTES_PROMPT, prompt)
        write_text(directory.stage(stage) / NOTES_FILE, note)
        tokens = count(note)
    write_record(directory.stage(stage), charged(record, view, tokens))
