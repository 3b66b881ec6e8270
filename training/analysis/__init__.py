"""Analyses of runs: reports, studies, evaluations and replays."""

from training.run.rates import ISR, VALID

METRIC_NAMES = {
    "valid": "valid",
    "optimal_sum_of_costs": "optimal, sum of costs",
    "optimal_makespan": "optimal, makespan",
}
"""Labels of the reported rates, by the names of their fields."""

RATE_NAMES = METRIC_NAMES | {"valid": VALID}
"""Labels in tables that include the individual success rate."""

INDIVIDUAL_RATE = f"individual ({ISR})"
"""Label of the individual success rate, `isr`, in tables."""

SUCCESS_RATES = (
    "CSR, the cooperative success rate, is the share of valid answers: no rule is broken and all "
    "agents end at their goals. ISR, the individual success rate, is the mean over answers of the "
    "share of agents that end at their goals."
)
"""Explanation of both rates; `jaxlake.statistics_rows` defines and computes them."""
