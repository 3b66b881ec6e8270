"""The table of docs/trainee_benchmarks.md, from the committed results.

`python -m benchmarks.trainee.tables` prints it, `--write` puts it into the page.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.lake.tables import between_markers
from jaxlake.files import write_text_whole

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/trainee_benchmarks.md"
RESULTS = [ROOT / f"benchmarks/results/trainee-{kind}.json" for kind in ("h100", "v5p", "v6e")]

BEGIN, END = "<!-- updates: begin -->", "<!-- updates: end -->"
_COLUMNS = (
    *("model", "devices", "tokens of a row", "rows", "remat", "compiled in", "arguments"),
    *("temporaries", "fits", "collectives, sent", "launches"),
    *("products / attention / others / waiting", "forecast", "MFU"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Print or write the table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trainee.tables")
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.name}")
    args = parser.parse_args(argv)
    if args.write:
        page = between_markers(PAGE.read_text(), BEGIN, END, table())
        write_text_whole(PAGE, page)
    else:
        print(table())
    return 0


def table() -> str:
    """Return the table of all committed updates."""
    files = [json.loads(path.read_text()) for path in RESULTS if path.exists()]
    updates = [one for file in files for one in file["updates"]]
    lines = ["| " + " | ".join(_COLUMNS) + " |", "| --- " * len(_COLUMNS) + "|"]
    return "\n".join(lines + [_row(one) for one in updates])


def _row(record: dict[str, Any]) -> str:
    work = record["work"]
    first = [record["model"], record["target"], f"{work['prompt']} + {work['width']:,}"]
    first += [str(work["rows"]), str(work["remat"]).lower()]
    if "error" in record:
        return "| " + " | ".join([*first, "failed: " + record["error"]]) + " |" * 9
    calls, sent = sum(record["collectives"].values()), sum(record["sent_bytes"].values())
    # Of an older result nothing was read of what overlaps: it waits for all that is exchanged.
    waiting = record.get("waiting_seconds", record["exchange_seconds"])
    parts = [record[f"{name}_seconds"] for name in ("product", "attention", "other")]
    cells = [
        *first,
        f"{record['compile_seconds']:.0f} s",
        *(f"{record[f'{name}_bytes'] / 1e9:.1f} GB" for name in ("argument", "temporary")),
        "yes" if record["fits"] else "no",
        f"{calls:,}, {sent / 1e9:.0f} GB",
        f"{record['launches']:,}",
        " / ".join(f"{seconds:.2f}" for seconds in (*parts, waiting)) + " s",
        f"{record['forecast_seconds']:.1f} s",
        f"{record['forecast_mfu']:.0%}",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
