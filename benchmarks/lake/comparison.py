"""Measure one row: prepare both sides, time them in turns, and compare their answers."""

import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.lake.cases import OWN, Case, Side
from benchmarks.lake.protocol import ROOT, Worker, WorkerError
from benchmarks.lake.random_boards import write_boards

_SEED = 20260617


_DEVICES = "--xla_force_host_platform_device_count"
_XLA_FLAGS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000"


def start_worker(side: Side, num_cores: int) -> Worker:
    """Start the worker of a side.

    On CPUs, XLA flags create one device per core and disable multi-threading of small operations
    inside loops, whose overhead would exceed their cost. All sides get the same flags; a side may
    add more.

    Raises:
        WorkerError: The side's environment does not exist.
    """
    python = Path(sys.executable)
    if side.environment != OWN:
        python = ROOT / ".venv-peers" / side.environment / "bin" / "python"
        if not python.exists():
            raise WorkerError("not installed: tools/peers.sh makes its environment")
    inherited_flags = os.environ.get("XLA_FLAGS", "")
    flags = " ".join([inherited_flags, _XLA_FLAGS, f"{_DEVICES}={num_cores}", side.xla_flags])
    tunables = os.environ.get("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
    environment = {"XLA_FLAGS": flags.strip(), "GLIBC_TUNABLES": tunables}
    return Worker(python, side.module, environment)


def compare(case: Case, seconds: float, num_repeats: int, num_devices: int) -> dict[str, Any]:
    """Measure both sides of a case in turns.

    Args:
        case: The row.
        seconds: Duration of each turn.
        num_repeats: Number of turns per side.
        num_devices: Number of XLA devices, over which our side distributes its batches.

    Returns:
        The row: `name`, `unit`, `ours` and `peer` (with `rates` in units per second,
        their `median`, and the workers' own fields, or an `error`), `ratio` or None, and for
        solving `agreement`.
    """
    row: dict[str, Any] = {
        "name": case.name,
        "unit": case.unit,
        "ours": {"name": case.ours.name},
        "peer": {"name": case.peer.name},
    }
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "boards.npz"
        write_boards(path, **vars(case.boards), seed=_SEED)
        workers: dict[str, Worker] = {}
        for name, side in (("ours", case.ours), ("peer", case.peer)):
            fields = dict(side.fields)
            if side.takes_boards:
                fields["path"] = str(path)
            if side.takes_devices:
                fields["devices"] = num_devices
            try:
                worker = stack.enter_context(start_worker(side, num_devices))
                row[name] |= worker.ask("prepare", **fields)
            except WorkerError as error:
                row[name]["error"] = str(error)
            else:
                row[name]["rates"] = []
                workers[name] = worker
        for _ in range(num_repeats):
            for name, worker in workers.items():
                measurement = worker.ask("measure", seconds=seconds)
                if measurement["seconds"] > 0:
                    row[name]["rates"].append(measurement["units"] / measurement["seconds"])
        if case.name.startswith("solve-") and len(workers) == 2:
            costs = {name: worker.ask("costs") for name, worker in workers.items()}
            row["agreement"] = compare_costs(costs["ours"], costs["peer"])
    for name in workers:
        row[name]["median"] = statistics.median(row[name]["rates"])
    row["ratio"] = _compute_ratio(row)
    return row


def find_failure(row: Mapping[str, Any]) -> str | None:
    """Return why a row is invalid, or None. A failure of the peer does not invalidate it."""
    if "error" in row["ours"]:
        return f"{row['name']}: {row['ours']['error']}"
    if row.get("agreement", {}).get("different"):
        return f"{row['name']}: {row['agreement']['different']} optima differ from the peer's"
    return None


def compare_costs(our_costs: Mapping[str, Any], peer: Mapping[str, Any]) -> dict[str, int]:
    """Compare the optimal sums of costs of boards that both sides solved.

    A board that we prove unsolvable but the peer solves counts as different.
    """
    optimal, unsolvable, undecided = 0, 1, 2
    pairs = [(our_costs["status"][i], our_costs["costs"][i], cost) for i, cost in peer["costs"]]
    decided_pairs = [pair for pair in pairs if pair[0] == optimal and pair[2] is not None]
    refuted_pairs = [pair for pair in pairs if pair[0] == unsolvable and pair[2] is not None]
    return {
        "boards": len(our_costs["status"]),
        "seen_by_peer": len(pairs),
        "compared": len(decided_pairs),
        "different": sum(pair[1] != pair[2] for pair in decided_pairs) + len(refuted_pairs),
        "only_ours": sum(pair[0] != undecided and pair[2] is None for pair in pairs),
        "only_peer": sum(pair[0] == undecided and pair[2] is not None for pair in pairs),
    }


def _compute_ratio(row: Mapping[str, Any]) -> dict[str, float] | None:
    """Divide our rates by the peer's: the medians, and the extremes over pairs of turns."""
    ours, peer = row["ours"], row["peer"]
    if "median" not in ours or "median" not in peer:
        return None
    if len(ours["rates"]) != len(peer["rates"]) or not all(peer["rates"]):
        return None
    ratios = [a / b for a, b in zip(ours["rates"], peer["rates"], strict=True)]
    return {"median": ours["median"] / peer["median"], "min": min(ratios), "max": max(ratios)}
