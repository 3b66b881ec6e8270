"""The audit of a run: its chain is followed link by link, up to the first part that is broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from training.audit import chain
from training.audit.checks import BrokenPartError, Check, Checker
from training.audit.rederivation import Rederivation
from training.errors import UserError
from training.phases.stage_results import read_stage_results
from training.run.directory import RunDirectory
from training.run.records import ChainLink, Metrics, UpdateMetrics
from training.run.summary import summary_of
from training.run.typed_files import TextFile
from training.schema import RunConfig


def audit_run(path: Path, *, deep: bool = True) -> Iterator[Check]:
    """Check a run part by part, in order, up to the first part that does not hold.

    A run in progress is checked as far as its chain goes. If `deep`, what follows from other files
    is derived again; otherwise hashes are compared.
    """
    directory = RunDirectory(path)
    if not directory.config_file.exists() and not directory.chain_file.exists():
        raise UserError(f"{path}: is not a run's directory, it has no {directory.config_file.name}")
    try:
        for check in _all_checks(directory, deep=deep):
            yield check
            if not check.holds:
                return
    except BrokenPartError as broken:
        yield broken.check


def _all_checks(directory: RunDirectory, *, deep: bool) -> Iterator[Check]:
    """Check everything, whether or not what came before holds."""
    for path in sorted(directory.path.rglob("*")):
        if path.exists() and not path.is_file() and not path.is_dir():
            # A pipe or a device: a reader would wait for it without end.
            name = str(path.relative_to(directory.path))
            yield Check(None, name, problem="is neither a file nor a folder")
    checker = Checker(directory)
    with checker.naming(directory.config_file.name):
        config = directory.config()
        previous = chain.file_digest(directory.config_file)
    with checker.naming(directory.chain_file.name):
        lines = chain.read_lines(directory)
    with checker.naming(directory.metrics.path.name):
        metrics = directory.metrics.read()
    updates = [one for one in metrics if isinstance(one, UpdateMetrics)]
    again = Rederivation(config, directory, updates)
    for stage in range(len(lines)):
        checker = Checker(directory, stage)
        with checker.naming("link"):
            link = chain.read_link(directory, lines, stage)
        if stage > config.stages.count:
            yield checker.compare("link", "the end of the chain", "a link")
        yield checker.compare("stage", stage, link.stage)
        yield checker.compare("hash", chain.link_hash(link), link.hash)
        yield checker.compare("previous", previous, link.previous)
        yield from _file_checks(checker, link)
        yield checker.compare("metrics", link.metrics, chain.metrics_digest(metrics, stage))
        digest = partial(chain.weights_digest, directory.stage(stage).policy)
        yield checker.compare_read("checkpoint", link.checkpoint, digest)
        if link.adapters is not None:
            digest = partial(chain.adapters_digest, directory.stage(stage).adapters)
            yield checker.compare_read("adapters", link.adapters, digest)
        if deep:
            yield from again.checks(link)
        previous = link.hash
    yield from _end_checks(directory, config, metrics, len(lines))


def _file_checks(checker: Checker, link: ChainLink) -> Iterator[Check]:
    """Compare the files of a stage with the hashes in its link."""
    files = checker.directory.stage(link.stage)
    linked = {file.path.name: file for file in chain.linked_files(files, link.stage)}
    # The warm start has no gate and the like; if they were there, later stages would read them.
    there = {file.path.name for file in chain.linked_files(files, 1) if file.exists()}
    found = dict.fromkeys(there - set(linked), "a file") | dict.fromkeys(link.files, "a hash")
    yield checker.compare("files", dict.fromkeys(linked, "a hash"), found)
    for name, file in linked.items():
        digest = partial(chain.stage_file_digest, files, file)
        yield checker.compare_read(name, link.files[name], digest)


def _end_checks(
    directory: RunDirectory, config: RunConfig, metrics: Sequence[Metrics], links: int
) -> Iterator[Check]:
    """Check that the chain goes as far as the run, and that nothing is there besides."""
    stages, checker, finished = config.stages.count, Checker(directory), directory.finished()
    folders = directory.stage_numbers()
    trained = {one.stage for one in metrics}
    begun = {stage for stage in folders if directory.stage(stage).configuration.exists()}
    # A stage begins when the one before it has its link.
    if links < (stages + 1 if finished else max(trained | begun, default=0)):
        problem = "expected a link, found the end: the chain is truncated"
        yield Check(links, directory.chain_file.name, problem=problem)
    for stage in (one for one in folders if one > stages):
        problem = f"expected none after stage {stages}, found stages/{stage}"
        yield Check(stage, "folder", problem=problem)
    for stage in sorted(trained - begun - {0}):
        yield Check(stage, "configuration", problem="is missing, but the stage has metrics")
    if finished:
        expected = map(directory.metrics.line, (one for one in metrics if one.stage < links))
        yield checker.compare_file(TextFile(directory.metrics.path), "".join(expected))
        with checker.naming(directory.summary.path.name):
            summary = summary_of(config, read_stage_results(directory, config))
        yield checker.compare_file(directory.summary, summary)
    elif links > stages:
        problem = "is missing, but every stage is complete"
        yield Check(None, directory.summary.path.name, problem=problem)
