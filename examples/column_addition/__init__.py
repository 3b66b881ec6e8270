"""Column addition: an example of a user's own environment for the engineer.

docs/tutorials/column_addition.md walks through it.
"""
