"""The command line by its name of before, for `python -m training.cli`."""

from jaxlake.command_line.entry import INTERRUPTED as INTERRUPTED
from jaxlake.command_line.entry import entry as entry
from jaxlake.command_line.entry import main as main

if __name__ == "__main__":
    entry()
