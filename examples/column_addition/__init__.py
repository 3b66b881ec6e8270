"""Column addition behind the engineer's interface: a second environment, as a user would write it.

docs/tutorials/your_environment.md walks through it.
"""
