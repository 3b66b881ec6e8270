"""How many tokens and device hours a study takes: counted, and a forecast under assumptions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training.analysis.study.config import Forecast, Study
from training.errors import UserError
from training.learner.flops import update_flops
from training.run.dry_run import longest_prompt, shape_of, validation_instances
from training.run.forking import same_first_round
from training.run.progress import console, new_table, print_table
from training.schema import RunConfig


@dataclass(frozen=True)
class Amounts:
    """What some stages and validations take."""

    instances: int  # boards to train on
    answers: int  # to training and validation boards
    answer_tokens: float
    prompt_tokens: float  # read for these answers, a prompt once for all that share it
    sampling_hours: float  # of all devices of a run at once
    update_hours: float  # the same
    hours: float  # with everything else


def amounts(config: RunConfig, forecast: Forecast, *, stages: int, validations: int) -> Amounts:
    """Count what so many stages and validations of a configuration take, and forecast the time.

    Every answer has the mean length, and every group of an update is learned from.

    Raises:
        UserError: The policy's shape is not known here.
    """
    shape = shape_of(config)
    if shape is None:
        raise UserError(
            f"forecast: the shape of model.pretrained {config.model.pretrained} is not known here"
        )
    grpo, prompt, length = config.grpo, longest_prompt(config), forecast.answer_tokens
    updates = stages * config.updates_per_stage
    instances = updates * grpo.prompts_per_update
    validated = validations * validation_instances(config)
    answers = instances * grpo.completions + validated
    tokens = answers * length
    flops = updates * update_flops(
        shape,
        [prompt] * grpo.prompts_per_update,
        [[length] * grpo.completions] * grpo.prompts_per_update,
        config.model.lora,
    )
    sampling = tokens / forecast.sampling_tokens_per_second / 3600.0
    reached = forecast.peak_tflops * 1e12 * forecast.devices * forecast.mfu
    update = flops / reached / 3600.0
    return Amounts(
        instances=instances,
        answers=answers,
        answer_tokens=tokens,
        prompt_tokens=float((instances + validated) * prompt),
        sampling_hours=sampling,
        update_hours=update,
        hours=(sampling + update) * (1.0 + forecast.rest),
    )


def rounds_of(study: Study, policy: Path) -> tuple[int, int]:
    """Count the stages and the validations of all runs, a shared first round once.

    `policy` is the folder that a shared warm start leaves its policy in.
    """
    stages = study.warm_start.stages.count
    runs = len(study.runs)
    trained, validated = runs * stages, runs * (stages + 1)
    if stages == 1:  # nothing comes after a first round, so that none is shared
        return trained, validated
    for seed in study.config.seeds:
        kinds: list[RunConfig] = []
        for run in study.runs:
            if run.seed != seed:
                continue
            config = study.config_of(run, policy)
            if any(same_first_round(one, config) for one in kinds):
                trained, validated = trained - 1, validated - 2
            else:
                kinds.append(config)
    return trained, validated


def print_forecast(study: Study, policy: Path, forecast: Forecast) -> None:
    """Print instances, tokens and hours of one run and of the study, and what they assume."""
    config = study.warm_start
    stages = config.stages.count
    trained, validated = rounds_of(study, policy)
    one = amounts(config, forecast, stages=stages, validations=stages + 1)
    every = amounts(config, forecast, stages=trained, validations=validated)
    table = new_table("\nForecast: nothing of it was measured", "", "one run alone", "the study")
    for name, values in (
        ("stages trained", (stages, trained)),
        ("training instances", (one.instances, every.instances)),
        ("answers", (one.answers, every.answers)),
        ("tokens of answers", (one.answer_tokens, every.answer_tokens)),
        ("tokens of prompts, at most", (one.prompt_tokens, every.prompt_tokens)),
    ):
        table.add_row(name, *(f"{value:,.0f}" for value in values))
    for name, hours in (
        ("hours of sampling", (one.sampling_hours, every.sampling_hours)),
        ("hours of updates", (one.update_hours, every.update_hours)),
        ("hours in all", (one.hours, every.hours)),
        ("GPU hours", (forecast.devices * one.hours, forecast.devices * every.hours)),
    ):
        table.add_row(name, *(f"{value:,.1f}" for value in hours))
    print_table(table)
    console.print(
        f"It assumes {forecast.devices} x {forecast.device} for each run, runs that follow each "
        f"other, answers of {forecast.answer_tokens:,.0f} tokens on average, "
        f"{forecast.sampling_tokens_per_second:,.0f} sampled tokens per second on all of a run's "
        f"devices together, updates at {forecast.mfu:.0%} of {forecast.peak_tflops:g} TFLOP/s per "
        f"device (MFU), and {forecast.rest:.0%} on top for everything else. First rounds that "
        "runs share are counted once. Left out are the warm start, instances that are answered to "
        "be picked, resampled, probed or put into an atlas, and the engineer's answers (at most "
        f"{config.engineer.attempts} per stage).",
        soft_wrap=True,
    )
