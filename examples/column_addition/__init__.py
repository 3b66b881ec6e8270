"""Column addition behind the engineer's interface: a second environment, as a user would write it.

- `environment`: sums, the knobs that say which are wanted, their generator and their verifier;
- `engineer_side`: what an engineer has to know of them (`Domain`) and gets to read (evidence);
- `trainee`: a table that learns to add by policy gradients;
- `__main__`: the loop, run by `python -m examples.column_addition`.

docs/your_environment.md walks through them.
"""
