"""Failure tables, confidence intervals of proportions, and paired comparisons."""
