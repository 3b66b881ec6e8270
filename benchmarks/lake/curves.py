"""How cost grows with batch, board, agents and holes, and what sets the limit; without peers."""

import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lake.cases import SOLVE, STEP, STEPPED_BOARDS, VERIFY, Boards, Side, step_fields
from benchmarks.lake.comparison import PREPARE_TIMEOUT, Effort, start
from benchmarks.lake.protocol import WorkerError
from benchmarks.lake.random_boards import write_boards

_SEED = 20260618


@dataclass(frozen=True)
class Point:
    """One measurement of a curve."""

    x: float
    batch: int  # units in one call
    boards: Boards
    fields: dict[str, Any]
    devices: int | None = None  # None: all


@dataclass(frozen=True)
class Curve:
    """One thing is varied while the rest stays."""

    name: str
    varied: str
    unit: str
    setting: str
    side: Side
    points: tuple[Point, ...]


def curves(quick: bool, on_gpu: bool, devices: int) -> list[Curve]:
    """Make all curves; `quick` ones have few and small points. Batches divide by `devices`."""
    batch = 256 if quick else 1 << 16 if on_gpu else 1 << 13
    largest = 512 if quick else 1 << 18 if on_gpu else 1 << 16
    batches = [b * devices for b in (1, 8, 64, 512, 4096, 32768, 131072) if b * devices <= largest]
    sizes = (4, 10) if quick else (4, 6, 8, 10, 16)
    agents = (2, 3) if quick else (2, 3, 4, 5)
    holes = (0.0, 0.3) if quick else (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)

    def solving(
        name: str, setting: str, boards: Mapping[Any, Boards], on_devices: bool = False
    ) -> Curve:
        points = (
            Point(x, b.count, b, {"count": b.count}, devices=int(x) if on_devices else None)
            for x, b in boards.items()
        )
        varied = "hole_ratio" if name == "holes" else name
        return Curve(f"solve-{name}", varied, "board", setting, SOLVE, tuple(points))

    def stepped(count: int) -> Point:
        fields = step_fields("block_both", "compact", count, steps=64)
        return Point(count, count, STEPPED_BOARDS, fields)

    def verified(count: int) -> Point:
        fields = {"solve": 256, "count": count, "steps": 32}
        return Point(count, count, Boards(256, 4, 0.2), fields)

    by_batch = {b: Boards(b, 2, 0.3) for b in batches}
    by_size = {n: Boards(batch, 2, 0.3, n) for n in sizes}
    by_agents = {k: Boards(batch, k, 0.2) for k in agents}
    by_holes = {h: Boards(batch, 2, h) for h in holes}
    by_devices = {d: Boards(batch, 2, 0.3) for d in sorted({1, devices})}
    of = f"batch {batch:,}"
    return [
        solving("batch", "10x10, 2 agents, 30% holes", by_batch),
        solving("size", f"2 agents, 30% holes, {of}", by_size),
        solving("agents", f"10x10, 20% holes, {of}", by_agents),
        solving("holes", f"10x10, 2 agents, {of}", by_holes),
        solving("devices", f"10x10, 2 agents, 30% holes, {of}", by_devices, on_devices=True),
        Curve(
            "steps-batch",
            "environments",
            "step",
            "10x10, 4 agents, 20% holes, block_both, compact",
            STEP,
            tuple(map(stepped, batches)),
        ),
        Curve(
            "verify-batch",
            "batch",
            "plan",
            "10x10, 4 agents, plans of up to 32 steps",
            VERIFY,
            tuple(map(verified, batches)),
        ),
    ]


def follow(curve: Curve, effort: Effort, cores: int) -> dict[str, Any]:
    """Measure all points of a curve in one process, one after the other."""
    told = ("name", "varied", "unit", "setting")
    answer: dict[str, Any] = {name: getattr(curve, name) for name in told} | {"points": []}
    try:
        with tempfile.TemporaryDirectory() as folder, start(curve.side, cores) as worker:
            for point in curve.points:
                boards = Path(folder) / "boards.npz"
                write_boards(boards, **vars(point.boards), seed=_SEED)
                devices = point.devices or effort.devices
                fields = {"boards": str(boards), "devices": devices, **point.fields}
                prepared = worker.ask("prepare", PREPARE_TIMEOUT, **fields)
                rates = []
                for _ in range(effort.repeats):
                    measured = worker.ask("measure", PREPARE_TIMEOUT, seconds=effort.seconds)
                    rates.append(measured["units"] / measured["seconds"])
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
    """Name what sets the limit of each kind of work, from what was measured.

    One part of a batch's time does not depend on the batch: programs and rounds of loops have to be
    started, however little they do. It is read off the smallest batch. Where this part is more than
    half, the limit is `launches`. Otherwise it is `memory traffic` if the bytes that the operations
    read and write, as XLA counts them, come at more than half of the speed at which this machine
    copies memory, and else `arithmetic`. XLA can't count the bytes of solving, whose rounds depend
    on the boards. There `memory traffic` is named if twice the devices bring less than 1.4 times
    the speed, because devices share nothing but the memory; with one device the limit stays
    `not told apart`.

    Args:
        grown: the measured curves.
        machine: what `machine_speed` measured.

    Returns:
        One record for every curve over batches: the seconds that the smallest batch takes, the
        bytes and their share of the copying speed at the largest batch, the speed-up by more
        devices, and for every batch the fixed share and the limit.
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
    """Return the factor that each doubling of the devices brings to the solver's speed."""
    for curve in grown:
        points = curve["points"]
        if curve["name"] == "solve-devices" and len(points) > 1:
            doublings = math.log2(points[-1]["x"] / points[0]["x"])
            ratio: float = (points[-1]["rate"] / points[0]["rate"]) ** (1 / doublings)
            return ratio
    return None
