"""A policy's valid and optimal rates on a validation set, without a run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.analysis import METRIC_NAMES
from training.environments.catalogue import domain_of
from training.errors import UserError
from training.memory import full_memory_told
from training.phases.validate import answer, judge_answers, validation_set
from training.policy import huggingface
from training.policy.policy import Policy, load_policy
from training.run.answer_records import count_answers
from training.run.progress import new_table, print_table
from training.run.rates import ISR, VALID, isr_text, rate
from training.run.typed_files import TextFile
from training.sampling.engines import start_sampler
from training.sampling.sampler import Sampler
from training.schema import RunConfig


def model_folder(model: str | Path) -> Path:
    """Return the local folder of a model; a `UserError` says that there is none."""
    try:
        return huggingface.resolve(str(model))
    except huggingface.ModelFolderError as error:
        raise UserError(str(error)) from error


@contextmanager
def frozen_policy(config: RunConfig, folder: Path) -> Iterator[tuple[Policy, Sampler]]:
    """Load a policy from its folder into an engine, which ends with the block.

    The engine has weights of its own; those that were loaded are let go of when it runs.
    """
    less = "more devices in model.mesh and a smaller sampling.max_num_seqs take less"
    with full_memory_told(less), tempfile.TemporaryDirectory() as scratch:
        policy, params = load_policy(folder, config)
        folder = Path(scratch) / "engine"
        sampler = start_sampler(policy, params, config.sampling, folder, seed=config.seed)
        del params
        try:
            yield policy, sampler
        finally:
            sampler.close()


def evaluate(config: RunConfig, model: str | Path, output: Path | None) -> None:
    """Answer the validation set of `config` with a model folder (or hub name), and print rates.

    They are written to `output` as JSON, too, unless it is None.
    """
    folder = model_folder(model)
    boards = validation_set(config)
    with frozen_policy(config, folder) as (policy, sampler):
        answers = answer(config, policy, sampler, boards, title="evaluate")
    rates, domain = count_answers(0, judge_answers(config, boards, answers)), domain_of(config)
    on_lake = rates.total.isr is not None
    metrics = {"valid": VALID if on_lake else "valid"}
    metrics |= {term.key: METRIC_NAMES.get(term.key, term.name) for term in domain.scores}
    title = f"{model} on {len(boards)} {domain.instance}s"
    table = new_table(title, domain.space.group_label, *metrics.values(), *([ISR] * on_lake))
    rows = {domain.called(group): row for group, row in rates.groups.items()} | {"all": rates.total}
    for name, row in rows.items():
        individual = isr_text(row)
        rates_of_it = (rate(row, metric) for metric in metrics)
        table.add_row(name, *rates_of_it, *([] if individual is None else [individual]))
    print_table(table)
    plain = rates.model_dump(mode="json", exclude={"stage"})
    if output is not None:  # after the table, since it may be impossible to write
        TextFile(output).write(json.dumps({"model": str(model), **plain}, indent=2) + "\n")
