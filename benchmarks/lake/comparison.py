"""One row: both sides prepared, then measured in turns, then their answers compared."""

import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lake.boards import write_boards
from benchmarks.lake.cases import OWN, Boards, Case, Side
from benchmarks.lake.protocol import ROOT, Worker, WorkerError

PREPARE_TIMEOUT = 900.0
_GRACE = 300.0
_SEED = 20260617


@dataclass(frozen=True)
class Effort:
    """How long each side is measured: `repeats` times `seconds`, in turns."""

    seconds: float
    repeats: int
    devices: int | None


_DEVICES = "--xla_force_host_platform_device_count"
_XLA_FLAGS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000"


def start(side: Side, cores: int) -> Worker:
    """Start a side's worker.

    On a CPU, XLA is told to show one device a core, and not to hand the small operations inside
    loops to other threads, which costs more than they do. Every side is told the same.

    Raises:
        WorkerError: its environment isn't there.
    """
    python = Path(sys.executable)
    if side.environment != OWN:
        python = ROOT / ".venv-peers" / side.environment / "bin" / "python"
        if not python.exists():
            raise WorkerError("not installed: tools/peers.sh makes its environment")
    flags = f"{os.environ.get('XLA_FLAGS', '')} {_XLA_FLAGS} {_DEVICES}={cores}"
    tunables = os.environ.get("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    environment = {"XLA_FLAGS": flags.strip(), "GLIBC_TUNABLES": tunables}
    return Worker(python, side.module, environment)


def fields_of(side: Side, boards: Path | None, devices: int | None) -> dict[str, Any]:
    """What to ask a side to prepare."""
    fields = dict(side.fields)
    if side.takes_boards:
        fields["boards"] = str(boards)
    if side.takes_devices:
        fields["devices"] = devices
    return fields


def compare(case: Case, effort: Effort, cores: int) -> dict[str, Any]:
    """Measure one case.

    Returns:
        The row, as docs/benchmarks.md describes it. A peer that isn't there or fails is named in
        the row's `peer`; so are we in `ours`.
    """
    row: dict[str, Any] = {
        "name": case.name,
        "unit": case.unit,
        "setting": case.setting,
        "goal_ratio": case.goal,
        "goal_rate": case.goal_rate,
        "ours": {"name": case.ours.name},
        "peer": None if case.peer is None else {"name": case.peer.name},
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        boards = _written(case.boards, Path(folder))
        sides: dict[str, tuple[Side, Worker]] = {}
        for name, side in (("ours", case.ours), ("peer", case.peer)):
            if side is None:
                continue
            try:
                worker = stack.enter_context(start(side, cores))
                prepared = worker.ask(
                    "prepare", PREPARE_TIMEOUT, **fields_of(side, boards, effort.devices)
                )
                row[name] |= {**prepared, "rates": []}
                sides[name] = (side, worker)
            except WorkerError as error:
                row[name]["error"] = _explained(side, str(error))
        for _ in range(effort.repeats):
            for name, (side, worker) in list(sides.items()):
                try:
                    measured = worker.ask(
                        "measure", effort.seconds + _GRACE, seconds=effort.seconds
                    )
                    _add(row[name], measured, side.units)
                except WorkerError as error:
                    row[name]["error"] = str(error)
                    del sides[name]
        answers = {}
        for name, (_, worker) in sides.items():
            try:
                answers[name] = worker.ask("finish", _GRACE)
                row[name] |= {
                    key: value for key, value in answers[name].items() if key.startswith("peak_")
                }
            except WorkerError as error:
                row[name]["error"] = str(error)
    for name in ("ours", "peer"):
        if row[name] is not None:
            _summarise(row[name])
    if case.ours.module.endswith(".solving") and len(answers) == 2:
        row["agreement"] = _agreement(answers["ours"], answers["peer"])
    row["ratio"] = _ratio(row)
    row["met"] = _met(row)
    return row


def went_wrong(row: Mapping[str, Any]) -> str | None:
    """Say what makes a row worthless, if anything; a peer that fails doesn't."""
    if "error" in row["ours"]:
        return f"{row['name']}: {row['ours']['error']}"
    if row.get("agreement", {}).get("different"):
        return f"{row['name']}: {row['agreement']['different']} optima differ from the peer's"
    return None


def _written(boards: Boards | None, folder: Path) -> Path | None:
    if boards is None:
        return None
    path = folder / "boards.npz"
    write_boards(path, **vars(boards), seed=_SEED)
    return path


def _explained(side: Side, message: str) -> str:
    if "ModuleNotFoundError" not in message or not side.package:
        return message
    how = f"pip install {side.package}" if side.environment == OWN else "tools/peers.sh installs it"
    return f"not installed: {how} ({message.rpartition('ModuleNotFoundError: ')[2]})"


def _add(side: dict[str, Any], measured: Mapping[str, float], units: float) -> None:
    if measured["seconds"] > 0:
        side["rates"].append(measured["units"] * units / measured["seconds"])
    for name in ("gave_up", "gave_up_seconds"):
        if name in measured:
            side[name] = side.get(name, 0) + measured[name]


def _summarise(side: dict[str, Any]) -> None:
    rates = side.get("rates")
    if rates:
        side |= {"median": statistics.median(rates), "min": min(rates), "max": max(rates)}


def _agreement(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> dict[str, int]:
    """Compare least sums of costs, board by board, where both sides have one.

    A board that we prove unsolvable and on which the peer finds a plan differs, too.
    """
    optimal, unsolvable, unknown = 0, 1, 2
    pairs = [(ours["status"][i], ours["costs"][i], cost) for i, cost in peer["costs"]]
    both = [p for p in pairs if p[0] == optimal and p[2] is not None]
    wrong = [p for p in pairs if p[0] == unsolvable and p[2] is not None]
    return {
        "boards": len(ours["status"]),
        "seen_by_peer": len(pairs),
        "compared": len(both),
        "different": sum(p[1] != p[2] for p in both) + len(wrong),
        "only_ours": sum(p[0] != unknown and p[2] is None for p in pairs),
        "only_peer": sum(p[0] == unknown and p[2] is not None for p in pairs),
    }


def _ratio(row: Mapping[str, Any]) -> dict[str, float] | None:
    """Our median rate over the peer's, and the least and largest of the repeats taken in pairs."""
    ours, peer = row["ours"], row["peer"]
    if peer is None or "median" not in ours or "median" not in peer:
        return None
    if len(ours["rates"]) != len(peer["rates"]) or not all(peer["rates"]):
        return None
    pairs = [a / b for a, b in zip(ours["rates"], peer["rates"], strict=True)]
    return {"median": ours["median"] / peer["median"], "min": min(pairs), "max": max(pairs)}


def _met(row: Mapping[str, Any]) -> bool | None:
    """Whether every goal that can be judged is met; None if there is none."""
    judged = []
    if row["goal_ratio"] is not None and row["ratio"] is not None:
        judged.append(row["ratio"]["median"] >= row["goal_ratio"])
    if row["goal_rate"] is not None and "median" in row["ours"]:
        judged.append(row["ours"]["median"] >= row["goal_rate"])
    return all(judged) if judged else None
