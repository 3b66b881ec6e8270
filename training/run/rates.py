"""Rates as the terminal shows them, of the lake and of other environments."""

from __future__ import annotations

from jaxlake.statistics.intervals import wilson_interval
from training.run.answer_records import Rates

VALID = "valid (CSR)"
"""What the valid rate of the lake is called: the cooperative success rate asks for all agents."""

ISR = "ISR"
"""The individual success rate: the mean share of agents that are at their goals at the end."""


def rate(row: Rates, name: str) -> str:
    """Write a rate with its Wilson interval, in per cent: "valid", "best", or one of the scores."""
    return rate_text(row.successes(name), row.count)


def rate_text(successes: int, count: int) -> str:
    """Write a rate with its 95% Wilson interval, in per cent."""
    low, high = wilson_interval(successes, count)
    return interval_text(successes / count, float(low), float(high))


def interval_text(share: float, low: float, high: float) -> str:
    """Write a share with its interval, in per cent."""
    return f"{100 * share:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def isr_text(row: Rates) -> str | None:
    """Write the ISR in per cent; None where there are no agents, so that there is none.

    It has no Wilson interval, since it is a mean of shares.
    """
    return None if row.isr is None else f"{100 * row.isr:.1f}"


def success_rates(row: Rates) -> str:
    """Write on a line how often all agents arrived, and how many of them did."""
    isr = isr_text(row)
    text = f"{100 * row.valid / row.count:.1f}%"
    return f"valid {text}" if isr is None else f"{VALID} {text}, {ISR} {isr}%"
