"""The command line: `jaxlake COMMAND ...`.

The lake's commands are here and need JAX and NumPy alone. Those of the loop are in
`training.commands`, which is imported when one of them is asked for (`catalogue.py`).
"""
