"""`jaxlake audit`: verify a run's files against the digests of its stages."""

import argparse

from jaxlake.command_line.arguments import add_run, describe
from training.commands.trust import add_trust, reading

_HELP = """\
Compare the files of every complete stage with their digests (stages/S/digests.json), draw its
boards again, score the answers to the validation set again, and review the engineer's answers
again. Nothing is trained. One line per stage, and one for each problem. See docs/how_to/audit.md.

exit status: 0 no problems, 1 problems were found, 2 the run does not exist
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    describe(parser, run, _HELP)
    add_run(parser)
    add_trust(parser)
    parser.add_argument(
        "--shallow", action="store_true", help="only compare digests, and make nothing again"
    )


@reading
def run(args: argparse.Namespace) -> int:
    """Audit a run, and print its problems and the result."""
    from training.commands.runs import require_run

    directory, broken = require_run(args.run_dir), False
    from training.audit import audit_run

    for audited in audit_run(args.run_dir, deep=not args.shallow):
        name = "run" if audited.stage is None else f"stage {audited.stage}"
        for problem in audited.problems:
            # The message may quote anything that a damaged file holds.
            print(f"{name}: {problem.encode('unicode_escape').decode('ascii')}")
        broken |= bool(audited.problems)
        if not audited.problems and audited.stage is not None:
            print(f"{name}: {audited.files} files hold", flush=True)
    if broken:
        print("The run is broken.")
    else:
        print("The run holds." if directory.finished() else "Holds so far: the run is in progress.")
    return int(broken)
