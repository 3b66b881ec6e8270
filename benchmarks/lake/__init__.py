"""The lake measured beside other libraries, in one run: `python -m benchmarks.lake`."""
