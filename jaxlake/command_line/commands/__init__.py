"""The lake's commands, one module per command.

A module has `add_arguments(parser)`, which sets the function that runs the command.
"""
