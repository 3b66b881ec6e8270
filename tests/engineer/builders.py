"""Values and strategies that several tests of the engineer start from."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from engineer import Configuration, Domain, GroupEvidence, KnobSpace, Review
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from engineer.space import apportion

SIZES = (3, 4, 5)
BOUNDS = Bounds(sizes=SIZES)


def lake(*rows: Sequence[float], sizes: Sequence[int] = SIZES) -> LakeConfiguration:
    """Rows of data, hole and wait ratio, of as many sizes as there are rows."""
    knobs = (dict(zip(Bounds.knobs, row, strict=True)) for row in rows)
    return LakeConfiguration.model_validate({"sizes": dict(zip(sizes, knobs, strict=False))})


CURRENT = lake((0.5, 0.2, 0.25), (0.3, 0.1, 0.5), (0.2, 0.0, 1.0))


def roomy(bounds: Bounds = BOUNDS, num_agents: int = 2) -> Domain:
    """The lake where boards are scarce only if the agents don't fit on them."""
    return lake_domain(bounds, num_agents, acceptance=None)


def column(configuration: Configuration | None, knob: str) -> list[float]:
    """The values of a knob, group by group."""
    assert configuration is not None
    return [knobs[knob] for knobs in configuration.values().values()]


def shares_of(decision: Review) -> list[float]:
    """The shares of data that a review lets pass."""
    return column(decision.configuration, "data_ratio")


def answer(start: Configuration = CURRENT, **changes: object) -> str:
    """A configuration with some knobs changed, `s3_hole_ratio=0.9` and the like."""
    groups: dict[str, dict[str, Any]] = start.values()
    for name, value in changes.items():
        group, _, knob = name.removeprefix("s").partition("_")
        groups[group][knob] = value
    return json.dumps(groups)


def tally(valid: int, count: int = 100) -> GroupEvidence:
    """Answers of which the others fell into holes."""
    failures = {"hole": count - valid} if count > valid else {}
    return GroupEvidence(count=count, valid=valid, failures=failures)


def configuration(draw: Callable[[int], int], space: KnobSpace) -> Configuration:
    """Any configuration on the grid and within the bounds; `draw(n)` gives one of 0..n."""
    weights = [draw(9) for _ in space.groups]
    weights[draw(len(weights) - 1)] += 1
    shares = apportion(weights, space.units, space.to_units(space.min_share))
    return space.make(
        {
            group: {space.share: space.from_units(share)}
            | {
                knob: space.from_units(draw(space.to_units(space.maximum(knob))))
                for knob in space.difficulty_knobs
            }
            for group, share in zip(space.groups, shares, strict=True)
        }
    )


@st.composite
def on_grid(draw: st.DrawFn, space: KnobSpace) -> Configuration:
    """As `configuration`, drawn by hypothesis."""
    return configuration(lambda most: draw(st.integers(0, most)), space)


boundses = st.builds(
    Bounds,
    sizes=st.just(SIZES),
    max_hole_ratio=st.sampled_from([0.0, 0.3, 0.5]),
    max_wait_ratio=st.sampled_from([0.0, 0.5, 1.0]),
    min_share=st.sampled_from([0.0, 0.1, 0.3]),
    step=st.sampled_from([0.05, 0.1]),
)
