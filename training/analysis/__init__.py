"""What is read out of runs: reports, studies, evaluations, counterfactuals."""

METRIC_NAMES = {
    "valid": "valid",
    "optimal_sum_of_costs": "optimal, sum of costs",
    "optimal_makespan": "optimal, makespan",
}
"""The rates that are reported: the names of their fields, and how a page calls them."""
