"""The content of a study's `results.json`, which `docs/how_to/studies.md` explains.

Shapes: S seeds, M metrics, T validations, B boards. Rates lie in 0..1.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

import numpy as np

from engineer import Attempt
from engineer.space import KnobValues
from training.analysis.study.config import Study
from training.analysis.study.contrasts import contrast, mean_interval
from training.analysis.study.finished_runs import KINDS, METRICS, FinishedRun
from training.schema import RunConfig

Results = dict[str, Any]

REVIEWS: tuple[str, ...] = get_args(Attempt.model_fields["kind"].annotation)
"""Kinds of reviews of an engineer's answer; `failed` means that the engineer gave none."""


def build_results(
    study: Study,
    runs: Sequence[FinishedRun],  # at least one, all validated on the same boards
    unfinished_runs: Sequence[Results],  # the other runs, with the reason why each has no result
) -> Results:
    """Return the content of `results.json`, which the report shows."""
    config = study.config
    runs_by_engineer: dict[str, list[FinishedRun]] = {}
    for engineer in config.engineers:
        if engineer_runs := [run for run in runs if run.engineer == engineer.name]:
            runs_by_engineer[engineer.name] = engineer_runs
    baselines = {name: config.get_baseline(name) for name in runs_by_engineer}
    initial_scores = np.stack([run.scores[:, 0] for run in runs])
    return {
        "study": {
            "name": config.name,
            "engineers": {engineer.name: list(engineer.set) for engineer in config.engineers},
            "seeds": list(config.seeds),
            "baseline": config.baseline,
            "against": baselines,
            "compared_with": (
                "its own baseline"
                if set(baselines.values()) - {None, config.baseline}
                else config.baseline
            ),
        },
        "budget": _describe_budget(study.warm_start, len(runs[0].boards)),
        "missing": list(unfinished_runs),
        # The initial rates, as measured by each run.
        "start": _by_metric(lambda m: rate_spread(initial_scores[:, m])),
        "engineers": {
            name: _summarize_engineer(rows, runs_by_engineer.get(baselines[name] or "", []))
            for name, rows in runs_by_engineer.items()
        },
    }


def _describe_budget(config: RunConfig, num_boards: int) -> Results:
    updates = config.stages.count * config.updates_per_stage
    return {
        "stages": config.stages.count,
        "updates_per_stage": config.updates_per_stage,
        "prompts_per_update": config.grpo.prompts_per_update,
        "completions_per_prompt": config.grpo.completions,
        "training_instances": updates * config.grpo.prompts_per_update,
        "validation_boards": num_boards,
        "validation_temperature": config.validation.temperature,
    }


def _summarize_engineer(runs: Sequence[FinishedRun], baseline: Sequence[FinishedRun]) -> Results:
    scores = np.stack([run.scores for run in runs])  # (S, M, T, B)
    return {
        "seeds": [run.seed for run in runs],
        "rates": _by_metric(lambda m: asdict(mean_interval(scores[:, m, -1].astype(int)))),
        "isr": spread([run.isr for run in runs]),
        "difference": _compute_difference(runs, baseline),
        "learning_curve": _by_metric(
            lambda m: [rate_spread(stage) for stage in np.moveaxis(scores[:, m], 1, 0)]
        ),
        "mixture": _summarize_mixtures([run.configurations for run in runs]),
        "kinds": [_compute_kind_shares([run.kinds[stage] for run in runs]) for stage in (0, -1)],
        "designs": {
            "trained_on": sum(len(run.designs) for run in runs),
            "by_kind": dict(Counter(kind for run in runs for kind in run.designs)),
            "rolled_back": sum(run.rolled_back for run in runs),
            "answers": {kind: sum(run.reviews.count(kind) for run in runs) for kind in REVIEWS},
        },
        "ledger": {name: spread([run.ledger[name] for run in runs]) for name in runs[0].ledger},
        "runs": {
            str(run.seed): {"valid": float(run.scores[0, -1].mean()), "ledger": dict(run.ledger)}
            for run in runs
        },
    }


def _compute_difference(
    runs: Sequence[FinishedRun], baseline: Sequence[FinishedRun]
) -> Results | None:
    """Return the differences from the baseline over common seeds, or None without common seeds."""
    seeds = sorted({run.seed for run in runs} & {run.seed for run in baseline})
    if not seeds:
        return None

    def compare(m: int) -> Results:
        outcomes, baselines = (
            {run.seed: run.scores[m, -1] for run in rows} for rows in (runs, baseline)
        )
        comparison = contrast(outcomes, baselines)
        low, high = comparison.over_seeds
        over_seeds = {"low": low, "high": high, "deviation": comparison.deviation}
        over_seeds["detectable"] = comparison.detectable
        return {**asdict(comparison.difference), "over_seeds": replace_nan(over_seeds)}

    return {"seeds": seeds, **_by_metric(compare)}


def replace_nan(values: Mapping[str, float]) -> Results:
    """Return the values with None instead of NaN, which JSON does not have."""
    return {key: None if math.isnan(value) else value for key, value in values.items()}


def _summarize_mixtures(configurations: Sequence[Sequence[KnobValues]]) -> list[Results]:
    """Return the spread of each knob over the seeds, by stage, size and knob."""
    return [
        {
            size: {knob: spread([seed[size][knob] for seed in stage]) for knob in stage[0][size]}
            for size in stage[0]
        }
        for stage in zip(*configurations, strict=True)
    ]


def _compute_kind_shares(answers: Sequence[np.ndarray]) -> dict[str, float]:
    counts = np.bincount(np.concatenate(answers), minlength=len(KINDS))
    return dict(zip(KINDS, (counts / counts.sum()).tolist(), strict=True))


def _by_metric(function: Callable[[int], Any]) -> Results:
    return {metric: function(m) for m, metric in enumerate(METRICS)}


def spread(values: Sequence[float]) -> Mapping[str, float]:
    """Return the mean, minimum and maximum of one value per seed."""
    return {"mean": float(np.mean(values)), "low": float(min(values)), "high": float(max(values))}


def rate_spread(answers: np.ndarray) -> Mapping[str, float]:
    """Return the spread of the rates per seed of bool (S, n) outcomes."""
    return spread(answers.mean(axis=1).tolist())
