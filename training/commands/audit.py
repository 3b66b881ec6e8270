"""`jaxlake audit`: verify a run's files against the digests of its stages."""

import argparse

from jaxlake.command_line.arguments import add_run, describe
from training.commands.trust import add_trust, read_only

_HELP = """\
Compare the files of every complete stage with their digests (stages/S/digests.json). Then draw its
boards, score the answers to the validation set and review the engineer's answers again. Nothing is
trained. Print one line per stage, and one per problem. See docs/how_to/audit.md.

exit status: 0 no problems, 1 problems were found, 2 the run does not exist
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    add_run(parser)
    add_trust(parser)
    parser.add_argument(
        "--shallow", action="store_true", help="compare digests only, without recomputation"
    )


@read_only
def run(args: argparse.Namespace) -> int:
    """Audit a run, and print its problems and the result."""
    from training.commands.runs import require_run

    directory, has_problems = require_run(args.run_dir), False
    from training.audit import audit_run

    for audit in audit_run(args.run_dir, deep=not args.shallow):
        name = "run" if audit.stage is None else f"stage {audit.stage}"
        for problem in audit.problems:
            # Escape the message, because it may quote a damaged file.
            print(f"{name}: {problem.encode('unicode_escape').decode('ascii')}")
        has_problems |= bool(audit.problems)
        if not audit.problems and audit.stage is not None:
            print(f"{name}: {audit.files} files hold", flush=True)
    if has_problems:
        print("The run is broken.")
    else:
        print("The run holds." if directory.finished() else "Holds so far: the run is in progress.")
    return int(has_problems)
