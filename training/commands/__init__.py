"""The commands of the loop, one module per command; the lake's are in `jaxlake.command_line`."""
