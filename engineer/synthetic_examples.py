"""Random contexts with the rule's answers, which teach a model from scratch how to design.

A policy of a million parameters has never read a word. Its warm start therefore shows it such
pairs, built by the same `build_context` that will ask it later, so that it learns the form of the
answer and a sensible rule before the loop begins.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engineer.context.build import BLOCKS, BlockName, ContextStyle, build_context
from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.engineers.rule import next_configuration
from engineer.evidence import GroupEvidence, StageEvidence, StageHistory, TrainingEvidence
from engineer.space import Configuration, KnobSpace, answer_text, apportion

_DECISIONS = ("accepted", "accepted", "repaired", "kept")


class SyntheticExample(NamedTuple):
    """A prompt and the answer to learn."""

    context: str
    answer: str


def synthetic_example(
    rng: np.random.Generator,
    domain: Domain,
    *,
    blocks: Sequence[BlockName] = BLOCKS,
    style: ContextStyle = "compact",
    max_history: int = 3,
    counts: tuple[int, int] = (16, 256),
) -> SyntheticExample:
    """Draw random but consistent evidence and answer it by the rule (`engineer.engineers.rule`).

    Valid rates are uniform over 0..1 in half of the draws. In the other half they fall with the
    group's place, as in real runs. In histories each stage begins where the one before ended;
    there are at most `max_history`. `counts` are the least and the largest number of validation
    answers of a group.
    """
    space = domain.space
    past = int(rng.integers(0, max_history + 1))
    rates = _rates(rng, len(space.groups), past + 2)
    history = [
        StageHistory(
            stage=stage + 1,
            configuration=_configuration(rng, space),
            decision="initial" if stage == 0 else _DECISIONS[int(rng.integers(4))],
            valid_before=dict(zip(space.groups, rates[stage], strict=True)),
            valid_after=dict(zip(space.groups, rates[stage + 1], strict=True)),
        )
        for stage in range(past)
    ]
    count = int(rng.integers(counts[0], counts[1] + 1))
    evidence = StageEvidence(
        stage=past + 1,
        validation={
            group: _group_evidence(rng, domain, count, rate)
            for group, rate in zip(space.groups, rates[-1], strict=True)
        },
        training=_training(rng, space.groups, rates[-1]),
    )
    current = _configuration(rng, space)
    refused = rng.random() < 0.1
    refusals = (
        f"{space.share} is 0 for every {space.group_label}, some {space.group_label} needs a share",
        f"the answer holds no complete JSON object with {space.group_label}s as keys",
    )
    view = StageView(
        domain,
        evidence,
        current,
        history,
        refusal=refusals[int(rng.integers(len(refusals)))] if refused else "",
    )
    context = build_context(view, blocks=blocks, style=style)
    return SyntheticExample(context.text, answer_text(next_configuration(view)))


def _rates(rng: np.random.Generator, sizes: int, validations: int) -> list[list[float]]:
    """Draw valid rates by validation and group: small moves, up more often than down.

    The last row, which the rule reads, is drawn first, and the earlier ones backwards from it.
    """
    last = rng.random(sizes)
    if rng.random() < 0.5:
        last = np.sort(rng.beta(1.2, 1.2, sizes))[::-1]
    rows = [last]
    for _ in range(validations - 1):
        rows.append(np.clip(rows[-1] - rng.normal(0.05, 0.08, sizes), 0.0, 1.0))
    return [row.tolist() for row in reversed(rows)]


def _configuration(rng: np.random.Generator, space: KnobSpace) -> Configuration:
    weights = rng.dirichlet([2.0] * len(space.groups)).tolist()
    shares = apportion(weights, space.units, space.to_units(space.min_share))
    columns = {space.share: shares}
    for knob in space.difficulty_knobs:
        most = space.to_units(space.maximum(knob))
        columns[knob] = rng.integers(0, most + 1, len(shares)).tolist()
    return space.make(
        {
            group: {knob: space.from_units(steps[place]) for knob, steps in columns.items()}
            for place, group in enumerate(space.groups)
        }
    )


def _group_evidence(
    rng: np.random.Generator, domain: Domain, count: int, rate: float
) -> GroupEvidence:
    valid = int(rng.binomial(count, rate))
    kinds = rng.multinomial(count - valid, rng.dirichlet([0.5] * len(domain.failures))).tolist()
    score = int(rng.binomial(valid, rng.beta(5.0, 2.0)))
    scores = {}
    for term in domain.scores:
        scores[term.key] = score
        score = int(rng.integers(score, valid + 1))
    return GroupEvidence(
        count=count,
        valid=valid,
        scores=scores,
        failures={term.key: n for term, n in zip(domain.failures, kinds, strict=True) if n},
    )


def _training(
    rng: np.random.Generator, groups: Sequence[str], rates: Sequence[float]
) -> TrainingEvidence:
    reward = rng.random(2)
    blur = rng.uniform(0.4, 1.0, len(groups)).tolist()
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
            group: rate * (1 - rate) * share
            for group, rate, share in zip(groups, rates, blur, strict=True)
        },
    )
