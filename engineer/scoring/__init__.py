"""Measurements without training: learnability of configurations, and reading of evidence."""
