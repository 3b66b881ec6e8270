"""`jaxlake render`: boards and plans as pictures."""

import argparse
import sys

from jaxlake.command_line.arguments import add_input, describe, local_path
from jaxlake.command_line.json_lines import display_name, read_lines, require_readable
from jaxlake.command_line.paths import unique_file_name
from jaxlake.errors import UserError

_HELP = """\
Draw boards, or the plans on them: JSON lines in, as `jaxlake solve` and `jaxlake check` read them.

in   {"id": ..., "grid": ["S F G", "s H F", "g F F"], "plan": [["RIGHT", "WAIT"], ["UP"]]}
     or, instead of plan, "text": a model's whole answer; without both, and where plan is null, the
     board is drawn alone. A plan is played up to its first failure, which is marked. Other fields
     are passed over, so that what `jaxlake solve` and `jaxlake generate` write can be drawn as it
     is: jaxlake solve boards.jsonl | jaxlake render - --output pictures
out  with --output a folder, which gets an animated ID.svg for each; else text on standard output

exit status: 0 all were drawn, 1 some lines were invalid, 2 invalid input, or the file can't be read
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    add_input(parser)
    parser.add_argument("--output", metavar="DIR", type=local_path, help="a folder for pictures")


def run(args: argparse.Namespace) -> int:
    """Draw every record of the file."""
    require_readable(args.file)
    if args.output is not None and args.output.suffix == ".svg":
        raise UserError(f"--output must be a folder, got {args.output}")
    from jaxlake.command_line.board_records import draw_lines
    from jaxlake.command_line.json_lines import RecordError

    source = display_name(args.file)
    invalid, names = 0, set[str]()
    for number, name, picture in draw_lines(read_lines(args.file)):
        if isinstance(picture, RecordError):
            print(f"jaxlake: {source}:{number}: {picture}", file=sys.stderr)
            invalid += 1
        elif args.output is None:
            print(f"{_printable(name)}\n{picture.text}\n", flush=True)
        else:
            args.output.mkdir(parents=True, exist_ok=True)
            picture.save(args.output / f"{unique_file_name(name, number, names)}.svg")
    return 1 if invalid else 0


def _printable(text: str) -> str:
    """Escape control characters and lone surrogates."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
