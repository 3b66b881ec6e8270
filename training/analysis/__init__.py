"""What is read out of runs: reports, studies, evaluations, replays."""

from training.run.rates import ISR, VALID

METRIC_NAMES = {
    "valid": "valid",
    "optimal_sum_of_costs": "optimal, sum of costs",
    "optimal_makespan": "optimal, makespan",
}
"""The rates that are reported: the names of their fields, and how a page calls them."""

RATE_NAMES = METRIC_NAMES | {"valid": VALID}
"""The same in tables that have the individual success rate, too."""

INDIVIDUAL_RATE = f"individual ({ISR})"
"""How tables call the individual success rate, `isr`."""

SUCCESS_RATES = (
    "CSR, the cooperative success rate, is the share of valid answers: no rule is broken and all "
    "agents end at their goals. ISR, the individual success rate, is the mean over answers of the "
    "share of agents that end at their goals."
)
"""What both mean; `jaxlake.statistics_rows` defines and computes them."""
