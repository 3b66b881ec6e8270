"""The tables of docs/benchmarks.md, rendered from the committed results.

python -m benchmarks.table           print them
python -m benchmarks.table --write   put them into the document
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lake.report import HEADINGS, notes, row_cells, short, write_whole

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def markdown(result: Mapping[str, Any]) -> str:
    """One result as Markdown: the machine, the rows, their notes, the curves, the limits."""
    machine, versions = result["machine"], result["versions"]
    copy = machine["copy_memory_bytes_per_second"]
    lines = [
        f"### {machine['device_kind']}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['devices']} devices",
        "",
        f"jaxlake {versions['jaxlake']} (commit {_short(result['commit'])}), jax "
        f"{versions['jax']}, Python {versions['python']}; {result['repeats']} repeats of "
        f"{result['seconds']:g} s for each side, in turns; load before: "
        f"{machine['load_before']:.2f}; the machine copies {copy / 1e9:.3g} GB/s and starts a "
        f"program in {machine['launch_seconds'] * 1e6:.3g} µs.",
        "",
        *_rows([*HEADINGS, "compiled in"], [_row(row) for row in result["rows"]]),
        "",
        *(f"- {note}" for row in result["rows"] for note in notes(row)),
    ]
    for curve in result["curves"]:
        points = curve["points"]
        lines += ["", f"**{curve['name']}**: {curve['unit']}s a second; {curve['setting']}", ""]
        lines += _rows(
            [curve["varied"], *(f"{p['x']:g}" for p in points)],
            [
                ["a second", *(short(p["rate"]) for p in points)],
                ["ms a batch", *(f"{p['batch_seconds'] * 1e3:.3g}" for p in points)],
            ],
        )
    if result["limits"]:
        lines += ["", "What sets the limit:", ""]
    for limit in result["limits"]:
        share = limit["share_of_copy_speed"]
        told = "" if share is None else f"; {share:.0%} of the copying speed at the largest batch"
        if limit["devices_speedup"] is not None:
            told += f"; twice the devices bring {limit['devices_speedup']:.2f} times the speed"
        named = ", ".join(f"{p['batch']:,} {p['limit']}" for p in limit["points"])
        lines.append(f"- {limit['curve']}, by batch: {named}{told}")
    return "\n".join(lines) + "\n"


def document(text: str, results: Sequence[Mapping[str, Any]]) -> str:
    """The document with what stands between its markers replaced by the results.

    Raises:
        ValueError: a marker is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"docs/benchmarks.md: {BEGIN} and {END} are needed, in this order")
    tables = "\n".join(map(markdown, results)) or "No results are committed yet.\n"
    return f"{before}{begin}\n\n{tables}\n{end}{after}"


def committed() -> list[dict[str, Any]]:
    """The results of `jaxlake bench lake` under benchmarks/results, by file name."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("lake-*.json"))]


def _short(commit: str | None) -> str:
    """Twelve digits, and the plus sign of a checkout that differs."""
    return "unknown" if commit is None else commit.rstrip("+")[:12] + "+" * commit.endswith("+")


def _row(row: Mapping[str, Any]) -> list[str]:
    seconds = row["ours"].get("compile_seconds")
    setting = f"{row['name']}: {row['unit']}s; {row['setting']}"
    return [setting, *row_cells(row)[1:], "" if seconds is None else f"{seconds:.1f} s"]


def _rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def main() -> int:
    """Print the tables, or write them into the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    if parser.parse_args().write:
        write_whole(DOCUMENT, document(DOCUMENT.read_text(encoding="utf-8"), committed()))
    else:
        sys.stdout.write("\n".join(map(markdown, committed())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
