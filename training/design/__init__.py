"""The Design phase of a run: what the engineer sees, who it is, and what is written down."""
