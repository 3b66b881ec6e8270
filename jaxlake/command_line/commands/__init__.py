"""The lake's commands, one module per command.

Each module has `add_arguments(parser)`, which also sets the function that runs the command.
"""
