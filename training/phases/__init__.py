"""The phases of a run: a warm start, then train, validate and design for each stage."""
