"""Evaluate models on the benchmark's boards and compare them with published results."""
