"""The result as tables: for the terminal, and for docs/benchmarks.md.

python -m benchmarks.lake.tables           # print the committed results as Markdown
python -m benchmarks.lake.tables --write   # put them into the document
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lake.protocol import ROOT
from jaxlake.files import write_text_whole

RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"

HEADINGS = ["row", "ours a second", "peer's a second", "ratio", "least to largest", "goal", "met"]

Result = Mapping[str, Any]


def short(number: float) -> str:
    """Write a number in three digits with k, M or G: 12.3k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.3g}{unit}" if number < 999.5 * limit else f"{number:.2e}"
    return f"{number:.3g}"


def row_cells(row: Result) -> list[str]:
    """Return the cells of a row under `HEADINGS`."""
    ratio = row["ratio"]
    goals = []
    if row["goal_ratio"] is not None:
        goals.append(f"{row['goal_ratio']:g}x")
    if row["goal_rate"] is not None:
        goals.append(f"{short(row['goal_rate'])}/s")
    ours, peer = (
        "" if side is None else short(side["median"]) if "median" in side else "-"
        for side in (row["ours"], row["peer"])
    )
    return [
        row["name"],
        ours,
        peer,
        "" if ratio is None else f"{ratio['median']:.3g}x",
        "" if ratio is None else f"{ratio['min']:.3g} to {ratio['max']:.3g}",
        " and ".join(goals),
        {None: "", True: "yes", False: "no"}[row["met"]],
    ]


def notes(row: Result) -> list[str]:
    """Say what a reader has to know beside the numbers of a row."""
    found = [
        f"{side['name']}: {side['error']}"
        for side in (row["ours"], row["peer"])
        if side is not None and "error" in side
    ]
    peer = row["peer"] or {}
    if peer.get("gave_up"):
        found.append(
            f"{peer['name']} gave up on {peer['gave_up']} boards, which took "
            f"{peer['gave_up_seconds']:.3g} s and are not in its rate"
        )
    if row["ours"].get("unknown"):
        found.append(f"{row['ours']['unknown']} boards UNKNOWN, not in our rate")
    if "agreement" in row:
        same = row["agreement"]
        found.append(f"{same['compared']} optima compared, {same['different']} different")
    return [f"{row['name']}: {note}" for note in found]


def text(result: Result) -> str:
    """Write the rows, the notes and the limits for a terminal."""
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
        points = ", ".join(f"{p['x']:g}: {short(p['rate'])}" for p in curve["points"])
        lines += ["", f"{curve['name']} ({curve['unit']}s a second, {curve['setting']})"]
        lines.append(f"  {points}" + (f" {curve['error']}" if "error" in curve else ""))
    for limit in result["limits"]:
        named = ", ".join(
            f"{end['limit']} at batch {end['batch']:,} ({end['fixed_share']:.0%} fixed)"
            for end in (limit["points"][0], limit["points"][-1])
        )
        lines += ["", f"limit of {limit['curve']}: {named}"]
    return "\n".join(lines)


def _aligned(rows: Iterable[list[str]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows
    ]


def write_json(path: Path, result: Result) -> None:
    """Write the result; floats keep six digits, which is more than they are worth."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.6g}")
        if isinstance(value, Mapping):
            return {key: rounded(item) for key, item in value.items()}
        return [rounded(item) for item in value] if isinstance(value, list | tuple) else value

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_whole(path, json.dumps(rounded(result), indent=1) + "\n")


def markdown(result: Result) -> str:
    """Write one result as Markdown: the machine, the rows, their notes, the curves, the limits."""
    machine, versions = result["machine"], result["versions"]
    copy = machine["copy_memory_bytes_per_second"]
    lines = [
        f"### {machine['device_kind']}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['devices']} devices",
        "",
        f"jaxlake {versions['jaxlake']} (commit {_short_commit(result['commit'])}), jax "
        f"{versions['jax']}, Python {versions['python']}; {result['repeats']} repeats of "
        f"{result['seconds']:g} s for each side, in turns; load before: "
        f"{machine['load_before']:.2f}; the machine copies {copy / 1e9:.3g} GB/s and starts a "
        f"program in {machine['launch_seconds'] * 1e6:.3g} µs.",
        "",
        *_markdown_rows([*HEADINGS, "compiled in"], [_markdown_row(r) for r in result["rows"]]),
        "",
        *(f"- {note}" for row in result["rows"] for note in notes(row)),
    ]
    for curve in result["curves"]:
        points = curve["points"]
        lines += ["", f"**{curve['name']}**: {curve['unit']}s a second; {curve['setting']}", ""]
        lines += _markdown_rows(
            [curve["varied"], *(f"{p['x']:g}" for p in points)],
            [
                ["a second", *(short(p["rate"]) for p in points)],
                ["ms a batch", *(f"{p['batch_seconds'] * 1e3:.3g}" for p in points)],
            ],
        )
    if result["limits"]:
        lines += ["", "What sets the limit:", ""]
    for limit in result["limits"]:
        share, speedup = limit["share_of_copy_speed"], limit["devices_speedup"]
        end = "" if share is None else f"; {share:.0%} of the copying speed at the largest batch"
        if speedup is not None:
            end += f"; twice the devices bring {speedup:.2f} times the speed"
        named = ", ".join(f"{p['batch']:,} {p['limit']}" for p in limit["points"])
        lines.append(f"- {limit['curve']}, by batch: {named}{end}")
    return "\n".join(lines) + "\n"


def _short_commit(commit: str | None) -> str:
    """Return twelve digits, and the plus sign of a checkout whose files differ."""
    return "unknown" if commit is None else commit.rstrip("+")[:12] + "+" * commit.endswith("+")


def _markdown_row(row: Result) -> list[str]:
    seconds = row["ours"].get("compile_seconds")
    setting = f"{row['name']}: {row['unit']}s; {row['setting']}"
    return [setting, *row_cells(row)[1:], "" if seconds is None else f"{seconds:.1f} s"]


def _markdown_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(line) + " |" for line in (headings, ["---"] * len(headings), *rows)]


def document(text: str, results: Sequence[Result]) -> str:
    """Return the document with the results in place of what stands between its markers."""
    tables = "\n".join(map(markdown, results)) or "No results are committed yet.\n"
    return between_markers(text, BEGIN, END, tables)


def between_markers(text: str, begin: str, end: str, tables: str) -> str:
    """Return the document with the tables in place of what stands between two markers.

    Raises:
        ValueError: A marker is missing.
    """
    before, first, rest = text.partition(begin)
    _, second, after = rest.partition(end)
    if not first or not second:
        raise ValueError(f"the page: {begin} and {end} are needed, in this order")
    return f"{before}{begin}\n\n{tables}\n{end}{after}"


def committed() -> list[dict[str, Any]]:
    """Load the results under benchmarks/results, by file name."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("lake-*.json"))]


def main() -> int:
    """Print the tables, or write them into the document."""
    parser = argparse.ArgumentParser(description="The tables of docs/benchmarks.md.")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    if parser.parse_args().write:
        write_text_whole(DOCUMENT, document(DOCUMENT.read_text(encoding="utf-8"), committed()))
    else:
        sys.stdout.write("\n".join(map(markdown, committed())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
