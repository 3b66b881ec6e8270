"""The phases of a run, one file each: warm start, then train, validate and design in turn."""
