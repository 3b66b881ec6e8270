"""Measure a policy's valid and optimal rates on a validation set, without a run."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.analysis import METRIC_NAMES
from training.analysis.pass_at_k import pass_rate, pass_sizes
from training.environments.catalogue import get_domain
from training.memory import report_out_of_memory
from training.phases.validate import generate_answers, judge_answers, validation_set
from training.policy.model_folders import resolve_model
from training.policy.policy import Policy, load_run_policy
from training.run.answer_records import EpisodeRecord, compute_validation_rates
from training.run.progress import console, new_table, print_table
from training.run.rates import ISR, VALID, format_interval, format_isr
from training.run.record_model import six_digits
from training.run.typed_files import TextFile
from training.sampling.engines import start_sampler
from training.sampling.sampler import Sampler
from training.schema import RunConfig


@contextmanager
def open_frozen_policy(config: RunConfig, folder: Path) -> Iterator[tuple[Policy, Sampler]]:
    """Yield a policy and an engine with its weights; the engine stops at the end of the block.

    The engine copies the weights, so the loaded weights are freed before the first request.
    """
    advice = "use more devices in model.mesh or a smaller sampling.max_num_seqs"
    with report_out_of_memory(advice), tempfile.TemporaryDirectory() as temporary_folder:
        policy, params = load_run_policy(folder, config)
        engine_folder = Path(temporary_folder) / "engine"
        sampler = start_sampler(policy, params, config.sampling, engine_folder, seed=config.seed)
        del params
        try:
            yield policy, sampler
        finally:
            sampler.close()


def evaluate(
    config: RunConfig, model: str | Path, output: Path | None, *, num_samples: int = 1
) -> None:
    """Measure a model on the validation set of a configuration, and print its rates.

    Args:
        config: The configuration with the validation set.
        model: Name or folder of the model.
        output: JSON file for the rates; None writes no file.
        num_samples: Number of answers per instance. With several, the rates include pass@k.
    """
    folder = resolve_model(str(model))
    boards = validation_set(config)
    with open_frozen_policy(config, folder) as (policy, sampler):
        answers = generate_answers(
            config, policy, sampler, boards, title="evaluate", num_samples=num_samples
        )
    episodes = [
        episode
        for sample in range(num_samples)
        for episode in judge_answers(config, boards, answers[sample::num_samples])
    ]
    title = f"{model} on {len(boards)} {get_domain(config).instance}s"
    rates_json = _print_rates(config, title, episodes, num_samples)
    num_readable = sum(episode.parsed for episode in episodes)
    num_truncated = sum(episode.truncated for episode in episodes)
    console.print(
        f"{num_readable} of {len(episodes)} answers are readable; {num_truncated} were cut off."
    )
    if output is not None:  # after the table, since writing may fail
        TextFile(output).write(json.dumps({"model": str(model), **rates_json}, indent=2) + "\n")


def _print_rates(
    config: RunConfig, title: str, episodes: Sequence[EpisodeRecord], num_samples: int
) -> dict[str, Any]:
    """Print a table of the rates by group, and return them as JSON."""
    rates, domain = compute_validation_rates(0, episodes), get_domain(config)
    has_isr = rates.total.isr is not None
    metrics = {"valid": VALID if has_isr else "valid"}
    metrics |= {label.key: METRIC_NAMES.get(label.key, label.name) for label in domain.scores}
    ks = pass_sizes(num_samples)
    headings = [*metrics.values(), *([ISR] * has_isr), *(f"pass@{k}" for k in ks[1:])]
    table = new_table(title, domain.space.group_label, *headings)
    rates_json = rates.model_dump(mode="json", exclude={"stage"})
    rows = [
        (domain.group_name(g), g, rates.groups[g], rates_json["groups"][g]) for g in rates.groups
    ]
    for name, group, row, entry in [*rows, ("all", None, rates.total, rates_json["total"])]:
        answers = [episode for episode in episodes if group in (None, episode.group)]
        cells = [
            format_interval(*pass_rate((answer.id, answer.succeeds(metric)) for answer in answers))
            for metric in metrics
        ]
        if (isr := format_isr(row)) is not None:
            cells.append(isr)
        at_k = {k: pass_rate(((answer.id, answer.valid) for answer in answers), k) for k in ks}
        table.add_row(name, *cells, *(format_interval(*at_k[k]) for k in ks[1:]))
        if num_samples > 1:
            entry["pass_at"] = {k: list(map(six_digits, rate)) for k, rate in at_k.items()}
    print_table(table)
    return rates_json
