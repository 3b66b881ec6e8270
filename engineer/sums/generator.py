"""Distinct sums that fill the quotas of a configuration exactly, as far as such sums exist.

All sums of a kind are numbered, so that distinct numbers are distinct sums: no column of a sum
without a carry adds up to more than 9, and every sum with one has a lowest column that does. Both
are products of what each column may hold, and a number in mixed radix names one element.
"""

import math
import random
from collections import Counter
from collections.abc import Collection
from functools import cache
from itertools import product
from typing import NamedTuple

from engineer.space import apportion
from engineer.sums.configuration import DigitKnobs, SumsConfiguration
from engineer.sums.instance import Kind, Sum

_Column = tuple[tuple[int, ...], ...]  # what a column may hold: a digit of each operand


def generate(
    configuration: SumsConfiguration,
    count: int,
    seed: int,
    held_out: Collection[Sum] = frozenset(),
) -> tuple[Sum, ...]:
    """Draw a stage's sums, all different, in random order; a pure function of its arguments.

    Each kind of sums is drawn uniformly. Where fewer exist than its quota asks for, all that exist
    come; `statistics` says how many are missing.

    Args:
        configuration: shares of the kinds.
        count: of all sums.
        seed: decides which ones.
        held_out: sums that must not come, such as those of a validation set.

    Raises:
        ValueError: if `count` is negative.
    """
    if count < 0:
        raise ValueError(f"count must be at least 0, got {count}")
    rng = random.Random(seed)
    banned = frozenset(held_out)
    held = Counter(one.kind for one in banned)
    sums: list[Sum] = []
    for kind, quota in quotas(configuration, count).items():
        total = existing(kind)
        drawn = rng.sample(range(total), min(quota + held[kind], total))
        fresh = (one for one in (_numbered(kind, number) for number in drawn) if one not in banned)
        sums += [one for _, one in zip(range(quota), fresh, strict=False)]
    rng.shuffle(sums)
    return tuple(sums)


def quotas(configuration: SumsConfiguration, count: int) -> dict[Kind, int]:
    """How many sums of each kind a stage of `count` has; the shares of its groups by Hamilton."""
    counts = apportion([knobs.data_ratio for knobs in configuration.digits.values()], count)
    return {
        kind: quota
        for (digits, knobs), group in zip(configuration.digits.items(), counts, strict=True)
        for kind, quota in group_quotas(digits, group, knobs).items()
    }


def group_quotas(digits: int, count: int, knobs: DigitKnobs) -> dict[Kind, int]:
    """The same of one group: both ratios rounded to whole sums, carries spread over both kinds."""
    third = _whole(count * knobs.third_ratio)
    carry = _whole(count * knobs.carry_ratio)
    both = _whole(third * carry / count) if count else 0
    return {
        Kind(digits, 2, False): count - third - carry + both,
        Kind(digits, 2, True): carry - both,
        Kind(digits, 3, False): third - both,
        Kind(digits, 3, True): both,
    }


def existing(kind: Kind) -> int:
    """How many sums of a kind there are."""
    return sum(math.prod(map(len, part)) for part in _parts(kind))


def statistics(
    configuration: SumsConfiguration, count: int, sums: Collection[Sum]
) -> dict[str, dict[str, float]]:
    """What came of a configuration, by group; keys as in `engineer.sums.domain.STATISTICS`.

    Args:
        configuration: as given to `generate`.
        count: likewise.
        sums: what it returned.
    """
    asked: Counter[int] = Counter()
    for kind, quota in quotas(configuration, count).items():
        asked[kind.digits] += quota
    rows = {}
    for digits in configuration.digits:
        own = [one for one in sums if one.digits == digits]
        rows[str(digits)] = {
            "carries": sum(one.carries for one in own) / max(len(own), 1),
            "operands": sum(len(one.operands) for one in own) / max(len(own), 1),
            "missing": float(asked[digits] - len(own)),
        }
    return rows


class _Choices(NamedTuple):
    """What a column may hold, by whether it adds up to more than 9 on its own."""

    below_ten: _Column
    ten_or_more: _Column


@cache
def _choices(operands: int, lowest: int) -> _Choices:
    every = tuple(product(range(lowest, 10), repeat=operands))
    return _Choices(
        tuple(digits for digits in every if sum(digits) <= 9),
        tuple(digits for digits in every if sum(digits) > 9),
    )


@cache
def _parts(kind: Kind) -> tuple[tuple[_Column, ...], ...]:
    """Disjoint products of columns, lowest column first, which together are all sums of a kind."""
    # The highest digit is no zero, unless it is the only one.
    lowest = [0] * (kind.digits - 1) + [int(kind.digits > 1)]
    columns = [_choices(kind.operands, least) for least in lowest]
    below = tuple(column.below_ten for column in columns)
    if not kind.carries:
        return (below,)
    every = tuple(column.below_ten + column.ten_or_more for column in columns)
    return tuple(
        (*below[:first], column.ten_or_more, *every[first + 1 :])
        for first, column in enumerate(columns)
    )


def _numbered(kind: Kind, number: int) -> Sum:
    """The sum of a kind with a number from 0 to `existing(kind)` - 1."""
    for part in _parts(kind):
        size = math.prod(map(len, part))
        if number < size:
            break
        number -= size
    operands = [0] * kind.operands
    for place, column in enumerate(part):
        number, choice = divmod(number, len(column))
        for which, digit in enumerate(column[choice]):
            operands[which] += digit * 10**place
    return Sum(tuple(operands))


def _whole(value: float) -> int:
    return math.floor(value + 0.5 + 1e-9)
