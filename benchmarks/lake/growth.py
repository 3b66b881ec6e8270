"""How cost grows with batch, board, agents and holes, and what sets the limit. No peers."""

import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.lake.boards import write_boards
from benchmarks.lake.cases import Boards, Side
from benchmarks.lake.comparison import PREPARE_TIMEOUT, Effort, start
from benchmarks.lake.protocol import WorkerError

_SEED = 20260618
_BOARDS = 4096

_SOLVE = Side("jaxlake.solve", "benchmarks.lake.ours.solving")
_STEP = Side("jaxlake", "benchmarks.lake.ours.stepping")
_VERIFY = Side("jaxlake", "benchmarks.lake.ours.verifying")


@dataclass(frozen=True)
class Point:
    """One measurement of a curve."""

    x: float
    batch: int  # units in a call
    boards: Boards
    fields: dict[str, Any]
    devices: int | None = None  # all


@dataclass(frozen=True)
class Curve:
    """One thing that is varied while the rest stays."""

    name: str
    varied: str
    unit: str
    setting: str
    side: Side
    points: tuple[Point, ...]


def curves(quick: bool, on_gpu: bool, devices: int) -> list[Curve]:
    """All curves; `quick` ones have few and small points. Batches divide by `devices`."""
    batch = 256 if quick else 1 << 16 if on_gpu else 1 << 13
    largest = 512 if quick else 1 << 18 if on_gpu else 1 << 16
    batches = [b * devices for b in (1, 8, 64, 512, 4096, 32768, 131072) if b * devices <= largest]
    sizes = (4, 10) if quick else (4, 6, 8, 10, 16)
    agents = (2, 3) if quick else (2, 3, 4, 5)
    holes = (0.0, 0.3) if quick else (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    return [
        Curve(
            "solve-batch",
            "batch",
            "board",
            "10x10, 2 agents, 30% holes",
            _SOLVE,
            tuple(_solved(b, b, Boards(b, 2, 0.3)) for b in batches),
        ),
        Curve(
            "solve-size",
            "size",
            "board",
            f"2 agents, 30% holes, batch {batch:,}",
            _SOLVE,
            tuple(_solved(n, batch, Boards(batch, 2, 0.3, n)) for n in sizes),
        ),
        Curve(
            "solve-agents",
            "agents",
            "board",
            f"10x10, 20% holes, batch {batch:,}",
            _SOLVE,
            tuple(_solved(k, batch, Boards(batch, k, 0.2)) for k in agents),
        ),
        Curve(
            "solve-holes",
            "hole_ratio",
            "board",
            f"10x10, 2 agents, batch {batch:,}",
            _SOLVE,
            tuple(_solved(h, batch, Boards(batch, 2, h)) for h in holes),
        ),
        Curve(
            "solve-devices",
            "devices",
            "board",
            f"10x10, 2 agents, 30% holes, batch {batch:,}",
            _SOLVE,
            tuple(
                replace(_solved(d, batch, Boards(batch, 2, 0.3)), devices=d)
                for d in sorted({1, devices})
            ),
        ),
        Curve(
            "steps-batch",
            "environments",
            "step",
            "10x10, 4 agents, 20% holes, block_both, compact",
            _STEP,
            tuple(_stepped(b) for b in batches),
        ),
        Curve(
            "verify-batch",
            "batch",
            "plan",
            "10x10, 4 agents, plans of up to 32 steps",
            _VERIFY,
            tuple(_verified(b) for b in batches),
        ),
    ]


def follow(curve: Curve, effort: Effort, cores: int) -> dict[str, Any]:
    """Measure one curve: all of its points in one process, one after the other."""
    answer: dict[str, Any] = {
        "name": curve.name,
        "varied": curve.varied,
        "unit": curve.unit,
        "setting": curve.setting,
        "points": [],
    }
    try:
        with tempfile.TemporaryDirectory() as folder, start(curve.side, cores) as worker:
            for point in curve.points:
                boards = Path(folder) / "boards.npz"
                write_boards(boards, **vars(point.boards), seed=_SEED)
                devices = point.devices or effort.devices
                prepared = worker.ask(
                    "prepare",
                    PREPARE_TIMEOUT,
                    boards=str(boards),
                    devices=devices,
                    **point.fields,
                )
                measured = [
                    worker.ask("measure", PREPARE_TIMEOUT, seconds=effort.seconds)
                    for _ in range(effort.repeats)
                ]
                rates = [m["units"] / m["seconds"] for m in measured]
                rate = statistics.median(rates)
                if not rate:
                    raise WorkerError(f"{curve.varied} {point.x:g}: not one {curve.unit} was done")
                answer["points"].append(
                    {
                        "x": point.x,
                        "batch": point.batch,
                        "rate": rate,
                        "min": min(rates),
                        "max": max(rates),
                        "batch_seconds": point.batch / rate,
                        **prepared,
                    }
                )
    except WorkerError as error:
        answer["error"] = str(error)
    return answer


def limits(grown: Sequence[dict[str, Any]], machine: Mapping[str, float]) -> list[dict[str, Any]]:
    """Name what holds each kind of work back, from what was measured.

    A batch's time has a part that doesn't depend on the batch (programs and loop rounds that have
    to be started, however little they do), read off the smallest batch, and a part that grows
    with it. At a batch of which the first part is more than half, the limit is `launches`. Else it
    is `memory traffic` if the bytes that the operations read and write, as XLA counts them, come
    at more than half of the speed at which this machine copies memory, and else `arithmetic`.
    XLA can't count the bytes of solving, whose rounds depend on the boards. There
    `memory traffic` is named if twice the devices bring less than 1.4 times the speed, because
    they share the memory and nothing else; on one device the limit stays `not told apart`.

    Returns:
        One record for every curve over batches: the seconds that the smallest batch takes, the
        bytes and their share of the copying speed at the largest, the speed-up by more devices,
        and for every batch the fixed share and the limit.
    """
    speedup = _speedup(grown)
    records = []
    for curve in grown:
        points = curve["points"]
        if not curve["name"].endswith("-batch") or len(points) < 2:
            continue
        moved = points[-1].get("bytes_per_unit")
        share = None
        if moved is not None:
            share = moved * points[-1]["rate"] / machine["copy_memory_bytes_per_second"]
            rest = "memory traffic" if share > 0.5 else "arithmetic"
        elif speedup is not None:
            rest = "memory traffic" if speedup < 1.4 else "arithmetic"
        else:
            rest = "not told apart"
        fixed = [min(1.0, points[0]["batch_seconds"] / p["batch_seconds"]) for p in points]
        records.append(
            {
                "curve": curve["name"],
                "fixed_seconds": points[0]["batch_seconds"],
                "bytes_per_unit": moved,
                "share_of_copy_speed": share,
                "devices_speedup": None if moved is not None else speedup,
                "points": [
                    {
                        "batch": point["batch"],
                        "fixed_share": part,
                        "limit": "launches" if part > 0.5 else rest,
                    }
                    for point, part in zip(points, fixed, strict=True)
                ],
            }
        )
    return records


def _speedup(grown: Sequence[dict[str, Any]]) -> float | None:
    """What each doubling of the devices multiplies the solver's speed by."""
    for curve in grown:
        points = curve["points"]
        if curve["name"] == "solve-devices" and len(points) > 1:
            doublings = math.log2(points[-1]["x"] / points[0]["x"])
            ratio: float = (points[-1]["rate"] / points[0]["rate"]) ** (1 / doublings)
            return ratio
    return None


def _solved(x: float, batch: int, boards: Boards) -> Point:
    return Point(x, batch, boards, {"count": batch})


def _stepped(environments: int) -> Point:
    fields = {
        "conflict": "block_both",
        "observation": "compact",
        "environments": environments,
        "steps": 64,
        "episode_steps": 64,
    }
    return Point(environments, environments, Boards(_BOARDS, 4, 0.2), fields)


def _verified(count: int) -> Point:
    boards = Boards(256, 4, 0.2)
    return Point(count, count, boards, {"solve": 256, "count": count, "steps": 32})
