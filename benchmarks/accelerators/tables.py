"""The tables of the forecasts, in Markdown, as `python -m benchmarks.accelerators` prints them."""

from collections.abc import Iterable
from typing import Any

from benchmarks.accelerators.targets import Machine, machine_of
from benchmarks.accelerators.totals import shares

_TREES = "tree_program"
"""The file whose kernels search constraint trees."""


def header(target: str, *, measured: bool = False) -> list[str]:
    """Say what a target is taken to be, and name the columns."""
    machine = machine_of(target)
    return [
        f"\n{target}: {machine.name}. Forecasts assume {machine.launch * 1e6:g} us per launch,"
        f" {machine.condition * 1e6:g} us per decision that depends on data,"
        f" {machine.bandwidth / 1e12:g} TB/s, {machine.programs} programs of kernels of Pallas (on"
        f" GPUs, warps) side by side, {1e-9 / machine.operation:.3g} G operations/s in each, of"
        f" {machine.costs.lanes} lanes, the time of {machine.costs.wait} operations for what a"
        f" round of a loop loads, and of {machine.costs.meeting} for a barrier.",
        "| program | compiled in | arguments | temporaries | counted on | launches | decisions"
        " | bytes moved | forecast |" + " measured |" * measured,
        "|" + " --- |" * (9 + measured),
    ]


def sentence_of(numbers: dict[str, Any]) -> str:
    """Say what was measured of a device that forecasts assume."""
    return (
        f"{numbers['device']}: measured were {numbers['launch_seconds'] * 1e6:.2g} us for one more"
        f" kernel in a loop, {numbers['decision_seconds'] * 1e6:.2g} us for each round in which"
        f" data decide, and {numbers['copy_bytes_per_second'] / 1e12:.3g} TB/s in a large copy."
    )


def row(record: dict[str, Any], *, measured: bool = False) -> str:
    """Write one program as a row of a Markdown table, with its measurement or without."""
    cells = [record["program"], *_forecast_cells(record)]
    if measured:
        cells.append(_measured_cell(record["measured"], record.get("unit", "unit")))
    return "| " + " | ".join(cells) + " |"


def _forecast_cells(record: dict[str, Any]) -> list[str]:
    if "error" in record:
        return [f"failed: {record['error']}", *[""] * 7]
    if "compile_seconds" not in record:
        return ["not forecast", *[""] * 7]
    cells = [
        f"{record['compile_seconds']:.1f} s",
        *(f"{record[name] / 1e6:,.1f} MB" for name in ("argument_bytes", "temporary_bytes")),
    ]
    if "forecast_rate" in record:
        least = "at least " if record["uncounted_loops"] else ""
        cells.append(_counted_on(record))
        cells += [f"{least}{record['launches']:,}", f"{least}{record['conditions']:,}"]
        cells += [
            f"{record['bytes'] / 1e9:,.2f} GB",
            f"{record['forecast_seconds'] * 1e3:,.2f} ms, "
            f"{record['forecast_rate']:,.0f} {record['unit']}s/s",
        ]
    else:
        cells += ["not counted"] * 5
    return cells


def _measured_cell(measured: dict[str, Any], unit: str) -> str:
    if "error" in measured:
        return f"failed: {measured['error']}"
    ran = ""
    if "kernels" in measured:
        busy = measured["kernel_seconds"] * 1e3
        ran = f"; {measured['kernels']:,} kernels, in which {busy:,.2f} ms go by"
    return (
        f"{measured['seconds'] * 1e3:,.2f} ms, {measured['rate']:,.0f} {unit}s/s on"
        f" {measured['device']} ({_compiled(measured)}{ran})"
    )


def _compiled(measured: dict[str, Any]) -> str:
    if measured.get("compiled_ahead"):
        return "compiled ahead of time elsewhere"
    return (
        f"compiled in {measured['compile_seconds']:.1f} s, first call"
        f" {measured['first_call_seconds']:.2f} s"
    )


def table_of_measurements(records: Iterable[dict[str, Any]]) -> list[str]:
    """Write what was measured beside what was forecast, of the programs that were measured."""
    lines = [
        "| program | measured | that is | forecast | kernels run | launches, forecast | in kernels"
        " | compiled there in | commit |",
        "|" + " --- |" * 9,
    ]
    for record in records:
        measured = record.get("measured", {})
        if "seconds" not in measured:
            continue
        forecast = launches = "not forecast"
        if "forecast_seconds" in record:
            forecast = f"{record['forecast_seconds'] * 1e3:,.2f} ms"
            launches = f"{record['launches']:,}"
        ahead = measured.get("compiled_ahead")
        cells = [
            record["program"],
            f"{measured['seconds'] * 1e3:,.2f} ms",
            f"{measured['rate']:,.0f} {record['unit']}s/s",
            forecast,
            f"{measured['kernels']:,}" if "kernels" in measured else "not counted",
            launches,
            f"{measured['kernel_seconds'] * 1e3:,.2f} ms" if "kernels" in measured else "",
            "elsewhere" if ahead else f"{measured['compile_seconds']:.0f} s",
            measured["commit"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines if len(lines) > 2 else []


def _counted_on(record: dict[str, Any]) -> str:
    if record["counted_boards"] is None:
        return "all"
    hardest = f" and the {record['hardest_boards']} hardest" if record["hardest_boards"] else ""
    return f"{record['counted_boards']:,} boards{hardest}"


def table_of_shares(records: Iterable[dict[str, Any]], machine: Machine) -> list[str]:
    """Write what the time of each forecast is made of, in milliseconds, and how long a row took."""
    lines = [
        "| program | launches or memory | decisions | programs of kernels, shared out"
        " | longest programs | of both, the trees' | row made in |",
        "|" + " --- |" * 7,
    ]
    for record in records:
        if "forecast_rate" not in record:
            continue
        one = shares(record, machine)
        parts = (one.kernels, one.decisions, one.programs, one.longest)
        cells = [record["program"], *(f"{seconds * 1e3:,.2f}" for seconds in parts)]
        trees = [kernel for kernel in record["kernels"] if _TREES in kernel["name"]]
        names = {"kernel_operations": "operations", "longest_program_operations": "longest"}
        own = {name: sum(kernel[of] for kernel in trees) for name, of in names.items()}
        of_trees = shares(record | own, machine)
        both = f"{of_trees.programs * 1e3:,.2f} and {of_trees.longest * 1e3:,.2f}"
        cells += [both if trees else "no trees", f"{record['took_seconds'] / 60:.1f} min"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
