"""Random views and proposals of several environments, for properties that hold for all of them."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from engineer import (
    Configuration,
    Domain,
    GroupEvidence,
    KnobSpace,
    StageEvidence,
    StageHistory,
    StageView,
    Tally,
)
from engineer.lake import Bounds, lake_domain
from examples.column_addition.engineer_side import addition_domain
from examples.column_addition.environment import AdditionSpace
from tests.engineer import builders, words
from tests.engineer.engineers.tasks import training

LEVELS = {
    "holes": ("0-9%", "10-19%", "30-39%", "50-59%"),
    "waits": ("no wait needed", "wait needed"),
}
DOMAINS: tuple[Domain, ...] = (
    lake_domain(Bounds(sizes=(3,))),
    lake_domain(Bounds(sizes=(3, 4, 5), max_wait_ratio=0.0)),
    lake_domain(Bounds(sizes=(3, 4, 7, 10), step=0.1, min_share=0.1, max_hole_ratio=0.3)),
    words.DOMAIN,
)

ADDITION = addition_domain(AdditionSpace(digits=(1, 2, 3)), instances=50)


def configuration(rng: np.random.Generator, space: KnobSpace) -> Configuration:
    """Any configuration on the grid and within the bounds."""
    return builders.configuration(lambda most: int(rng.integers(most + 1)), space)


def group_evidence(rng: np.random.Generator, domain: Domain) -> GroupEvidence:
    """Counts from none to hundreds, with or without slices."""
    count = int(rng.choice([0, 1, 16, 300]))
    valid = int(rng.binomial(count, rng.choice([0.0, rng.random(), 1.0])))
    kinds = rng.multinomial(count - valid, rng.dirichlet([0.5] * len(domain.failures))).tolist()
    slices = {}
    for factor, levels in LEVELS.items():
        if rng.random() < 0.5:
            weights = rng.dirichlet([1.0] * len(levels))
            right, wrong = rng.multinomial(valid, weights), rng.multinomial(count - valid, weights)
            slices[factor] = {
                level: Tally(count=int(r + w), valid=int(r), failures={"any": int(w)})
                for level, r, w in zip(levels, right, wrong, strict=True)
            }
    return GroupEvidence(
        count=count,
        valid=valid,
        failures={term.key: n for term, n in zip(domain.failures, kinds, strict=True)},
        slices=slices,
    )


def view_and_proposal(rng: np.random.Generator) -> tuple[StageView, Configuration]:
    """A view with up to three earlier stages, and any proposal."""
    domain = DOMAINS[int(rng.integers(len(DOMAINS)))]
    space = domain.space

    def rates() -> dict[str, float]:
        return {group: float(rng.random()) for group in space.groups if rng.random() < 0.9}

    history = [
        StageHistory(
            stage=stage + 1,
            configuration=configuration(rng, space),
            decision=("initial", "accepted", "rolled_back")[int(rng.integers(3))],
            valid_before=rates(),
            valid_after=rates(),
        )
        for stage in range(int(rng.integers(4)))
    ]
    groups = [group for group in space.groups if rng.random() < 0.9] or space.groups[:1]
    evidence = StageEvidence(
        stage=len(history) + 1, validation={group: group_evidence(rng, domain) for group in groups}
    )
    notice = "The valid rate fell." if rng.random() < 0.2 else ""
    view = StageView(domain, evidence, configuration(rng, space), history, notice)
    return view, configuration(rng, space)


views_and_proposals = st.integers(0, 2**32 - 1).map(
    lambda seed: view_and_proposal(np.random.default_rng(seed))
)


def readable_view(rng: np.random.Generator) -> StageView:
    """A view of any of several environments in which anything may be unknown."""
    view, _ = view_and_proposal(rng)
    if rng.random() < 0.2:
        view = replace(view, domain=ADDITION, current=configuration(rng, ADDITION.space))
    space = view.domain.space
    rates = {g: float(rng.choice([0.0, 1.0, rng.random()])) for g in space.groups}
    learnability = {g: round(float(rng.random()) / 4, 3) for g in space.groups}
    known = rng.random(3) < 0.8
    evidence = view.evidence
    if known[0]:
        kept = {g: value for g, value in learnability.items() if rng.random() < 0.9}
        evidence = evidence.model_copy(update={"training": training(kept)})
    return replace(
        view,
        evidence=evidence,
        valid_before={g: rate for g, rate in rates.items() if rng.random() < 0.9},
        designed_from=configuration(rng, space) if known[1] else None,
        trained=configuration(rng, space) if known[2] else None,
        refusal="no" if rng.random() < 0.3 else "",
    )
