"""Entry point of `python -m jaxlake`, which is equivalent to the `jaxlake` script."""

from jaxlake.command_line.entry import entry

entry()
