"""What a call of a program adds up to: launches, bytes, decisions and, forecast, time.

All of it is computed from the tree of a program's loops, as it stands in the JSON files. A body of
the tree says what one of its runs does; `rounds` of a loop are those of the whole call.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.accelerators.hlo import Body
from benchmarks.accelerators.loops import Loop
from benchmarks.accelerators.targets import Machine


@dataclass(frozen=True)
class Shares:
    """What the seconds of a call are made of, one after the other."""

    kernels: float  # launches, or the memory
    decisions: float  # that data make
    programs: float  # of Pallas's kernels, shared out
    longest: float  # programs of Pallas's kernels

    @property
    def seconds(self) -> float:
        """All of the call."""
        return self.kernels + self.decisions + self.programs + self.longest


def tree_of(
    body: Body, found: list[Loop], rounds: list[int] | None, times: int = 1
) -> dict[str, Any]:
    """Give a body that runs so often in a call, and the loops inside it, as JSON.

    `rounds` are those of the traced loops `found`. Rounds that nobody knows are None.
    """
    total = times * body.trips if body.trips is not None else None
    if rounds is not None and body.number is not None:
        total = rounds[body.number]
    within = times if total is None else total
    tree: dict[str, Any] = {
        "loop": body.label if body.number is None else found[body.number].function,
        "rounds": total,
        "launches": body.launches,
        "bytes": body.bytes,
        "conditions": body.conditions,
        "static": body.trips is not None,
        "loops": [tree_of(inner, found, rounds, within) for inner in body.loops],
    }
    if body.test is not None:
        tree["test"] = tree_of(body.test, found, rounds, within + times)
    return tree


def runs(tree: dict[str, Any], times: int = 1) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each body of a tree that runs so often, and how often that is.

    What a loop asks with, to know whether it goes on, stands under `test`. It runs once more than
    the body each time that the loop does. Older results hold none: there it is part of the body.
    """
    yield tree, times
    for loop in tree["loops"]:
        rounds = _rounds(loop, times)
        yield from runs(loop, rounds)
        if "test" in loop:
            yield from runs(loop["test"], rounds + times)


def totals(tree: dict[str, Any]) -> dict[str, int]:
    """Add up a whole call: launches, bytes, decisions that data make, and uncounted loops."""
    total = {"launches": 0, "bytes": 0, "conditions": 0, "uncounted_loops": 0}
    for body, times in runs(tree):
        total["launches"] += body["launches"] * times
        total["bytes"] += body["bytes"] * times
        total["conditions"] += body["conditions"] * times
        for loop in body["loops"]:
            # Each time it is asked before the first round, too.
            total["conditions"] += 0 if loop["static"] else _rounds(loop, times) + times
            total["uncounted_loops"] += loop["rounds"] is None
    return total


def _rounds(loop: dict[str, Any], times: int) -> int:
    """Return the rounds of a loop in a call, one each time where nobody knows them."""
    return times if loop["rounds"] is None else int(loop["rounds"])


def shares(record: dict[str, Any], machine: Machine) -> Shares:
    """Say what the forecast of a call is made of, as the machine's numbers add up.

    Kernels run one after the other. A run of a loop's body takes as long as all its launches, or as
    long as the memory for its bytes if that is more; what XLA's kernels compute is taken to be
    free. What Pallas's compute comes on top: the programs of a launch, shared out, and the longest
    of them, which may begin last. Every decision that data make is waited for.
    """
    kernels = sum(
        times * max(body["launches"] * machine.launch, body["bytes"] / machine.bandwidth)
        for body, times in runs(record["tree"])
    )
    longest = (1 - 1 / machine.programs) * record.get("longest_program_operations", 0)
    return Shares(
        kernels=kernels,
        decisions=totals(record["tree"])["conditions"] * machine.condition,
        programs=record.get("kernel_operations", 0) / machine.programs * machine.operation,
        longest=longest * machine.operation,
    )


def forecast(record: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """Forecast the seconds of a call, and the units per second that it makes."""
    seconds = shares(record, machine).seconds
    return {"forecast_seconds": seconds, "forecast_rate": record["units"] / seconds}
