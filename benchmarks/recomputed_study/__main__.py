"""The command: `python -m benchmarks.recomputed_study STUDY_DIR|OUTCOMES [--results FILE]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.recomputed_study import disagreements, disagreements_with_answers


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many numbers were compared, and each one that differs; return 1 if any does."""
    parser = argparse.ArgumentParser(description="Recompute a study's results.json independently.")
    parser.add_argument(
        "study",
        type=Path,
        nargs="+",
        help="the study's directory; or files of answers, outcomes.json.gz, where these are kept",
    )
    parser.add_argument(
        "--results", type=Path, help="the file to check, if it is not report/results.json there"
    )
    parser.add_argument("--resamples", type=int, default=4000, help="of the bootstrap (4000)")
    given = parser.parse_args(arguments)
    if given.study[0].is_dir():
        if len(given.study) > 1:
            parser.error(f"got {len(given.study)} directories, allowed is one")
        compared, found = disagreements(given.study[0], given.results, resamples=given.resamples)
    elif given.results is None:
        parser.error("--results: is missing; with files of answers it names what they are held to")
    else:
        compared, found = disagreements_with_answers(
            given.study, given.results, resamples=given.resamples
        )
    print(f"{compared:,} numbers compared, {len(found)} disagreements")
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
