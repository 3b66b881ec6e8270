"""Column addition behind the engineer's interface: a second environment, as a user would write it.

docs/tutorials/column_addition.md walks through it.
"""
