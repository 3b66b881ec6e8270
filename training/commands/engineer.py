"""`jaxlake engineer`: what the engineer saw, and what becomes of any answer."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from training.commands import Subparsers, add_configuration
from training.commands.lines import answer_file, open_output
from training.errors import UserError

if TYPE_CHECKING:
    from engineer.replay import Scored

_DESCRIPTION = """\
Look at the environment engineer from outside: the context it was shown, the review of its answers,
what others would have written in its place.

exit status: 0 done, 1 some lines were in error, 2 something has to be mended first
"""

_APPLY = """\
Review answers as a run does: parse, schema, clamp, normalise, minimum share, round, bounded step,
feasibility. JSON lines in, JSON lines out.

in   {"id": ..., "answer": "a model's whole answer"}
out  {"id", "decision", "repairs", "reason", "configuration"}
     decision is accepted, repaired, or kept where the answer can't be used: the configuration is
     then that of --current. repairs are {"name", "field", "old", "new"}, in their order.

A line that is no such record is answered by {"id": ..., "error": "..."} and named on stderr.

exit status: 0 all lines were answered, 1 some lines were in error, 2 a file can't be read
"""

_CONTEXT = """\
Print what the engineer was shown after a stage, byte for byte as it was; for a stage that has no
decision yet, what it would be shown.

exit status: 0 printed, 2 the run has no such stage
"""


_REPLAY = """\
Put a stage's frozen context before other engineers and score what they would have written: schema,
repairs, edit distance, knobs kept, expected learnability, and the five behaviours (docs/replay.md
defines them). Nothing is trained. checkpoint, stale and base are loaded from the run's directory.

exit status: 0 scored, 2 there is no such run, stage or engineer
"""

_ABLATE = """\
Put a stage's frozen context before one engineer with all blocks, with each block left out, and with
each alone, and score what it writes (see `jaxlake engineer replay`).

exit status: 0 scored, 2 there is no such run, stage or engineer
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = subparsers.add_parser(
        "engineer",
        help="review answers, show contexts, replay, ablate",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_apply(actions)
    _add_context(actions)
    _add_replay(actions)
    _add_ablate(actions)


def _add_apply(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "apply",
        help="review answers (JSON lines)",
        description=_APPLY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_configuration(parser)
    parser.add_argument("answers", metavar="ANSWERS", help="JSON lines; - reads standard input")
    parser.add_argument(
        "--current",
        metavar="FILE",
        type=Path,
        required=True,
        help="the configuration in force, YAML or JSON as in a run's stages",
    )
    parser.add_argument("--output", metavar="FILE", help="write here, not to the standard output")
    parser.set_defaults(run=run_apply)


def _add_context(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "context",
        help="print what the engineer saw",
        description=_CONTEXT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_dir", metavar="RUN", type=Path, help="a run's directory")
    parser.add_argument("--stage", metavar="S", type=int, required=True, help="1 or later")
    parser.set_defaults(run=run_context)


def _add_replay(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "replay",
        help="put one context before many engineers",
        description=_REPLAY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_stage(parser)
    parser.add_argument(
        "--engineers",
        metavar="A,B,C",
        required=True,
        help="names as in engineer.kind, parted by commas",
    )
    parser.set_defaults(run=run_replay)


def _add_ablate(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "ablate",
        help="leave blocks of a context out, one at a time",
        description=_ABLATE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_stage(parser)
    parser.add_argument(
        "--engineer", metavar="KIND", default="checkpoint", help="as in engineer.kind (checkpoint)"
    )
    parser.set_defaults(run=run_ablate)


def _add_stage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN", type=Path, help="a run's directory")
    parser.add_argument("--stage", metavar="S", type=int, required=True, help="1 or later")
    parser.add_argument("--json", metavar="FILE", help="write the scores here, too")


def run_apply(args: argparse.Namespace) -> int:
    """Carry `apply` out."""
    from training.config import load
    from training.design.apply import apply_lines, read_configuration

    config = load(args.config, args.set)
    current = read_configuration(args.current, config)
    return answer_file(
        args.answers,
        args.output,
        lambda lines: apply_lines(lines, config, current),
        what="answers",
        errors="surrogateescape",
    )


def run_context(args: argparse.Namespace) -> int:
    """Carry `context` out."""
    from training.design.shown import context_shown

    sys.stdout.write(context_shown(args.run_dir, args.stage))
    return 0


def run_replay(args: argparse.Namespace) -> int:
    """Carry `replay` out."""
    from training.design.counterfactual import replay_stage

    kinds = [name for kind in args.engineers.split(",") if (name := kind.strip())]
    if not kinds:
        raise UserError("--engineers: got none, names parted by commas are needed")
    return _tell(replay_stage(args.run_dir, args.stage, kinds), args.json)


def run_ablate(args: argparse.Namespace) -> int:
    """Carry `ablate` out."""
    from training.design.counterfactual import ablate_stage

    return _tell(ablate_stage(args.run_dir, args.stage, args.engineer), args.json)


def _tell(rows: "list[Scored]", path: str | None) -> int:
    from engineer.replay import table

    print(table(rows), flush=True)  # first: models may have taken long
    for row in rows:
        if row.kind == "kept":
            print(f"jaxlake: {row.engineer}: {row.reason}", file=sys.stderr)
    if path is not None:
        with open_output(path) as out:
            json.dump([row.model_dump(mode="json") for row in rows], out, indent=1)
            out.write("\n")
    return 0
