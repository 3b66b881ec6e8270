"""Formatting of success rates for the terminal."""

from jaxlake.statistics.intervals import wilson_interval
from training.run.answer_records import Rates

VALID = "valid (CSR)"
"""Name of the lake's valid rate, the cooperative success rate: all agents must succeed."""

ISR = "ISR"
"""Name of the individual success rate: the mean fraction of agents that end at their goals."""


def format_rate(rates: Rates, name: str) -> str:
    """Return a rate with its 95% interval, in per cent.

    `name` is "valid", "best" or the key of a score.
    """
    successes = rates.successes(name)
    low, high = wilson_interval(successes, rates.count)
    return format_interval(successes / rates.count, float(low), float(high))


def format_interval(share: float, low: float, high: float) -> str:
    """Return a fraction with its interval, in per cent."""
    return f"{100 * share:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def format_isr(rates: Rates) -> str | None:
    """Return the ISR in per cent, or None in environments without agents.

    The ISR is a mean of fractions, so it has no Wilson interval.
    """
    return None if rates.isr is None else f"{100 * rates.isr:.1f}"


def format_success_rates(rates: Rates) -> str:
    """Return the valid rate and, if defined, the ISR on one line."""
    isr = format_isr(rates)
    text = f"{100 * rates.valid / rates.count:.1f}%"
    return f"valid {text}" if isr is None else f"{VALID} {text}, {ISR} {isr}%"
