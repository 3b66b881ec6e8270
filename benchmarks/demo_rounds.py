"""How long the rounds of a run took, part by part, and how long with an update that shares nothing.

    python -m benchmarks.demo_rounds RUN [--updates benchmarks/results/grpo-update.json]

A round is a stage: its training, validation, design and reading. Seconds are those of the run's
`timings.jsonl`, wall time. The last columns estimate the same round with the plain update, in which
every completion has its prompt to itself: the seconds of the updates times what the file says that
`plain` takes more than `shared`, with completions as long as plans (`benchmarks.grpo_update`). Both
of these were timed in turns on one machine; all else of a round is as it was. An update that took
more than three times the stage's median compiled something: it counts as the median in both.
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lake.protocol import ROOT

UPDATES = ROOT / "benchmarks/results/grpo-update.json"
COMPILED = 3.0
"""From this many medians on an update has compiled something."""

Round = dict[str, float]
"""Seconds by part: rollout, verify, update, sync, validate, design and so on."""


def rounds_of(lines: Sequence[Mapping[str, Any]]) -> dict[int, Round]:
    """Sum up the seconds of each stage from 1 on, without what was compiled in updates."""
    rounds: dict[int, Round] = defaultdict(lambda: defaultdict(float))
    updates: dict[int, list[float]] = defaultdict(list)
    for line in lines:
        for part, seconds in line["seconds"].items():
            if part == "update":
                updates[line["stage"]].append(seconds)
            elif line["stage"] > 0:
                rounds[line["stage"]][part] += seconds
    for stage, took in updates.items():
        median = statistics.median(took)
        usual = [one if one <= COMPILED * median else median for one in took]
        rounds[stage]["update"] = sum(usual)
    return {stage: dict(rounds[stage]) for stage in sorted(rounds)}


def times_more(updates: Mapping[str, Mapping[str, float]]) -> float:
    """Return how many times the wall time of the shared update the plain one takes."""
    return updates["plain, plans"]["wall"] / updates["shared, plans"]["wall"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line per round; 2 if a file is not as it must be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--updates", type=Path, default=UPDATES, metavar="FILE")
    args = parser.parse_args(arguments)
    timings = args.run / "timings.jsonl"
    try:
        text = timings.read_text(encoding="utf-8")
        rounds = rounds_of([json.loads(line) for line in text.splitlines()])
        factor = times_more(json.loads(args.updates.read_text(encoding="utf-8"))["updates"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        print(f"{timings}, {args.updates}: can't be read as timings: {error}", file=sys.stderr)
        return 2
    if not rounds:
        print(f"{timings}: got no stage from 1 on, a round is needed", file=sys.stderr)
        return 2
    parts = list(dict.fromkeys(part for one in rounds.values() for part in one))
    heads = [*parts, "round", "plain", "times"]
    print(f"Seconds. The plain update takes {factor:.2f} times as long as the shared one.")
    print("stage" + "".join(f"{head:>10}" for head in heads))
    for stage, one in rounds.items():
        whole = sum(one.values())
        plain = whole + (factor - 1) * one.get("update", 0.0)
        values = [*(one.get(part, 0.0) for part in parts), whole, plain]
        print(f"{stage:<5}" + "".join(f"{x:>10.1f}" for x in values) + f"{plain / whole:>10.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
