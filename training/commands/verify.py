"""`jaxlake verify`: whether a run's files are those that its stages left."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from training.commands import Subparsers

if TYPE_CHECKING:
    from training.provenance import Check

_DESCRIPTION = """\
Follow the chain of hashes of a run's stages (chain.jsonl), and derive again what follows from other
files: boards from seed and configuration, verdicts from answers, gate, context, the review of the
engineer's answers, the next configuration. Says what was checked, a line a stage, up to the first
broken link. A run in progress is checked as far as its chain goes.

exit status: 0 all holds, 1 a link is broken, 2 there is no run
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = subparsers.add_parser(
        "verify",
        help="check a run's chain of hashes, and derive again what can be",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_dir", metavar="RUN", type=Path, help="a run's directory")
    parser.add_argument(
        "--shallow", action="store_true", help="compare hashes only, derive nothing again"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out."""
    from training.provenance import checks, finished

    holding: list[Check] = []
    for check in checks(args.run_dir, deep=not args.shallow):
        if holding and check.stage != holding[-1].stage:
            print(_line(holding), flush=True)
            holding = []
        if not check.holds:
            print(f"broken: {check}")
            return 1
        holding.append(check)
    if holding:
        print(_line(holding))
    print("The run holds." if finished(args.run_dir) else "Holds so far: the run is in progress.")
    return 0


def _line(checks: Sequence["Check"]) -> str:
    """What was checked of one stage, or of the run as a whole."""
    stage = checks[0].stage
    hashed = [check.part for check in checks if not check.derived]
    if stage is not None:
        files = sum(Path(part).suffix in (".json", ".jsonl", ".txt") for part in hashed)
        hashed = ["link", f"{files} files", "metrics", "checkpoint"]
    derived = [check.part for check in checks if check.derived]
    again = f"; derived again: {', '.join(derived)}" if derived else ""
    return f"{'run' if stage is None else f'stage {stage}'}: {', '.join(hashed)}{again}"
