"""The result as a table for the terminal, and as a file."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def short(number: float) -> str:
    """Three digits with k, M or G: 12.3k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.3g}{unit}" if number < 999.5 * limit else f"{number:.2e}"
    return f"{number:.3g}"


def row_cells(row: Mapping[str, Any]) -> list[str]:
    """What is measured, ours, the peer's, the ratio with its range, the goal, and whether met."""
    ratio = row["ratio"]
    goals = []
    if row["goal_ratio"] is not None:
        goals.append(f"{row['goal_ratio']:g}x")
    if row["goal_rate"] is not None:
        goals.append(f"{short(row['goal_rate'])}/s")
    return [
        row["name"],
        _rate(row["ours"]),
        "" if row["peer"] is None else _rate(row["peer"]),
        "" if ratio is None else f"{ratio['median']:.3g}x",
        "" if ratio is None else f"{ratio['min']:.3g} to {ratio['max']:.3g}",
        " and ".join(goals),
        {None: "", True: "yes", False: "no"}[row["met"]],
    ]


HEADINGS = ["row", "ours a second", "peer's a second", "ratio", "least to largest", "goal", "met"]


def notes(row: Mapping[str, Any]) -> list[str]:
    """What has to be said beside a row."""
    told = []
    for side in (row["ours"], row["peer"]):
        if side is not None and "error" in side:
            told.append(f"{row['name']}: {side['name']}: {side['error']}")
    peer = row["peer"] or {}
    if peer.get("gave_up"):
        told.append(
            f"{row['name']}: {peer['name']} gave up on {peer['gave_up']} boards, which took "
            f"{peer['gave_up_seconds']:.3g} s and are not in its rate"
        )
    if row["ours"].get("unknown"):
        told.append(f"{row['name']}: {row['ours']['unknown']} boards UNKNOWN, not in our rate")
    if "agreement" in row:
        same = row["agreement"]
        told.append(
            f"{row['name']}: {same['compared']} optima compared, {same['different']} different"
        )
    return told


def text(result: Mapping[str, Any]) -> str:
    """The table, the notes and the limits, for a terminal."""
    machine = result["machine"]
    lines = [
        f"{machine['device_kind']} ({machine['devices']} devices), {machine['cpu']}, "
        f"{machine['cores']} cores, jax {result['versions']['jax']}, load before "
        f"{machine['load_before']:.2g}" + (", quick: sizes too small to quote" * result["quick"]),
        "",
        *_aligned([HEADINGS, *map(row_cells, result["rows"])]),
        "",
        *(note for row in result["rows"] for note in notes(row)),
    ]
    for curve in result["curves"]:
        shown = ", ".join(f"{p['x']:g}: {short(p['rate'])}" for p in curve["points"])
        lines += ["", f"{curve['name']} ({curve['unit']}s a second, {curve['setting']})"]
        lines.append(f"  {shown}" + (f" {curve['error']}" if "error" in curve else ""))
    for limit in result["limits"]:
        ends = (limit["points"][0], limit["points"][-1])
        named = ", ".join(
            f"{end['limit']} at batch {end['batch']:,} ({end['fixed_share']:.0%} fixed)"
            for end in ends
        )
        lines += ["", f"limit of {limit['curve']}: {named}"]
    return "\n".join(lines)


def write_whole(path: Path, content: str) -> None:
    """Write a file that appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.write_text(content, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, result: Mapping[str, Any]) -> None:
    """Write the result; floats keep six digits, which is more than they are worth."""
    write_whole(path, json.dumps(_rounded(result), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def _rate(side: Mapping[str, Any]) -> str:
    return short(side["median"]) if "median" in side else "-"


def _aligned(rows: Iterable[list[str]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows
    ]
