"""Forecast what a large set of boards costs on accelerators: `python -m benchmarks.large_sets`.

A process makes one part of the set on one chip: the device draws and solves a shard, then the host
hashes its boards, looks whether the part has them already, and writes its file, one after the
other. How fast the device is comes from a forecast of `python -m benchmarks.accelerators`. What the
host takes, and how large files are, is measured here, in processor time of one core, on boards of
the same kind. To look for duplicates takes longer the more boards the part has, so that is measured
on a part of its own, of many shards; it takes some minutes.
docs/how_to/pods.md says how such a set is made.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import jax
import numpy as np

from benchmarks.accelerators.programs import HOLES, SIZE
from jaxlake.command_line.arguments import number
from jaxlake.datasets import read_manifest, write_shards
from jaxlake.files import write_text_whole
from jaxlake.generator import lake_params, quotas
from jaxlake.generator.board_digests import DigestSet

_DIGEST_BYTES = 48  # of a board in a part, at the moment when digests are merged
_FIRST_FITTED = 4  # shards: in fewer there is hardly anything to look for


@dataclass(frozen=True)
class Rates:
    """What one board costs one process."""

    device_seconds: float
    host_seconds: float  # of one core, but for duplicates
    duplicate_seconds: Sequence[float]  # of one core, mean of a part of 1, 2, ... shards
    file_bytes: float

    def duplicates(self, shards: float) -> float:
        """Return what it takes to look for a board in a part of so many shards, all boards' mean.

        It grows by about as much with each doubling of the part. So beyond the measured part it is
        extrapolated, by a line through the means over the logarithm of the shards.
        """
        measured = np.array(self.duplicate_seconds)
        numbers = np.arange(1, len(measured) + 1)
        if shards <= len(measured):
            return float(np.interp(shards, numbers, measured))
        fitted = numbers >= _FIRST_FITTED
        slope, _ = np.polyfit(np.log2(numbers[fitted]), measured[fitted], 1)
        return float(measured[-1] + slope * np.log2(shards / len(measured)))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the host, read the device's forecast, print the table; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large_sets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--forecast", metavar="FILE", type=Path, required=True, help="JSON file")
    parser.add_argument("--target", required=True, help="a machine of that file, such as v5e:2x2")
    parser.add_argument("--agents", type=int, default=2, choices=(2, 4))
    parser.add_argument("--boards", type=int, default=10**9, help="boards of the set")
    parser.add_argument("--chips", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument(
        "--part-shards",
        type=number(int, 8),
        default=239,
        help="shards of the part in which duplicates are looked for, by default %(default)s, those"
        " of a billion boards on 64 chips",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result here too")
    args = parser.parse_args(argv)
    try:
        program = _program(args.forecast, args.target, f"generate-{args.agents}")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    host_seconds, file_bytes = measure_host(args.agents, 4 * quotas.MAX_CAPACITY)
    duplicates = measure_duplicates(args.part_shards)
    rates = Rates(1 / program["forecast_rate"], host_seconds, duplicates, file_bytes)
    result = {
        "schema": 1,
        "target": args.target,
        "program": program["program"],
        "boards": args.boards,
        "uncounted_loops": program["uncounted_loops"],
        "compile_seconds": program["compile_seconds"],
        **vars(rates),
        "rows": [
            cost(rates, args.boards, chips, program["compile_seconds"]) for chips in args.chips
        ],
    }
    print("\n".join(table(result)))
    if args.json is not None:
        write_text_whole(args.json, json.dumps(result, indent=1) + "\n")
    return 0


def cost(rates: Rates, boards: int, chips: int, compile_seconds: float) -> dict[str, float]:
    """Forecast a set made by one process per chip: seconds, chip hours and bytes."""
    own = boards / chips
    duplicates = rates.duplicates(own / quotas.MAX_CAPACITY)
    host = rates.host_seconds + duplicates
    seconds = own * (rates.device_seconds + host)
    return {
        "chips": chips,
        "device_seconds": own * rates.device_seconds,
        "host_seconds": own * host,
        "duplicate_seconds": own * duplicates,
        "seconds": seconds + compile_seconds,
        "chip_hours": (seconds + compile_seconds) * chips / 3600,
        "part_digest_bytes": own * _DIGEST_BYTES,
        "set_bytes": boards * rates.file_bytes,
    }


class _Aside:
    """Adds up the processor time of functions that are not to count."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, with its time added up; one within another counts once."""

        def run(*arguments: Any) -> Any:
            if self._inside:
                return function(*arguments)
            self._inside, start = True, time.process_time()
            made = function(*arguments)
            self._inside, self.seconds = False, self.seconds + time.process_time() - start
            return made

        return run


def measure_host(agents: int, count: int) -> tuple[float, float]:
    """Write `count` boards and return the host's seconds and the file's bytes for one of them.

    The seconds are processor time of this process outside of `DrawOptions.draw` and of the set in
    which duplicates are looked for, the mean of all shards but the first, which compiles.
    """
    aside, moments = _Aside(), []
    params = lake_params(SIZE, HOLES[agents], num_agents=agents, wait_ratio=0.1)
    shard_size = quotas.MAX_CAPACITY
    with (
        TemporaryDirectory() as folder,
        patch.object(quotas.DrawOptions, "draw", aside.timed(quotas.DrawOptions.draw)),
        patch.object(DigestSet, "contains", aside.timed(DigestSet.contains)),
        patch.object(DigestSet, "add", aside.timed(DigestSet.add)),
    ):
        write_shards(
            folder,
            jax.random.key(0),
            params,
            count,
            shard_size=shard_size,
            max_size=SIZE,
            max_agents=agents,
            progress=lambda _: moments.append(time.process_time() - aside.seconds),
        )
        files = [Path(folder) / shard.file for shard in read_manifest(folder).shards]
        size = sum(file.stat().st_size for file in files)
    return float(np.mean(np.diff(moments)[1:])) / shard_size, size / count


def measure_duplicates(shards: int, shard_size: int = quotas.MAX_CAPACITY) -> list[float]:
    """Look for the boards of so many shards in a part, and add them to it, shard by shard.

    Digests are random numbers, as those of boards are. Returns the processor time for a board, the
    mean of the first shard, of the first two, and so on.
    """
    random, seen, spent = np.random.default_rng(0), DigestSet(), 0.0
    means = []
    for done in range(1, shards + 1):
        digests = np.frombuffer(random.bytes(16 * shard_size), "S16")
        start = time.process_time()
        seen.contains(digests)
        seen.add(digests)
        spent += time.process_time() - start
        means.append(round(spent / (done * shard_size), 12))
    return means


def table(result: dict[str, Any]) -> list[str]:
    """Write the rows as a Markdown table, under a line that says what they rest on.

    Where the rounds of a loop of the program were not counted, what follows is a lower bound.
    """
    least = "at least " if result["uncounted_loops"] else ""
    lines = [
        f"{result['boards']:,} boards by {result['program']} on {result['target']}, forecast: "
        f"{least}{result['device_seconds'] * 1e6:.2f} us of the device and "
        f"{result['host_seconds'] * 1e6:.2f} us of one core per board but for duplicates, "
        f"{result['compile_seconds']:.0f} s to compile, {result['file_bytes']:.1f} bytes on disk.",
        "",
        "| chips | device | host | of it for duplicates | in all | chip hours"
        " | memory for digests, each | disk |",
        "|" + " --- |" * 8,
    ]
    for row in result["rows"]:
        lines.append(
            f"| {row['chips']:,} | {least}{row['device_seconds']:,.0f} s "
            f"| {row['host_seconds']:,.0f} s | {row['duplicate_seconds']:,.0f} s "
            f"| {least}{row['seconds'] / 60:,.0f} min | {least}{row['chip_hours']:,.1f} "
            f"| {row['part_digest_bytes'] / 1e9:,.2f} GB | {row['set_bytes'] / 1e9:,.0f} GB |"
        )
    return lines


def _program(path: Path, target: str, name: str) -> dict[str, Any]:
    """Read the record of a program from a forecast, or raise a `ValueError`."""
    try:
        targets = json.loads(path.read_text())["targets"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"--forecast {path}: not a forecast: {error!r}") from None
    if target not in targets:
        allowed = ", ".join(targets)
        raise ValueError(f"--target: got {target!r}, {path} has {allowed}")
    for record in targets[target]["programs"]:
        if record["program"] == name and "forecast_rate" in record:
            return dict(record)
    raise ValueError(f"--agents: {path} has no forecast of {name} for {target}")


if __name__ == "__main__":
    sys.exit(main())
