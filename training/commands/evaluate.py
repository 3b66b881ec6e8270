"""`jaxlake evaluate`: a policy on the validation set of a configuration."""

import argparse
from pathlib import Path

from training.commands import Subparsers, add_configuration
from training.environment import prepare

_DESCRIPTION = """\
Let a policy answer the validation set of a configuration, and print its valid and optimal rates.

exit status: 0 done, 2 something has to be mended first
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = subparsers.add_parser(
        "evaluate",
        help="measure a checkpoint or a model folder on a validation set",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_configuration(parser)
    policy = parser.add_mutually_exclusive_group(required=True)
    policy.add_argument("--run-dir", metavar="DIR", type=Path, help="a run's policy")
    policy.add_argument(
        "--model", metavar="FOLDER", help="a Hugging Face model folder, or a hub name"
    )
    parser.add_argument(
        "--stage", metavar="S", type=int, help="with --run-dir: after which round (default: last)"
    )
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the table as JSON too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out."""
    prepare()
    from training.config import load
    from training.errors import UserError
    from training.evaluation import evaluate, policy_folder

    config = load(args.config, args.set)
    if args.stage is not None and args.run_dir is None:
        raise UserError("--stage: needs --run-dir")
    folder = args.model or policy_folder(args.run_dir, args.stage)
    evaluate(config, folder, args.output)
    return 0
