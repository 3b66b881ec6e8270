"""The command: `python -m benchmarks.recomputed_study STUDY_DIR [--results FILE]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.recomputed_study import disagreements


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many numbers were compared, and each one that differs; return 1 if any does."""
    parser = argparse.ArgumentParser(description="Recompute a study's results.json independently.")
    parser.add_argument("study", type=Path, help="the study's directory")
    parser.add_argument(
        "--results", type=Path, help="the file to check, if it is not report/results.json there"
    )
    parser.add_argument("--resamples", type=int, default=4000, help="of the bootstrap (4000)")
    given = parser.parse_args(arguments)
    compared, found = disagreements(given.study, given.results, resamples=given.resamples)
    print(f"{compared:,} numbers compared, {len(found)} disagreements")
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
