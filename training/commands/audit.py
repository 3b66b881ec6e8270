"""`jaxlake audit`: check that a run's files are those that its stages left."""

import argparse
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import add_run, describe

if TYPE_CHECKING:
    from training.audit import Check

_HELP = """\
Follow the chain of hashes of a run's stages (chain.jsonl), and derive again what follows from other
files: boards from the seed and the configuration, verdicts from the answers, the gate, the prompts,
the review of the engineer's answers, the next configuration. One line per stage says what was
checked, up to the first part that does not hold. A run in progress is checked as far as its chain
goes. See docs/how_to/audit.md.

exit status: 0 everything holds, 1 a part does not hold, 2 there is no run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    describe(parser, run, _HELP)
    add_run(parser)
    parser.add_argument(
        "--shallow", action="store_true", help="only compare hashes, and derive nothing again"
    )


def run(args: argparse.Namespace) -> int:
    """Audit a run, and print one line per stage and the result."""
    from training.commands.runs import known_run
    from training.run.directory import RunDirectory

    if not RunDirectory(args.run_dir).chain_file.exists():  # a chain without a run is broken
        known_run(args.run_dir)
    from training.audit import audit_run
    from training.run.progress import console

    checks = audit_run(args.run_dir, deep=not args.shallow)
    with console.capture() as notes:  # what drawing the boards again has to say comes last
        for stage, group in itertools.groupby(checks, key=lambda check: check.stage):
            of_stage = list(group)
            if not of_stage[-1].holds:
                result, status = f"broken: {of_stage[-1]}", 1
                break
            print(_line(stage, of_stage), flush=True)
        else:
            finished = RunDirectory(args.run_dir).finished()
            result = "The run holds." if finished else "Holds so far: the run is in progress."
            status = 0
    print(f"{result}\n{notes.get()}", end="")
    return status


def _line(stage: int | None, checks: Sequence["Check"]) -> str:
    """Say what was checked of one stage, or of the run as a whole."""
    hashed = [check.part for check in checks if not check.derived]
    derived = [check.part for check in checks if check.derived]
    again = f"; derived again: {', '.join(derived)}" if derived else ""
    if stage is None:
        return f"run: {', '.join(hashed)}{again}"
    files = sum("." in part for part in hashed)
    return f"stage {stage}: link, {files} files, metrics, checkpoint{again}"
