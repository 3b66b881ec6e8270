"""`python -m jaxlake`: the command line, also where no script of it is installed."""

from jaxlake.command_line.entry import entry

entry()
