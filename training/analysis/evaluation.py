"""Measure a policy's valid and optimal rates on a validation set, without a run."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from training.analysis import METRIC_NAMES
from training.analysis.pass_at_k import pass_rate, pass_sizes
from training.environments.catalogue import get_domain
from training.errors import UserError
from training.memory import report_out_of_memory
from training.phases.validate import generate_answers, judge_answers, validation_set
from training.policy import huggingface
from training.policy.policy import Policy, load_policy
from training.run.answer_records import Rates, compute_validation_rates
from training.run.progress import console, new_table, print_table
from training.run.rates import ISR, VALID, format_interval, format_isr
from training.run.record_model import six_digits
from training.run.typed_files import TextFile
from training.sampling.engines import start_sampler
from training.sampling.sampler import Sampler
from training.schema import RunConfig


def model_folder(model: str | Path) -> Path:
    """Return the local folder of a model; raise a `UserError` if there is none."""
    try:
        return huggingface.resolve_model(str(model))
    except huggingface.ModelFolderError as error:
        raise UserError(str(error)) from error


@contextmanager
def open_frozen_policy(config: RunConfig, folder: Path) -> Iterator[tuple[Policy, Sampler]]:
    """Yield a policy and an engine with its weights, which stops when the block ends.

    The engine copies the weights, so the loaded ones are freed when it runs.
    """
    advice = "use more devices in model.mesh or a smaller sampling.max_num_seqs"
    with report_out_of_memory(advice), tempfile.TemporaryDirectory() as scratch:
        policy, params = load_policy(folder, config)
        folder = Path(scratch) / "engine"
        sampler = start_sampler(policy, params, config.sampling, folder, seed=config.seed)
        del params
        try:
            yield policy, sampler
        finally:
            sampler.close()


def evaluate(
    config: RunConfig, model: str | Path, output: Path | None, *, samples: int = 1
) -> None:
    """Measure a model on the validation set of a configuration, and print its rates.

    The rates are also written to the JSON file `output`, if given. With several `samples` per
    instance, the rates include pass@k.
    """
    folder = model_folder(model)
    boards = validation_set(config)
    with open_frozen_policy(config, folder) as (policy, sampler):
        answers = generate_answers(
            config, policy, sampler, boards, title="evaluate", samples=samples
        )
    episodes = [
        episode
        for first in range(samples)
        for episode in judge_answers(config, boards, answers[first::samples])
    ]
    rates, domain = compute_validation_rates(0, episodes), get_domain(config)
    on_lake = rates.total.isr is not None
    metrics = {"valid": VALID if on_lake else "valid"}
    metrics |= {term.key: METRIC_NAMES.get(term.key, term.name) for term in domain.scores}
    sizes = pass_sizes(samples)
    heads = [*metrics.values(), *([ISR] * on_lake), *(f"pass@{k}" for k in sizes[1:])]
    title = f"{model} on {len(boards)} {domain.instance}s"
    table = new_table(title, domain.space.group_label, *heads)
    plain = rates.model_dump(mode="json", exclude={"stage"})

    def add_row(name: str, group: str | None, row: Rates, entry: dict[str, Any]) -> None:
        rows = [episode for episode in episodes if group in (None, episode.group)]
        metric_rates = [
            pass_rate((episode.id, episode.succeeds(metric)) for episode in rows)
            for metric in metrics
        ]
        at_k = {k: pass_rate(((episode.id, episode.valid) for episode in rows), k) for k in sizes}
        individual = format_isr(row)
        cells = [format_interval(*rate) for rate in metric_rates]
        cells += [] if individual is None else [individual]
        table.add_row(name, *cells, *(format_interval(*at_k[k]) for k in sizes[1:]))
        if samples > 1:
            entry["pass_at"] = {
                k: [six_digits(number) for number in rate] for k, rate in at_k.items()
            }

    for group, row in rates.groups.items():
        add_row(domain.group_name(group), group, row, plain["groups"][group])
    add_row("all", None, rates.total, plain["total"])
    print_table(table)
    readable = sum(episode.parsed for episode in episodes)
    truncated = sum(episode.truncated for episode in episodes)
    console.print(f"{readable} of {len(episodes)} answers are readable; {truncated} were cut off.")
    if output is not None:  # after the table, since writing may fail
        TextFile(output).write(json.dumps({"model": str(model), **plain}, indent=2) + "\n")
