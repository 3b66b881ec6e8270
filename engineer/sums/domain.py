"""Column addition as its engineer sees it."""

from collections.abc import Collection

from engineer.domain import Domain, Slices, Term
from engineer.sums.configuration import SumsBounds
from engineer.sums.feasibility import NearestPossible
from engineer.sums.instance import Sum

FAILURES = (
    Term("parse_error", "unparsable answer", "parse"),
    Term("wrong_length", "wrong number of digits", "length"),
    Term("carry_missed", "missed carry", "carry"),
    Term("wrong_digit", "other wrong digit", "digit"),
)
STATISTICS = (
    Term("carries", "mean columns that carry", "carries"),
    Term("operands", "mean number of operands", "operands"),
    Term("missing", "sums that do not exist", "missing"),
)

_OPENING = (
    "You are the environment engineer of a model that learns to add decimal numbers, column by"
    " column from the lowest one up. All operands of a sum have the same number of digits; times of"
    " failures are columns, the lowest being 0. The model trains in stages. You read what the last"
    " stage showed and write the configuration of the next one: for each digit count data_ratio"
    " (share of the training instances), carry_ratio (share of the instances in which at least one"
    " column adds up to 10 or more) and third_ratio (share of the instances with three operands"
    " instead of two)."
)
_GUIDELINE = (
    "Learning comes from instances that are sometimes solved and sometimes not. Give most data to"
    " digit counts with a valid rate between 20% and 80%, little to those near 0% or 100%, but"
    " keep some of each so that nothing is forgotten.",
    "Raise carry_ratio and third_ratio where the valid rate is above 60%, lower them where it is"
    " below 20%, and by small steps.",
    "Let the kinds of failure guide you: missed carries are learned from sums that carry, and a"
    " wrong number of digits often is a carry out of the highest column.",
    "The fewer the digits, the fewer different sums there are: a large share of one-digit sums"
    " can't have every carry_ratio.",
)
_HINT = "move data to where valid is nearest 50, harder from 60, easier under 20"


def sums_domain(
    bounds: SumsBounds, instances: int, held_out: Collection[Sum] = frozenset()
) -> Domain:
    """Column addition within `bounds`.

    Args:
        bounds: what may be asked for.
        instances: sums of a stage, which have to be different.
        held_out: sums that a stage may not use, such as those of the validation set.
    """
    return Domain(
        name="sums",
        space=bounds,
        opening=_OPENING,
        guideline=_GUIDELINE,
        hint=_HINT,
        failures=FAILURES,
        statistics=STATISTICS,
        instance="sum",
        group_format="{0}-digit sums",
        causes={"carry_missed": "carry_ratio"},
        slices={
            "third_ratio": Slices("operands", {"2 operands": 0.0, "3 operands": 1.0}, mixture=True)
        },
        nearest=NearestPossible(bounds, instances, frozenset(held_out)),
    )
