"""Reproducible benchmarks; run them from a checkout of the repository."""
