"""Random contexts with the rule's answers, to teach a model from scratch how to design.

A policy of a million parameters has never read a word. Its warm start therefore shows it such
pairs, rendered by the very `build_context` that will ask it later, so that the form of the answer
and a sensible rule are learned before the loop begins.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engineer.configuration import (
    Bounds,
    LakeConfiguration,
    SizeKnobs,
    answer_text,
    apportion,
)
from engineer.context import BLOCKS, BlockName, Style, build_context
from engineer.evidence import (
    FAILURE_KINDS,
    SizeEvidence,
    StageEvidence,
    StageHistory,
    TrainingEvidence,
)
from engineer.rule import Feasibility, next_configuration
from jaxlake import infeasibility

_DECISIONS = ("accepted", "accepted", "repaired", "kept")
_REFUSALS = (
    "data_ratio is 0 for every map size, some size needs a share",
    "the answer holds no complete JSON object with map sizes as keys",
)


class Rehearsal(NamedTuple):
    """A prompt and the answer to learn."""

    context: str
    answer: str


def rehearse(
    rng: np.random.Generator,
    *,
    bounds: Bounds,
    num_agents: int = 2,
    blocks: Sequence[BlockName] = BLOCKS,
    style: Style = "compact",
    max_history: int = 3,
    counts: tuple[int, int] = (16, 256),
    feasibility: Feasibility = infeasibility,
) -> Rehearsal:
    """Draw random but consistent evidence and answer it by the rule (`engineer.rule`).

    Valid rates are uniform over 0..1 in half of the draws and fall with the map size in the other,
    as in real runs; histories are chains in which each stage begins where the one before ended.

    Args:
        rng: source of all randomness.
        bounds: as in the run that is rehearsed.
        num_agents: agents on the boards.
        blocks: as in the run.
        style: as in the run.
        max_history: earlier stages shown, drawn from 0 to this.
        counts: least and largest number of validation answers of a size.
        feasibility: see `engineer.pipeline.review`.
    """
    sizes = bounds.sizes
    past = int(rng.integers(0, max_history + 1))
    rates = _rates(rng, len(sizes), past + 2)
    history = [
        StageHistory(
            stage=stage + 1,
            configuration=_configuration(rng, bounds),
            decision="initial" if stage == 0 else _DECISIONS[int(rng.integers(4))],
            valid_before=dict(zip(sizes, rates[stage], strict=True)),
            valid_after=dict(zip(sizes, rates[stage + 1], strict=True)),
        )
        for stage in range(past)
    ]
    count = int(rng.integers(counts[0], counts[1] + 1))
    evidence = StageEvidence(
        stage=past + 1,
        validation={
            size: _size_evidence(rng, count, rate)
            for size, rate in zip(sizes, rates[-1], strict=True)
        },
        training=_training(rng, sizes, rates[-1]),
    )
    current = _configuration(rng, bounds)
    refused = rng.random() < 0.1
    context = build_context(
        evidence,
        current,
        history,
        bounds=bounds,
        blocks=blocks,
        style=style,
        refusal=_REFUSALS[int(rng.integers(len(_REFUSALS)))] if refused else None,
    )
    target = next_configuration(
        evidence, current, bounds=bounds, num_agents=num_agents, feasibility=feasibility
    )
    return Rehearsal(context, answer_text(target))


def _rates(rng: np.random.Generator, sizes: int, validations: int) -> list[list[float]]:
    """Valid rates by validation and size: small moves, up more often than down.

    The last row, which the rule reads, is drawn and the earlier ones are found backwards from it.
    """
    last = rng.random(sizes)
    if rng.random() < 0.5:
        last = np.sort(rng.beta(1.2, 1.2, sizes))[::-1]
    rows = [last]
    for _ in range(validations - 1):
        rows.append(np.clip(rows[-1] - rng.normal(0.05, 0.08, sizes), 0.0, 1.0))
    return [row.tolist() for row in reversed(rows)]


def _configuration(rng: np.random.Generator, bounds: Bounds) -> LakeConfiguration:
    minimum = bounds.to_units(bounds.min_share)
    weights = rng.dirichlet([2.0] * len(bounds.sizes)).tolist()
    shares = apportion(weights, bounds.units, minimum)
    holes = rng.integers(0, bounds.to_units(bounds.max_hole_ratio) + 1, len(shares)).tolist()
    waits = rng.integers(0, bounds.to_units(bounds.max_wait_ratio) + 1, len(shares)).tolist()
    return LakeConfiguration(
        sizes={
            size: SizeKnobs(
                data_ratio=bounds.from_units(share),
                hole_ratio=bounds.from_units(hole),
                wait_ratio=bounds.from_units(wait),
            )
            for size, share, hole, wait in zip(bounds.sizes, shares, holes, waits, strict=True)
        }
    )


def _size_evidence(rng: np.random.Generator, count: int, rate: float) -> SizeEvidence:
    valid = int(rng.binomial(count, rate))
    kinds = rng.multinomial(count - valid, rng.dirichlet([0.5] * len(FAILURE_KINDS))).tolist()
    optimal = int(rng.binomial(valid, rng.beta(5.0, 2.0)))
    return SizeEvidence(
        count=count,
        valid=valid,
        optimal_sum_of_costs=optimal,
        optimal_makespan=int(rng.integers(optimal, valid + 1)),
        failures=dict(zip(FAILURE_KINDS, kinds, strict=True)),
    )


def _training(
    rng: np.random.Generator, sizes: Sequence[int], rates: Sequence[float]
) -> TrainingEvidence:
    reward = rng.random(2)
    blur = rng.uniform(0.4, 1.0, len(sizes)).tolist()
    return TrainingEvidence(
        updates=int(rng.integers(4, 200)),
        instances=int(rng.integers(64, 4001)),
        reward_first=float(reward[0]),
        reward_last=float(reward[1]),
        groups_without_variance=float(rng.random()),
        clip_share=float(rng.beta(1.0, 20.0)),
        entropy=float(rng.gamma(2.0, 0.2)),
        completion_length=float(rng.uniform(5.0, 60.0)),
        learnability={
            size: rate * (1 - rate) * share
            for size, rate, share in zip(sizes, rates, blur, strict=True)
        },
    )
