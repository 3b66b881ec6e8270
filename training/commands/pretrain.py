"""`jaxlake pretrain`: make the base model that runs start from."""

import argparse
from pathlib import Path

from jaxlake.command_line.arguments import add_configuration, describe, number
from jaxlake.command_line.paths import usable_folder
from training.runtime import set_library_defaults

_HELP = """\
Make a small model from nothing: it imitates the solver's plans and the rule's designs until
held-out ones are mastered. The same command goes on where it was stopped. The result, DIR/model,
is a Hugging Face folder for model.pretrained.

exit status: 0 the model is made, 2 invalid input or configuration
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    describe(parser, run, _HELP)
    add_configuration(parser)
    parser.add_argument(
        "--run-dir", metavar="DIR", type=Path, help="where its files go (default: runs/NAME)"
    )
    stop = "stop after this step; the same command without it goes on"
    parser.add_argument("--stop-after", metavar="N", type=number(int, 0), help=stop)


def run(args: argparse.Namespace) -> int:
    """Make the model."""
    set_library_defaults()
    from training.pretraining.schema import load_pretrain

    config = load_pretrain(args.config, args.set)
    run_dir = usable_folder("--run-dir", args.run_dir or Path("runs") / config.name)
    from training.pretraining.files import PretrainDirectory

    PretrainDirectory(run_dir).belongs_to(config)  # asked again after imports that take seconds
    from training.pretraining.pretrain import pretrain

    pretrain(config, run_dir, stop_after=args.stop_after)
    return 0
