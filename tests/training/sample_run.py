"""A run directory without training: real boards, plans, verdicts and decisions, invented curves.

Boards are generated and solved by the lake, answers are its optimal plans or damaged ones, every
verdict is the verifier's, and contexts and decisions come out of the engineer's own pipeline, asked
with scripted answers. Only the weights and the optimizer's numbers (loss, entropy and the like) are
made up.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from transformers import PreTrainedTokenizerFast

import engineer
from engineer.context import summary_question
from engineer.context.token_limit import CountTokens, estimate_tokens
from engineer.engineers.controls import split_control
from engineer.quoting import escape_surrogates
from engineer.scoring.reading import Agreement, FactReading, Reading
from engineer.synthetic import FACTS, Fact
from jaxlake import Action, Failure
from jaxlake.language.judging import Verdict, judge_texts
from jaxlake.language.prompts import target
from training.audit import seal
from training.phases.design import charged, write_design
from training.phases.gate import gate
from training.phases.picking import stage_boards
from training.phases.stage_results import (
    configuration_for,
    design_settings,
    read_stage_results,
    view_of,
)
from training.phases.summary import summary_of
from training.phases.train import write_configuration
from training.phases.validate import judge_answers, validation_set
from training.policy.lora import save_adapters
from training.policy.tokenizer import train_tokenizer
from training.rollout.instances import InstanceSet
from training.run import records
from training.run.directory import RunDirectory
from training.run.seeds import seed_for
from training.schema import RunConfig

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
UPDATES = 40
COMPLETIONS = 16
SKILL = (0.25, 0.45, 0.6, 0.8)
"""Share of answers left undamaged after the warm start and after each stage."""

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
"""What the engineer answers after each stage: refused then accepted, repaired, never usable."""

NOTES = ("More holes next.", f"Size 5 again.\n{HOSTILE[:-1]}", "")
"""What it writes down for the next stage where there is a Summary block; nothing in the last."""


def write_run(path: Path, choice: dict[str, Any], skill: tuple[float, ...] = SKILL) -> Path:
    """A sample run with this `engineer` section, whose policies have a tokenizer."""
    config = RunConfig.model_validate(CONFIG | {"engineer": choice})
    tokenizer = train_tokenizer(
        [escape_surrogates(text) for answers in DESIGNS for text in answers], 300
    )
    return write_sample_run(path, config, skill=skill, tokenizer=tokenizer)


def reading_with(flips: float | None, fact: Fact = "valid") -> Reading:
    """A reading whose edits follow one fact so often, and all others always."""
    facts = tuple(
        FactReading(fact=one, gap=2.0, gap_error=0.1, turned=9, flips=flips if one == fact else 1.0)
        for one in FACTS
    )
    agreement = Agreement(contexts=4, right=1.0, copying=0.5, marginals=0.5)
    return Reading(contexts=4, nats=0.1, well_formed=1.0, agreement=agreement, facts=facts)


def write_sample_run(
    path: Path,
    config: RunConfig | None = None,  # like `CONFIG`, of three stages
    *,
    skill: Sequence[float] = SKILL,
    count_tokens: CountTokens | None = None,  # of the engineer's answers; None: an estimate
    design_seconds: float | None = None,  # logged for each Design phase; None: none is logged
    tokenizer: PreTrainedTokenizerFast | None = None,  # of the policy, counts tokens then
) -> Path:
    """Write a finished run of three stages, all but checkpoints, and return `path`.

    Without a tokenizer the policies, what is known of the training boards, and the chain are left
    out.
    """
    config = config or RunConfig.model_validate(CONFIG)
    directory = RunDirectory(path)
    directory.claim(config)
    rng = np.random.default_rng(config.seed)
    boards = validation_set(config)
    if tokenizer is not None:
        count_tokens = _counter(tokenizer)
    warm_start = [
        records.WarmStartMetrics(
            step=step,
            loss=3.1 * math.exp(-step / 60) + 0.4,
            engineer_loss=4.2 * math.exp(-step / 50) + 0.2,
        )
        for step in range(10, 201, 10)
    ]
    updates = list(_updates(rng, boards, config, skill))
    directory.metrics.write([*warm_start, *updates])
    directory.timings.write(_timings(rng, updates, design_seconds))

    for stage in range(config.stages.count + 1):
        files, trained_on = directory.stage(stage), None
        if stage > 0:
            configuration = configuration_for(config, read_stage_results(directory, config), stage)
            write_configuration(files, configuration)
            if tokenizer is not None:
                drawn = stage_boards(config, directory, stage, configuration, boards)
                files.shortfalls.write(drawn.shortfalls)
                files.environment.write(drawn.environment)
                trained_on = drawn.boards
        texts = _answers(rng, boards, skill[stage])
        files.episodes.write(judge_answers(config, boards, texts))
        if stage > 0:
            _design(directory, config, count_tokens)
        if tokenizer is not None:
            tokenizer.save_pretrained(files.policy)
            weights = {"weight": np.full((2, 3), stage, np.float32)}
            save_file(weights, files.policy / "model.safetensors")
            if (lora := config.model.lora) is not None:
                factors = {"factor": np.full((2, 3), stage, np.float32)}
                save_adapters(factors, lora, files.adapters, base="0" * 8, base_name="sample")
            seal(config, directory, boards, stage, trained_on)
    directory.summary.write(summary_of(config, read_stage_results(directory, config)))
    return path


def _counter(tokenizer: PreTrainedTokenizerFast) -> CountTokens:
    """How many tokens any text is, half surrogate pairs too, which no tokenizer takes."""
    return lambda text: len(tokenizer.encode(escape_surrogates(text), add_special_tokens=False))


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
) -> Iterator[records.UpdateMetrics]:
    """Rollouts of a policy that gets better, verified together; optimizer numbers are invented."""
    count = UPDATES * config.stages.count
    rows = rng.integers(0, len(boards), count * COMPLETIONS)
    chosen = boards.take(rows)
    texts = []
    for number in range(count):
        now = float(np.interp(number, [0, count - 1], skill[::3]))
        texts += _answers(rng, chosen.part(number, COMPLETIONS), now)
    verdict = judge_texts(
        texts, chosen.instances, chosen.solutions, max_steps=config.prompt.max_steps
    )
    sizes = np.asarray(chosen.instances.size)
    for number in range(count):
        part_rows = slice(number * COMPLETIONS, (number + 1) * COMPLETIONS)
        stage, update = divmod(number, UPDATES)
        yield records.UpdateMetrics(
            stage=stage + 1,
            update=update + 1,
            step=200 + number + 1,
            **_rates(verdict, sizes, part_rows),
            loss=float(rng.normal(-0.01, 0.02)),
            entropy=0.5 * math.exp(-number / 80) + float(rng.normal(0.08, 0.01)),
            clip_share=float(rng.uniform(0.0, 0.04)),
            zero_variance_share=float(np.clip(rng.normal(0.35, 0.08), 0, 1)),
            completion_length=float(rng.normal(18, 1)),
            importance_ratio_mean=float(rng.normal(1, 0.002)),
            grad_norm=0.5,
            sampler_gap=1e-6,
            truncated_share=0.0,
        )


def _rates(verdict: Verdict, sizes: np.ndarray, rows: slice) -> dict[str, Any]:
    valid = np.asarray(verdict.outcomes.valid)[rows]
    optimal = np.asarray(verdict.outcomes.optimal_sum_of_costs)[rows]
    kinds = np.asarray(verdict.outcomes.failure)[rows]
    by_group = {}
    for size in np.unique(sizes[rows]).tolist():
        of_size = sizes[rows] == size
        rate = float(valid[of_size].mean())
        by_group[str(size)] = records.GroupMetrics(
            count=int(of_size.sum()),
            valid=int(valid[of_size].sum()),
            scores={"optimal_sum_of_costs": int(optimal[of_size].sum())},
            failures=Counter(Failure(kind).label for kind in kinds[of_size & ~valid].tolist()),
            reward=float((0.6 * valid + 0.4 * optimal)[of_size].mean()),
            learnability=rate * (1 - rate),
        )
    return {
        "reward_mean": float((0.6 * valid + 0.4 * optimal).mean()),
        "valid_rate": float(valid.mean()),
        "optimal_rate": float(optimal.mean()),
        "parsed_rate": float(np.asarray(verdict.outcomes.parsed)[rows].mean()),
        "by_group": by_group,
    }


def _timings(
    rng: np.random.Generator, updates: list[records.UpdateMetrics], design_seconds: float | None
) -> Iterator[records.TimingRecord]:
    for record in updates:
        ranges = {"rollout": (1.0, 1.5), "verify": (0.02, 0.04), "update": (0.8, 1.0)}
        ranges["sync"] = (0.1, 0.2)
        seconds = {name: float(rng.uniform(*between)) for name, between in ranges.items()}
        place = {name: getattr(record, name) for name in ("phase", "stage", "update", "step")}
        yield records.TimingRecord(**place, seconds=seconds)
    for stage in range(4):
        took = {"validate": 9.5}
        yield records.TimingRecord(phase="validate", stage=stage, step=200, seconds=took)
    for stage in range(1, 4) if design_seconds is not None else ():
        took = {"design": design_seconds}
        yield records.TimingRecord(phase="design", stage=stage, step=200, seconds=took)


def _design(directory: RunDirectory, config: RunConfig, count_tokens: CountTokens | None) -> None:
    """Ask for the next configuration with scripted answers, and write what the loop writes."""
    results = read_stage_results(directory, config)
    results[-1] = gate(config, directory, results)
    stage = results[-1].stage
    files, answers = directory.stage(stage), iter(DESIGNS[stage - 1])
    view, count = view_of(config, results, stage), count_tokens or estimate_tokens
    settings = design_settings(config)

    def generate(prompt: str, *_: object) -> engineer.GeneratedText:
        text = next(answers, "no more")
        return engineer.GeneratedText(text, count(text))

    asked: engineer.Engineer = engineer.LanguageModelEngineer(generate)
    control, _ = split_control(config.engineer.kind)
    if control:
        asked = control(asked)

    def seed(attempt: int) -> int:
        return seed_for(config.seed, "design", stage, attempt)

    design = engineer.run_design(asked, view, settings, seed=seed, count_tokens=count)
    note, tokens = NOTES[stage - 1], 0
    if "summary" in config.engineer.blocks and note and isinstance(asked, engineer.NoteWriter):
        prompt = summary_question(view, design.configuration)
        files.notes_prompt.write(prompt)
        files.notes.write(note)
        tokens = count(note)
    write_design(files, charged(config, design, view, engineer.Spent(engineer_tokens=tokens)))
