"""The lake's commands, one module per command.

A command's module has `add_arguments(parser)`, which sets the function that runs the command: from
the parsed arguments to the exit status. Both look for mistakes before they import what is heavy.
"""
