"""`jaxlake evaluate`: a policy on the validation set of a configuration."""

import argparse
from pathlib import Path

from training.commands import Subparsers, add_command, add_configuration
from training.errors import UserError
from training.runtime import set_library_defaults

_HELP = """\
Let a policy answer the validation set of a configuration, and print its valid and optimal rates.

exit status: 0 done, 2 invalid input or configuration
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    summary = "measure a checkpoint or a model folder on a validation set"
    parser = add_command(subparsers, "evaluate", run, summary, _HELP)
    add_configuration(parser)
    policy = parser.add_mutually_exclusive_group(required=True)
    policy.add_argument("--run-dir", metavar="DIR", type=Path, help="a run whose policy to measure")
    policy.add_argument(
        "--model", metavar="FOLDER", help="a Hugging Face model folder, or a hub name"
    )
    stage = "with --run-dir: the policy after this stage (default: the last one)"
    parser.add_argument("--stage", metavar="S", type=int, help=stage)
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the table as JSON too")


def run(args: argparse.Namespace) -> int:
    """Evaluate the policy and print the table."""
    set_library_defaults()
    from training.analysis.evaluation import evaluate, policy_folder
    from training.schema import load

    config = load(args.config, args.set)
    if args.stage is not None and args.run_dir is None:
        raise UserError("--stage: needs --run-dir")
    folder = args.model or policy_folder(args.run_dir, args.stage)
    evaluate(config, folder, args.output)
    return 0
