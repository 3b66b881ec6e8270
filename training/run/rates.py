"""Formatting of success rates for the terminal."""

from jaxlake.statistics.intervals import wilson_interval
from training.run.answer_records import Rates

VALID = "valid (CSR)"
"""Name of the lake's valid rate, the cooperative success rate: all agents must succeed."""

ISR = "ISR"
"""Name of the individual success rate: the mean fraction of agents that end at their goals."""


def format_rate(row: Rates, name: str) -> str:
    """Return a rate with its 95% interval, in per cent.

    `name` is "valid", "best" or the key of a score.
    """
    successes = row.successes(name)
    low, high = wilson_interval(successes, row.count)
    return format_interval(successes / row.count, float(low), float(high))


def format_interval(share: float, low: float, high: float) -> str:
    """Return a fraction with its interval, in per cent."""
    return f"{100 * share:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def format_isr(row: Rates) -> str | None:
    """Return the ISR in per cent, or None in environments without agents.

    The ISR is a mean of fractions, so it has no Wilson interval.
    """
    return None if row.isr is None else f"{100 * row.isr:.1f}"


def format_success_rates(row: Rates) -> str:
    """Return the valid rate and, if defined, the ISR on one line."""
    isr = format_isr(row)
    text = f"{100 * row.valid / row.count:.1f}%"
    return f"valid {text}" if isr is None else f"{VALID} {text}, {ISR} {isr}%"
