"""A run directory without training.

Boards, plans, verdicts and decisions are real; weights and update records are made up.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
from safetensors.numpy import save_file
from transformers import PreTrainedTokenizerFast

import engineer
from engineer.context.token_limit import CountTokens, estimate_tokens
from engineer.quoting import escape_surrogates
from jaxlake import Action
from jaxlake.language.prompts import target
from training.audit import write_stage_digests
from training.phases import design
from training.phases.picking import get_stage_instances
from training.phases.stage_results import get_configuration, read_stage_results
from training.phases.summary import make_summary
from training.phases.validate import SampledAnswer, apply_gate, judge_answers, validation_set
from training.policy.tokenizer import train_tokenizer
from training.rollout.instances import InstanceSet
from training.run import records
from training.run.directory import RunDirectory
from training.run.seeds import derive_seed
from training.schema import RunConfig

HOSTILE_TEXT = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp; \u202e \ud800"
"""Model output that pages must escape; the last character is a lone surrogate."""

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
    "stages": {"count": 3, "instances": 320},
    "grpo": {"prompts_per_update": 8, "completions": 8},
    "validation": {
        "sizes": [3, 4, 5],
        "hole_ratios": [0.1, 0.25],
        "wait_ratios": [0.3],
        "per_cell": 20,
    },
    "engineer": {"style": "full"},
}
UPDATES_PER_STAGE = 40
NUM_COMPLETIONS = 6
SKILLS = (0.25, 0.45, 0.6, 0.8)
"""Share of answers left undamaged after the warm start and after each stage."""

DESIGNS = (
    (
        HOSTILE_TEXT,
        '{"3": {"data_ratio": 0.2, "hole_ratio": 0.2, "wait_ratio": 0.3}, '
        '"4": {"data_ratio": 0.4, "hole_ratio": 0.2, "wait_ratio": 0.3}, '
        '"5": {"data_ratio": 0.4, "hole_ratio": 0.1, "wait_ratio": 0.2}}',
    ),
    (
        '{"3": {"data_ratio": 0.1, "hole_ratio": 0.2, "wait_ratio": 0.4}, '
        '"4": {"data_ratio": 0.4, "hole_ratio": 0.9, "wait_ratio": 0.3}, '
        '"5": {"data_ratio": 0.9, "hole_ratio": 0.2, "wait_ratio": 0.3}}',
    ),
    ("I would rather not.", "{}", HOSTILE_TEXT),
)
"""The engineer's answers per stage: rejected then accepted, repaired, never usable."""

NOTES = ("More holes next.", f"Size 5 again.\n{HOSTILE_TEXT[:-1]}", "")
"""The engineer's notes for the next stage, for contexts with a Summary block."""


def write_sample_run_with_tokenizer(
    path: Path, engineer_section: dict[str, Any], skills: tuple[float, ...] = SKILLS
) -> Path:
    """Write a sample run with this `engineer` section, whose policies have a tokenizer."""
    config = RunConfig.model_validate(CONFIG | {"engineer": engineer_section})
    tokenizer = train_tokenizer(
        [escape_surrogates(text) for answers in DESIGNS for text in answers], 300
    )
    return write_sample_run(path, config, skills=skills, tokenizer=tokenizer)


def write_sample_run(
    path: Path,
    config: RunConfig | None = None,  # must have three stages; default: `CONFIG`
    *,
    skills: Sequence[float] = SKILLS,
    count_tokens: CountTokens | None = None,  # in the engineer's answers; default: an estimate
    design_seconds: float | None = None,  # logged for each Design phase unless None
    tokenizer: PreTrainedTokenizerFast | None = None,  # the policy's; overrides `count_tokens`
) -> Path:
    """Write a finished run of three stages without checkpoints, and return `path`.

    Without a tokenizer, the policies, the data on the training boards and the chain are omitted.
    """
    config = config or RunConfig.model_validate(CONFIG)
    directory = RunDirectory(path)
    directory.claim(config)
    rng = np.random.default_rng(config.seed)
    boards = validation_set(config)
    if tokenizer is not None:
        count_tokens = _make_token_counter(tokenizer)
    warm_start = [
        records.WarmStartMetrics(
            step=step,
            loss=3.1 * math.exp(-step / 60) + 0.4,
            engineer_loss=4.2 * math.exp(-step / 50) + 0.2,
        )
        for step in range(10, 201, 10)
    ]
    updates = list(_make_updates(rng, config, skills))
    directory.metrics.write([*warm_start, *updates])
    directory.timings.write(_make_timings(updates, design_seconds))

    for stage in range(config.stages.count + 1):
        files, training_boards = directory.stage(stage), None
        if stage > 0:
            configuration = get_configuration(config, read_stage_results(directory, config), stage)
            files.configuration.write(configuration)
            if tokenizer is not None:
                stage_boards = get_stage_instances(config, directory, stage, configuration, boards)
                files.shortfalls.write(stage_boards.shortfalls)
                files.environment.write(stage_boards.statistics)
                training_boards = stage_boards.instances
        texts = _make_answers(np.random.default_rng([config.seed, stage]), boards, skills[stage])
        answers = [SampledAnswer(text, 18, truncated=False) for text in texts]
        files.episodes.write(judge_answers(config, boards, answers))
        if stage > 0:
            _run_design(directory, config, count_tokens or estimate_tokens)
        if tokenizer is not None:
            tokenizer.save_pretrained(files.policy)
            weights = {"weight": np.full((2, 3), stage, np.float32)}
            save_file(weights, files.policy / "model.safetensors")
            write_stage_digests(config, directory, boards, stage, training_boards)
    directory.summary.write(make_summary(config, read_stage_results(directory, config)))
    return path


def _make_token_counter(tokenizer: PreTrainedTokenizerFast) -> CountTokens:
    """Return a function that counts the tokens of a text, which may have lone surrogates."""
    return lambda text: len(tokenizer.encode(escape_surrogates(text), add_special_tokens=False))


def _make_answers(rng: np.random.Generator, boards: InstanceSet, skill: float) -> list[str]:
    """Return answers: a share of `skill` are optimal plans, the others are damaged plans."""
    plans = np.asarray(boards.solutions.plan)
    return [
        target(plan) if rng.random() < skill else _damage_plan(rng, plan, int(size))
        for plan, size in zip(plans, np.asarray(boards.instances.size), strict=True)
    ]


def _damage_plan(rng: np.random.Generator, plan: np.ndarray, size: int) -> str:
    damage = rng.choice(["junk", "short", "far", "swapped", "detour", "random"])
    plan = plan.copy()
    length = int(np.flatnonzero((plan != Action.WAIT).any(axis=1)).max()) + 1
    if damage == "junk":
        return f"Agent 0: {HOSTILE_TEXT}"
    if damage == "short":
        plan[length - 1 :] = Action.WAIT
    elif damage == "far":
        plan[length : length + size] = rng.choice(list(Action)[1:])
    elif damage == "swapped":
        plan = plan[:, ::-1]
    elif damage == "detour":
        plan[:length] = np.roll(plan[:length], 1, axis=0)
    else:
        plan[:length] = rng.integers(0, 5, plan[:length].shape)
    return target(plan)


def _make_updates(
    rng: np.random.Generator, config: RunConfig, skills: Sequence[float]
) -> Iterator[records.UpdateMetrics]:
    """Yield the records of updates of a policy that improves."""
    num_updates = UPDATES_PER_STAGE * config.stages.count
    groups = list(config.environment.initial.values())
    for index in range(num_updates):
        rate = float(np.interp(index, [0, num_updates - 1], skills[::3]))
        valid_counts = {group: int(rng.binomial(NUM_COMPLETIONS, rate)) for group in groups}
        valid_rate = sum(valid_counts.values()) / (NUM_COMPLETIONS * len(groups))
        stage, update = divmod(index, UPDATES_PER_STAGE)
        yield records.UpdateMetrics(
            stage=stage + 1,
            update=update + 1,
            step=200 + index + 1,
            reward_mean=valid_rate,
            valid_rate=valid_rate,
            optimal_rate=valid_rate,
            parsed_rate=0.9,
            by_group={group: _make_group_metrics(count) for group, count in valid_counts.items()},
            loss=float(rng.normal(-0.01, 0.02)),
            entropy=0.5 * math.exp(-index / 80) + 0.08,
            clip_share=0.02,
            zero_variance_share=0.35,
            completion_length=18.0,
            importance_ratio_mean=1.0,
            grad_norm=0.5,
            sampler_gap=1e-6,
            truncated_share=0.0,
        )


def _make_group_metrics(num_valid: int) -> records.GroupMetrics:
    rate, num_failed = num_valid / NUM_COMPLETIONS, NUM_COMPLETIONS - num_valid
    return records.GroupMetrics(
        count=NUM_COMPLETIONS,
        valid=num_valid,
        scores={"optimal_sum_of_costs": num_valid},
        failures={"hole": num_failed} if num_failed else {},
        reward=rate,
        learnability=rate * (1 - rate),
        readable=NUM_COMPLETIONS,
        truncated=0,
        tokens=18.0,
        prompts=1,
        without_success=int(num_valid == 0),
    )


def _make_timings(
    updates: list[records.UpdateMetrics], design_seconds: float | None
) -> Iterator[records.TimingRecord]:
    for record in updates:
        seconds = {"rollout": 1.2, "verify": 0.03, "update": 0.9, "sync": 0.15}
        position = {name: getattr(record, name) for name in ("phase", "stage", "update", "step")}
        yield records.TimingRecord(**position, seconds=seconds)
    for stage in range(4):
        seconds = {"validate": 9.5}
        yield records.TimingRecord(phase="validate", stage=stage, step=200, seconds=seconds)
    for stage in range(1, 4) if design_seconds is not None else ():
        seconds = {"design": design_seconds}
        yield records.TimingRecord(phase="design", stage=stage, step=200, seconds=seconds)


def _run_design(directory: RunDirectory, config: RunConfig, count_tokens: CountTokens) -> None:
    """Let the Design phase ask an engineer whose answers are scripted."""
    results = read_stage_results(directory, config)
    results[-1] = apply_gate(config, directory, results)
    stage = results[-1].stage
    answers = iter(DESIGNS[stage - 1])

    def generate(request: engineer.TextRequest) -> engineer.GeneratedText:
        asks_for_notes = "Write notes to yourself" in request.prompt
        text = NOTES[stage - 1] if asks_for_notes else next(answers, "no more")
        return engineer.GeneratedText(text, count_tokens(text))

    run: Any = SimpleNamespace(
        config=config,
        directory=directory,
        policy=SimpleNamespace(count_tokens=count_tokens),
        log_duration=lambda phase, stage: nullcontext(),
        seed=partial(derive_seed, config.seed),
    )
    model_engineer, sampler = engineer.LanguageModelEngineer(generate), cast(Any, None)
    with mock.patch.object(design, "make_engineer", return_value=model_engineer):
        design.design(run, sampler, results)
