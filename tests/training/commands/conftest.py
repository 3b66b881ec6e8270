"""A fixture that runs the command line."""

from tests.commands import cli as cli
from tests.commands import write_lines as write_lines
