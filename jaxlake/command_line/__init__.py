"""The command line: `jaxlake COMMAND ...`.

The lake's commands only need JAX and NumPy; `training.commands` has those of the training loop.
"""
