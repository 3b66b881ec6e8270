"""Comparison of the lake with other libraries in one run: `python -m benchmarks.lake`."""
