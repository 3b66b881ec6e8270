"""The command line: `jaxlake COMMAND ...`.

The lake's commands only need JAX and NumPy; `training.commands` contains the loop's commands.
"""
