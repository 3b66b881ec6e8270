"""Description of an environment for the engineer: knobs, vocabulary and feasibility.

`engineer.lake.lake_domain` describes the lake. Other environments provide a `KnobSpace`, a `Domain`
and evidence in their terms; the rest of this package is independent of the environment.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from engineer.space import KnobSpace
from jaxlake.errors import did_you_mean

Knobs = Mapping[str, float]
"""The knobs of one group, by name."""


class InfeasibleError(ValueError):
    """No instances of a group can be made with any knobs; the message is the reason."""


@dataclass(frozen=True)
class Term:
    """The names of a kind of failure, a score or a statistic."""

    key: str  # in files
    name: str  # in sentences
    word: str  # in compact contexts: lower-case letters without blanks


@dataclass(frozen=True)
class Slices:
    """The slices of the evidence that correspond to a knob.

    Raises:
        ValueError: `levels` is empty, or two levels have the same value.
    """

    factor: str  # a key of `GroupEvidence.slices`
    levels: Mapping[str, float]  # the value of the knob that produces each level
    mixture: bool = False  # whether values between two levels produce instances of both

    def __post_init__(self) -> None:
        values = list(self.levels.values())
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"levels of {self.factor} must be one or more distinct values, got {values}"
            )


@dataclass(frozen=True)
class Domain:
    """An environment as seen by its engineer."""

    name: str
    space: KnobSpace
    opening: str  # the engineer's role and the meaning of each knob, in sentences
    guideline: tuple[str, ...]  # design heuristics, one or two sentences each
    failures: tuple[Term, ...]  # in the order of checking
    effects: tuple[str, ...] = ()  # effect of each knob on each kind of failure, in sentences
    scores: tuple[Term, ...] = ()  # further properties of valid answers, such as optimality
    statistics: tuple[Term, ...] = ()  # the generator's statistics of its instances
    instance: str = "instance"  # the word for an instance
    group_format: str = "{0}"  # name of a group in sentences, as a format string
    group_symbol: str = "{0}"  # name of a group in one token, as a format string
    nearest: Callable[[str, Knobs], Knobs] = lambda group, knobs: knobs
    """Maps (group, knobs) to the nearest feasible knobs, and feasible knobs to themselves; it may
    raise `InfeasibleError`."""
    causes: Mapping[str, str] = field(default_factory=dict)
    """Maps the key of a failure to the knob that makes such failures more frequent, if any."""
    slices: Mapping[str, Slices] = field(default_factory=dict)
    """Maps a knob to its slices of the evidence, if any."""

    def __post_init__(self) -> None:
        knobs = self.space.difficulty_knobs
        _among("causes", self.causes, [term.key for term in self.failures])
        _among("causes", self.causes.values(), knobs)
        _among("slices", self.slices, knobs)

    def nearest_or_same(self, group: str, knobs: Knobs) -> dict[str, float]:
        """Return the nearest feasible knobs, or the given ones if the group is infeasible."""
        try:
            return dict(self.nearest(group, knobs))
        except InfeasibleError:
            return dict(knobs)

    def called(self, group: str) -> str:
        """Return the name of a group in sentences."""
        return self.group_format.format(group)

    def cause_of(self, word: str) -> str | None:
        """Return the knob that causes a kind of failure, given by its word, or None."""
        return next((self.causes.get(one.key) for one in self.failures if one.word == word), None)

    def symbol(self, group: str) -> str:
        """Return the name of a group in compact contexts."""
        return self.group_symbol.format(group)

    def failure(self, key: str) -> Term:
        """Return the term of a kind of failure; unknown kinds are named by their key."""
        return next((term for term in self.failures if term.key == key), Term(key, key, key))


def _among(name: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    if unknown := sorted(set(names) - set(allowed)):
        raise ValueError(
            f"{name}: got {', '.join(unknown)}, allowed are {', '.join(allowed) or 'none'}"
            + did_you_mean(unknown[0], allowed)
        )
