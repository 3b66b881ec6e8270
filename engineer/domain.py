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
    """A group has no feasible knobs; the message states the reason."""


@dataclass(frozen=True)
class Label:
    """Names of a kind of failure, a score or a statistic."""

    key: str  # used in files
    name: str  # used in sentences
    word: str  # used in compact contexts; lower-case letters only


@dataclass(frozen=True)
class Factor:
    """A factor that divides the evidence into slices, and corresponds to a knob.

    Raises:
        ValueError: `levels` is empty, or two levels have the same value.
    """

    name: str  # key of `GroupEvidence.slices`
    levels: Mapping[str, float]  # value of the knob for each level
    mixture: bool = False  # whether knob values between two levels mix instances of both

    def __post_init__(self) -> None:
        values = list(self.levels.values())
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"levels of {self.name} must be one or more distinct values, got {values}"
            )


@dataclass(frozen=True)
class Domain:
    """Description of an environment for its engineer.

    Raises:
        ValueError: `causes` or `factors` names an unknown failure or knob.
    """

    name: str
    space: KnobSpace
    opening: str  # the engineer's role and the meaning of each knob, in sentences
    guideline: tuple[str, ...]  # design heuristics, one or two sentences each
    failures: tuple[Label, ...]  # in the order in which the environment checks them
    effects: tuple[str, ...] = ()  # effect of each knob on each kind of failure, in sentences
    scores: tuple[Label, ...] = ()  # further properties of valid answers, such as optimality
    statistics: tuple[Label, ...] = ()  # statistics that the instance generator reports
    instance: str = "instance"  # noun for an instance, such as `board`
    group_format: str = "{0}"  # format string of a group's name in sentences
    group_symbol: str = "{0}"  # format string of a group's name in one token
    nearest: Callable[[str, Knobs], Knobs] = lambda group, knobs: knobs
    """Maps a group and its knobs to the nearest feasible knobs. Feasible knobs are returned
    unchanged. The function may raise `InfeasibleError`."""
    causes: Mapping[str, str] = field(default_factory=dict)
    """Maps the key of a failure to the knob that makes this failure more frequent."""
    factors: Mapping[str, Factor] = field(default_factory=dict)
    """Maps a knob to its factor of the evidence."""

    def __post_init__(self) -> None:
        knobs = self.space.difficulty_knobs
        _check_names("causes", self.causes, [label.key for label in self.failures])
        _check_names("causes", self.causes.values(), knobs)
        _check_names("factors", self.factors, knobs)

    def nearest_or_same(self, group: str, knobs: Knobs) -> dict[str, float]:
        """Return the nearest feasible knobs, or the given ones if the group is infeasible."""
        try:
            return dict(self.nearest(group, knobs))
        except InfeasibleError:
            return dict(knobs)

    def group_name(self, group: str) -> str:
        """Return the name of a group in sentences."""
        return self.group_format.format(group)

    def symbol(self, group: str) -> str:
        """Return the name of a group in compact contexts."""
        return self.group_symbol.format(group)

    def failure_label(self, key: str) -> Label:
        """Return the label of a kind of failure; unknown kinds are named by their key."""
        return next((label for label in self.failures if label.key == key), Label(key, key, key))


def _check_names(argument: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    if unknown := sorted(set(names) - set(allowed)):
        raise ValueError(
            f"{argument} must be among {', '.join(allowed) or 'no names'}, got {', '.join(unknown)}"
            + did_you_mean(unknown[0], allowed)
        )
