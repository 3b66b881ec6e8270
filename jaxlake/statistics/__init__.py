"""Failure tables, intervals of proportions, and paired comparisons."""
