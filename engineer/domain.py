"""What the engineer has to know of an environment: its knobs, its words and what can be made.

The lake's is `engineer.lake.lake_domain`. Another environment brings a `KnobSpace`, a `Domain` and
evidence in the terms of both; nothing else of this package names an environment.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from engineer.space import KnobSpace
from jaxlake.errors import did_you_mean

Knobs = Mapping[str, float]
"""The knobs of one group, by name."""


class InfeasibleError(ValueError):
    """No instances of a group can be made, whatever its knobs are; the message says why."""


@dataclass(frozen=True)
class Term:
    """The names of a failure kind, score or statistic."""

    key: str  # in files
    name: str  # in sentences
    word: str  # for a small model: lower-case letters without blanks


@dataclass(frozen=True)
class Slices:
    """The slices in which a knob shows; a ValueError without levels or if two have one value."""

    factor: str  # a key of `GroupEvidence.slices`
    levels: Mapping[str, float]  # the value of the knob that makes instances of each level
    mixture: bool = False  # whether a value between two levels makes instances of both

    def __post_init__(self) -> None:
        values = list(self.levels.values())
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"levels of {self.factor} must have values of their own, one at least, got {values}"
            )


@dataclass(frozen=True)
class Domain:
    """One environment as its engineer sees it."""

    name: str
    space: KnobSpace
    opening: str  # who the engineer is and what each knob means, in sentences
    guideline: tuple[str, ...]  # design heuristics, one or two sentences each
    failures: tuple[Term, ...]  # in the order in which failures are looked for
    effects: tuple[str, ...] = ()  # how each knob acts on each kind of failure, in sentences
    scores: tuple[Term, ...] = ()  # what valid answers may be besides, such as optimal
    statistics: tuple[Term, ...] = ()  # what the generator says of its instances
    instance: str = "instance"  # the word for the instance of a failed case
    group_format: str = "{0}"  # a group's name in sentences, as a format of the group
    group_symbol: str = "{0}"  # a group's name in one token, as a format of the group
    nearest: Callable[[str, Knobs], Knobs] = lambda group, knobs: knobs
    """Maps (group, knobs) to the nearest knobs of which instances can be made, and possible knobs
    to themselves; it may raise `InfeasibleError`."""
    causes: Mapping[str, str] = field(default_factory=dict)
    """Maps the key of a failure to the knob that makes such failures more frequent, if one does."""
    slices: Mapping[str, Slices] = field(default_factory=dict)
    """Maps a knob to where it shows in the evidence, if it does."""

    def __post_init__(self) -> None:
        knobs = self.space.difficulty_knobs
        _among("causes", self.causes, [term.key for term in self.failures])
        _among("causes", self.causes.values(), knobs)
        _among("slices", self.slices, knobs)

    def nearest_or_same(self, group: str, knobs: Knobs) -> dict[str, float]:
        """Return the nearest knobs of which instances can be made, or these if there are none."""
        try:
            return dict(self.nearest(group, knobs))
        except InfeasibleError:
            return dict(knobs)

    def called(self, group: str) -> str:
        """Return a group's name in sentences."""
        return self.group_format.format(group)

    def cause_of(self, word: str) -> str | None:
        """Return the knob that a kind of failure, by its word, points to; None if it does not."""
        return next((self.causes.get(one.key) for one in self.failures if one.word == word), None)

    def symbol(self, group: str) -> str:
        """Return a group's name as symbols say it."""
        return self.group_symbol.format(group)

    def failure(self, key: str) -> Term:
        """Return the term of a failure kind; the term of an unknown kind is its key."""
        return next((term for term in self.failures if term.key == key), Term(key, key, key))


def _among(name: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    if unknown := sorted(set(given) - set(allowed)):
        raise ValueError(
            f"{name}: got {', '.join(unknown)}, allowed are {', '.join(allowed) or 'none'}"
            + did_you_mean(unknown[0], allowed)
        )
