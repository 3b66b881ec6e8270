"""A run's chain, followed link by link to the first one that is broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.config import RunConfig, load
from training.errors import UserError
from training.provenance.derivation import RunSource, difference_of, rederive
from training.provenance.differences import Difference
from training.provenance.digests import (
    canonical,
    file_digest,
    lines_digest,
    metrics_of_stage,
    metrics_records,
    stage_file_digest,
    weights_digest,
)
from training.provenance.links import (
    CHAIN,
    DESIGNED,
    METRICS,
    OPTIONAL,
    Link,
    chain_lines,
    hash_of,
    parse_link,
    required_files,
)
from training.run.directory import RunDirectory, read_json
from training.run.summary import summarise

_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_SHORT = 12  # of a hash's digits, as messages show it
_LONGEST = 400  # characters of what was expected, and of what was found, that messages show
_CONFIGURATION = "a configuration"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
      stage: None where it concerns the run as a whole.
      part: a field of the link, or a file.
      holds: nothing is wrong with it.
      expected: a hash, or words for people; empty where the part was derived again and holds.
      found: likewise.
      derived: whether the part was derived again; else its hash was compared.
    """

    stage: int | None
    part: str
    holds: bool
    expected: str = ""
    found: str = ""
    derived: bool = False

    def __str__(self) -> str:
        where = "" if self.stage is None else f"stage {self.stage}: "
        how = ", derived again" if self.derived else ""
        expected, found = _short(self.expected), _short(self.found)
        return f"{where}{self.part}{how}: expected {expected}, found {found}"


def _short(text: str) -> str:
    """A text out of damaged files as part of one line: hashes cut, nothing that can't be shown."""
    text = _DIGEST.sub(lambda digest: digest.group()[:_SHORT], "; ".join(text.splitlines()))
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 3] + "..."
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def _compared(stage: int | None, part: str, expected: str, found: str) -> Check:
    return Check(stage, part, expected == found, expected, found)


def _derived(stage: int | None, part: str, difference: Difference | None) -> Check:
    return Check(stage, part, difference is None, *(difference or ("", "")), derived=True)


def verify(path: Path, *, deep: bool = True) -> list[Check]:
    """Every check of a run in order, up to and including the first that fails.

    Raises:
      UserError: there is no run in `path`.
    """
    return list(checks(path, deep=deep))


def checks(path: Path, *, deep: bool = True) -> Iterator[Check]:
    """What `verify` returns, as it comes.

    Args:
      path: a run's directory. A run in progress is checked as far as its chain goes.
      deep: derive again what follows from other files; else hashes are compared only.

    Raises:
      UserError: there is no run in `path`.
    """
    directory = RunDirectory(path)
    if not any((path / name).exists() for name in (CHAIN, directory.config_file.name)):
        raise UserError(f"{path}: is no run's directory, it has no config.yaml")
    for check in _follow(directory, deep=deep):
        yield check
        if not check.holds:
            return


def finished(path: Path) -> bool:
    """Whether a run says that it has ended."""
    return RunDirectory(path).summary.exists()


def _follow(directory: RunDirectory, *, deep: bool) -> Iterator[Check]:
    """All checks, without regard to those that fail."""
    yield from _plain_files(directory)
    try:
        lines = chain_lines(directory)
    except UserError as error:
        yield _compared(0, CHAIN, "a link", _without_path(error, directory.path / CHAIN))
        return
    try:
        records = metrics_records(directory.path / METRICS)
    except UserError as error:
        yield _compared(0, METRICS, "records", _without_path(error, directory.path / METRICS))
        return
    previous = _found(file_digest, directory.config_file)
    source: RunSource | None = None
    for stage, line in enumerate(lines):
        try:
            link = parse_link(line)
        except ValueError as error:
            yield _compared(stage, "link", "a link", str(error))
            return
        yield from _link_checks(directory, records, link, stage, previous)
        if source is None:
            # The first link vouches for the file; whether it is a configuration is seen here.
            config, problem = _configuration(directory)
            yield _compared(stage, "config.yaml", _CONFIGURATION, problem)
            if config is None:
                return
            source = RunSource(config, directory)
        if stage > source.config.stages.rounds:
            yield _compared(stage, "stage", "the end of the chain", f"a link of stage {link.stage}")
        if deep:
            for part, difference in rederive(source, link):
                yield _derived(stage, part, difference)
        previous = link.hash
    yield from _end_checks(directory, records, len(lines), source, deep=deep)


def _link_checks(
    directory: RunDirectory,
    records: list[Mapping[str, Any]],
    link: Link,
    stage: int,
    previous: str,
) -> Iterator[Check]:
    """The fields of a link against what stands there."""
    folder = directory.stage(stage)
    yield _compared(stage, "link", "a link", "a link")
    yield _compared(stage, "stage", str(stage), str(link.stage))
    yield _compared(stage, "hash", hash_of(link), link.hash)
    yield _compared(stage, "previous", previous, link.previous)
    optional = [name for name in OPTIONAL if (folder / name).exists() or name in link.files]
    names = (*required_files(stage), *optional)
    # What a round leaves would be read in the warm start's folder too, and nothing vouches for it.
    slipped_in = [name for name in DESIGNED if name not in names and (folder / name).exists()]
    found = {*link.files, *slipped_in}
    yield _compared(stage, "files", canonical(sorted(names)), canonical(sorted(found)))
    for name, digest in link.files.items():
        yield _compared(stage, name, digest, _found(stage_file_digest, folder / name))
    of_stage = metrics_of_stage(records, stage)
    yield _compared(stage, "metrics", link.metrics, lines_digest(of_stage))
    yield _compared(stage, "checkpoint", link.checkpoint, _found(weights_digest, folder / "policy"))


def _end_checks(
    directory: RunDirectory,
    records: list[Mapping[str, Any]],
    links: int,
    source: RunSource | None,
    *,
    deep: bool,
) -> Iterator[Check]:
    """Whether the chain goes as far as the run does, and the rest belongs to it."""
    ended = directory.summary.exists()
    if source is None:
        config, problem = _configuration(directory)
        yield _compared(None, "config.yaml", _CONFIGURATION, problem)
        if config is None:
            return
        source = RunSource(config, directory)
    rounds = source.config.stages.rounds
    needed = rounds + 1 if ended else _begun(directory, records)
    if links < needed:
        yield _compared(links, CHAIN, "a link", "its end: the chain is truncated")
    for stage in _stage_folders(directory):
        if stage > rounds:
            yield _compared(stage, "folder", f"none after stage {rounds}", f"stages/{stage}")
    if not ended:
        configuration = directory.stage(links) / "configuration.json"
        if links and metrics_of_stage(records, links) and not configuration.exists():
            yield _compared(links, configuration.name, "what its metrics come of", "is missing")
        if links > rounds:
            yield _compared(None, directory.summary.name, "the end result", "is missing")
        return
    linked = sum(len(metrics_of_stage(records, stage)) for stage in range(links))
    lines = _found(_count_lines, directory.path / METRICS)
    yield _compared(None, METRICS, f"{linked} lines", f"{lines} lines")
    # It repeats files that the links vouch for: derived in no time.
    config = source.config
    difference = difference_of(lambda: (summarise(directory, config), read_json(directory.summary)))
    yield replace(_derived(None, directory.summary.name, difference), derived=deep)


def _configuration(directory: RunDirectory) -> tuple[RunConfig | None, str]:
    """The run's configuration, and whether it is one, or what is wrong with it."""
    try:
        return load(directory.config_file), _CONFIGURATION
    except UserError as error:
        return None, _without_path(error, directory.config_file)
    except ValueError as error:  # a number too long to be said
        return None, str(error)


def _plain_files(directory: RunDirectory) -> Iterator[Check]:
    """Nothing that a read would not come back from: a pipe or a device in place of a file."""
    for pattern in ("*", "stages/*/*", "stages/*/policy/*"):
        for path in sorted(directory.path.glob(pattern)):
            if path.exists() and not path.is_file() and not path.is_dir():
                within = path.relative_to(directory.path).parts
                stage = int(within[1]) if within[1:] and within[1].isdecimal() else None
                part = "/".join(within if stage is None else within[2:])
                yield _compared(stage, part, "a file", "something else")


def _stage_folders(directory: RunDirectory) -> list[int]:
    """The stages that there is anything of."""
    folders = directory.path.glob("stages/*")
    return sorted(int(folder.name) for folder in folders if folder.name.isdecimal())


def _begun(directory: RunDirectory, records: list[Mapping[str, Any]]) -> int:
    """The newest round that has begun: every stage before it has ended, and so has a link."""
    folders = [
        stage
        for stage in _stage_folders(directory)
        if (directory.stage(stage) / "configuration.json").exists()
    ]
    trained = [
        record["stage"]
        for record in records
        if isinstance(record, Mapping)
        and record.get("phase") == "train"
        and isinstance(record.get("stage"), int)
    ]
    return max((*folders, *trained), default=0)


def _count_lines(path: Path) -> str:
    return str(len(path.read_bytes().splitlines()))


def _found(digest: Callable[[Path], str], path: Path) -> str:
    """A digest of what stands there, or why there is none."""
    try:
        return digest(path)
    except UserError as error:
        return _without_path(error, path)
    except OSError as error:
        return f"can't be read: {error.strerror}"


def _without_path(error: UserError, path: Path) -> str:
    return str(error).replace(f"{path}: ", "")
