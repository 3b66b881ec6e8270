"""What the engineer has to know of an environment: its knobs, its words, what can be made.

The lake's is `engineer.lake.lake_domain`. Another environment brings a `KnobSpace`, a `Domain` and
evidence in the terms of both; nothing else of this package names an environment.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from engineer.space import KnobSpace

Knobs = Mapping[str, float]
"""The knobs of one group, by name."""


class InfeasibleError(ValueError):
    """No instances of a group can be made, whatever its knobs; the message says why."""


@dataclass(frozen=True)
class Term:
    """A failure kind, score or statistic: its name in files, for people, and for a small model."""

    key: str
    name: str
    word: str  # lower case letters, no blanks


@dataclass(frozen=True)
class Slices:
    """The slices of the evidence in which a knob shows.

    Raises:
        ValueError: if there is no level, or two levels have the same value.
    """

    factor: str  # as in `GroupEvidence.slices`
    levels: Mapping[str, float]  # level to the value of the knob that makes such instances
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
    opening: str  # who the engineer is, and what each knob means
    guideline: tuple[str, ...]  # design heuristics, a sentence or two each
    hint: str  # the same in a line for a small model
    failures: tuple[Term, ...]  # the taxonomy, in the order in which failures are looked for
    scores: tuple[Term, ...] = ()
    statistics: tuple[Term, ...] = ()  # of the generator
    instance: str = "instance"  # what the instance of a failed case is called
    group_format: str = "{0}"  # a group's name in sentences
    nearest: Callable[[str, Knobs], Knobs] = lambda group, knobs: knobs
    """(group, knobs) to the nearest knobs of which instances can be made; may raise
    `InfeasibleError`. Knobs that are fine come back as they are."""
    causes: Mapping[str, str] = field(default_factory=dict)
    """Failure key to the knob that makes such failures more frequent; kinds without one are left
    out."""
    slices: Mapping[str, Slices] = field(default_factory=dict)
    """Knob to where it shows in the evidence; knobs that don't are left out."""

    def __post_init__(self) -> None:
        knobs = self.space.difficulty_knobs
        _among("causes", self.causes, [term.key for term in self.failures])
        _among("causes", self.causes.values(), knobs)
        _among("slices", self.slices, knobs)

    def called(self, group: str) -> str:
        """A group as sentences name it."""
        return self.group_format.format(group)

    def failure(self, key: str) -> Term:
        """The term of a failure kind; of an unknown one, its key."""
        return next((term for term in self.failures if term.key == key), Term(key, key, key))


def _among(name: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    if unknown := set(given) - set(allowed):
        raise ValueError(
            f"{name}: got {', '.join(sorted(unknown))}, allowed are {', '.join(allowed) or 'none'}"
        )
