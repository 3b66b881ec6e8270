"""The manifest of a set of shards: what was asked for, and what is on disk so far."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake.datasets.apportionment import webster
from jaxlake.datasets.source_files import DatasetError, read_json
from jaxlake.files import write_text_whole
from jaxlake.generator.mixture import LakeParams
from jaxlake.generator.quotas import COUNTERS

FILE_NAME = "manifest.json"
FORMAT = "jaxlake-shards"
FORMAT_VERSION = 2

_KINDS = ("no_wait", "wait")
_COUNTS = ("count", "shard_size", "max_size", "max_agents", "horizon", "max_candidates", "parts")


@dataclass(frozen=True)
class Request:
    """All that decides the boards of a set, as JSON values."""

    key_impl: str
    key_data: list[int]
    count: int
    shard_size: int
    max_size: int
    max_agents: int
    horizon: int  # steps; longer plans are not looked for
    max_candidates: int  # for one cell in one shard
    params: dict[str, list[float]]  # the leaves of LakeParams, (S,)
    quotas: list[list[int]]  # (S, 2), boards that need no wait, and that need one
    part: int | None = None  # which part of the set the manifest is of; None: of the whole set
    parts: int = 1  # in how many parts the set is made

    @property
    def shard_numbers(self) -> range:
        """The numbers of the shards of the set, or of the part."""
        shards = -(-self.count // self.shard_size)
        if self.part is None:
            return range(shards)
        return range(*(i * shards // self.parts for i in (self.part, self.part + 1)))

    def boards(self, shards: range) -> int:
        """How many boards are asked of consecutive shards together."""
        first, last = (min(i * self.shard_size, self.count) for i in (shards.start, shards.stop))
        return last - first

    def share(self, shards: range) -> np.ndarray:
        """The part of the quotas that falls on consecutive shards together: int64 (S, 2)."""
        weights = np.array(self.quotas).reshape(-1)
        first = min(shards.start * self.shard_size, self.count)
        last = first + self.boards(shards)
        return (webster(weights, last) - webster(weights, first)).reshape(-1, 2)

    def as_json(self) -> dict[str, Any]:
        """The fields that a manifest lists: parts only where a set is made in parts."""
        fields = asdict(self)
        if self.part is None:
            del fields["part"]
        if self.parts == 1:
            del fields["parts"]
        return fields


@dataclass(frozen=True)
class Shard:
    """One file of boards and how it came about; lists have one entry per cell (S,)."""

    file: str
    rows: int
    sha256: str  # of the file
    content_sha256: str  # of its arrays: see `columns.content_sha256`
    asked: list[list[int]]  # (S, 2), the shard's share of the quotas; 0 for a kind given up
    made: list[list[int]]  # (S, 2)
    counters: dict[str, list[int]]  # each of `quotas.COUNTERS`


@dataclass(frozen=True)
class Manifest:
    """A set, or one part of it: its request, and the shards that are on disk."""

    request: Request
    shards: tuple[Shard, ...]
    jaxlake: str  # the version that made it

    @property
    def num_shards(self) -> int:
        """The number of shards of the whole set, or of the part."""
        return len(self.request.shard_numbers)

    @property
    def count(self) -> int:
        """The number of boards that the set, or the part, was asked to have."""
        return self.request.boards(self.request.shard_numbers)

    @property
    def complete(self) -> bool:
        """Whether all shards are there. Boards may be missing even then: see `cells`."""
        return len(self.shards) == self.num_shards

    @property
    def rows(self) -> int:
        """The number of boards on disk."""
        return sum(shard.rows for shard in self.shards)

    @property
    def made(self) -> np.ndarray:
        """Boards on disk that need no wait, and that need one: int64 (S, 2)."""
        return sum((np.array(shard.made) for shard in self.shards), self._nothing)

    @property
    def given_up(self) -> np.ndarray:
        """Kinds of which a whole shard's budget of candidates gave no new board: bool (S, 2)."""
        failed = ((np.array(s.asked) > 0) & (np.array(s.made) == 0) for s in self.shards)
        return sum(failed, self._nothing) > 0

    def total(self, counter: str) -> np.ndarray:
        """Sum one of `quotas.COUNTERS` over all shards: int64 (S,)."""
        counts = (np.array(shard.counters[counter]) for shard in self.shards)
        return sum(counts, self._nothing[:, 0])

    @property
    def _nothing(self) -> np.ndarray:
        return np.zeros((len(self.request.quotas), 2), np.int64)

    @property
    def cells(self) -> list[dict[str, Any]]:
        """One record per cell: its parameters, quotas, boards made and missing, candidates.

        What is missing (`shortfall_*`) is final once the set is complete.
        """
        quotas, made = self.request.share(self.request.shard_numbers), self.made
        tables = {"requested": quotas, "made": made, "shortfall": quotas - made}
        columns: dict[str, list[Any]] = dict(self.request.params)
        for name, table in tables.items():
            columns |= {f"{name}_{kind}": table[:, i].tolist() for i, kind in enumerate(_KINDS)}
        columns |= {counter: self.total(counter).tolist() for counter in COUNTERS}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of a set, whole, with the sums that people look for beside it."""
    value = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "jaxlake": manifest.jaxlake,
        "complete": manifest.complete,
        "rows": manifest.rows,
        "request": manifest.request.as_json(),
    }
    fields = [f'"{name}": {json.dumps(field, allow_nan=False)}' for name, field in value.items()]
    # One line per cell and one per shard: there may be thousands.
    shards = [asdict(shard) for shard in manifest.shards]
    for name, records in (("cells", manifest.cells), ("shards", shards)):
        lines = ",\n".join(json.dumps(record, allow_nan=False) for record in records)
        fields.append(f'"{name}": [\n{lines}\n]')
    write_text_whole(directory / FILE_NAME, "{\n" + ",\n".join(fields) + "\n}\n")


def read_manifest(directory: str | Path) -> Manifest:
    """Read the manifest of a set.

    Raises:
        DatasetError: it is missing, not JSON, of another format or version, lacks a field, or has
            a value that no set has.
    """
    path = Path(directory) / FILE_NAME
    if not path.exists():
        raise DatasetError(f"{path}: is missing, so the folder is not a set of shards")
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise DatasetError(f"{path}: format: {FORMAT!r} is needed")
    if value.get("format_version") != FORMAT_VERSION:
        raise DatasetError(
            f"{path}: format_version: got {value.get('format_version')!r}, "
            f"{FORMAT_VERSION} is read by jaxlake {version('jaxlake')}"
        )
    if not isinstance(value.get("shards", []), list):
        raise DatasetError(f"{path}: shards: a list is needed")
    try:
        manifest = Manifest(
            request=Request(**value["request"]),
            shards=tuple(Shard(**shard) for shard in value["shards"]),
            jaxlake=value["jaxlake"],
        )
    except (KeyError, TypeError) as error:
        raise DatasetError(f"{path}: a field is missing or unknown: {error}") from None
    if (wrong := next(_wrong_fields(manifest), None)) is not None:
        name, got, needed = wrong
        raise DatasetError(f"{path}: {name}: got {repr(got)[:200]}, {needed}")
    return manifest


def _wrong_fields(manifest: Manifest) -> Iterator[tuple[str, Any, str]]:
    """Name fields with values that no set has, each with its value and what is needed.

    A later check may take for granted what an earlier one looks at: ask for the first one alone.
    """
    request = manifest.request
    for name in _COUNTS:
        if not _is_whole(value := getattr(request, name), 1):
            yield f"request.{name}", value, "a whole number from 1 is needed"
    if not isinstance(request.key_impl, str):
        yield "request.key_impl", request.key_impl, "a text is needed"
    if not isinstance(request.key_data, list) or not all(_is_whole(x, 0) for x in request.key_data):
        yield "request.key_data", request.key_data, "a list of whole numbers is needed"
    part = request.part
    if part is not None and not (_is_whole(part, 0) and part < request.parts):
        yield "request.part", part, f"0 to {request.parts - 1} are allowed"
    quotas = request.quotas
    S = len(quotas) if isinstance(quotas, list) else 0
    if not S or not _is_table(quotas, (S, 2)):
        yield "request.quotas", quotas, "a pair of whole numbers for each cell is needed"
    leaves = {field.name for field in fields(LakeParams)}
    if not isinstance(request.params, dict) or set(request.params) != leaves:
        yield "request.params", request.params, f"{', '.join(sorted(leaves))} are needed"
    for name, leaf in request.params.items():
        if not (isinstance(leaf, list) and len(leaf) == S and all(map(_is_number, leaf))):
            yield f"request.params.{name}", leaf, f"{S} numbers are needed, one for each cell"
    for number, shard in enumerate(manifest.shards):
        for name in ("file", "sha256", "content_sha256"):
            if not isinstance(value := getattr(shard, name), str):
                yield f"shards[{number}].{name}", value, "a text is needed"
        if not _is_whole(shard.rows, 0):
            yield f"shards[{number}].rows", shard.rows, "a whole number from 0 is needed"
        for name in ("asked", "made"):
            if not _is_table(value := getattr(shard, name), (S, 2)):
                yield f"shards[{number}].{name}", value, f"whole numbers ({S}, 2) are needed"
        counters = shard.counters
        if not isinstance(counters, dict) or not all(
            _is_table(counters.get(name), (S,)) for name in COUNTERS
        ):
            needed = f"{S} whole numbers are needed for each of {', '.join(COUNTERS)}"
            yield f"shards[{number}].counters", counters, needed


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_table(value: object, shape: tuple[int, ...]) -> bool:
    """Whether nested lists of this shape hold whole numbers from 0 on."""
    if not shape:
        return _is_whole(value, 0)
    if not isinstance(value, list) or len(value) != shape[0]:
        return False
    return all(_is_table(one, shape[1:]) for one in value)


def first_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Name the first field in which two requests differ; None if they are equal."""
    for name in new:
        if old.get(name) != new[name]:
            had, got = (
                text if len(text) <= 200 else text[:200] + "..."
                for text in map(repr, (old.get(name), new[name]))
            )
            return f"{name}: it has {had}, got {got}"
    return None
