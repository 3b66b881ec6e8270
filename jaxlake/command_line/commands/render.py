"""`jaxlake render`: draw boards and plans."""

import argparse
import sys

from jaxlake.command_line.arguments import add_input, describe, local_path
from jaxlake.command_line.json_lines import display_name, read_lines, require_readable
from jaxlake.command_line.paths import make_unique_name
from jaxlake.errors import UserError

_HELP = """\
Draw boards and plans from JSON lines.

in   {"id": ..., "grid": ["S F G", "s H F", "g F F"], "plan": [["RIGHT", "WAIT"], ["UP"]]}
     The fields are described in `jaxlake check --help`. Without plan and text, or if plan is null,
     only the board is drawn. A plan is played up to its first failure, which is marked. Other
     fields are ignored, so `jaxlake solve` and `jaxlake generate` can be piped into this command:
     jaxlake solve boards.jsonl | jaxlake render - --output pictures
out  text on standard output, or with --output an animated picture ID.svg per line

exit status: 0 all lines were drawn, 1 some lines were invalid, 2 the file can't be read
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    add_input(parser)
    parser.add_argument("--output", metavar="DIR", type=local_path, help="a folder for pictures")


def run(args: argparse.Namespace) -> int:
    """Draw the board or plan of every line."""
    require_readable(args.file)
    if args.output is not None and args.output.suffix == ".svg":
        raise UserError(f"--output must be a folder, got {args.output}")
    from jaxlake.command_line.board_records import draw_lines
    from jaxlake.command_line.json_lines import RecordError

    status, used_names = 0, set[str]()
    for number, name, picture in draw_lines(read_lines(args.file)):
        if isinstance(picture, RecordError):
            print(f"jaxlake: {display_name(args.file)}:{number}: {picture}", file=sys.stderr)
            status = 1
        elif args.output is None:
            print(f"{_escape_unprintable(name)}\n{picture.text}\n", flush=True)
        else:
            args.output.mkdir(parents=True, exist_ok=True)
            picture.save(args.output / f"{make_unique_name(name, number, used_names)}.svg")
    return status


def _escape_unprintable(text: str) -> str:
    """Escape control characters and lone surrogates."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
