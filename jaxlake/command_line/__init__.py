"""The command line: `jaxlake COMMAND ...`.

The lake's commands need JAX and NumPy alone; those of the loop are in `training.commands`.
"""
