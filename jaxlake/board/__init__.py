"""One board: its form, its symbols, the rules, and the verifier."""
