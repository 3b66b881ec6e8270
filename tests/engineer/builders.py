"""Builders and hypothesis strategies for the engineer's tests."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from engineer import (
    Configuration,
    Context,
    Domain,
    Engineer,
    FailedCase,
    GroupEvidence,
    KnobSpace,
    Proposal,
    Review,
    StageEvidence,
    StageHistory,
    StageView,
    Task,
    TrainingEvidence,
    answer_text,
    review_answer,
)
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from engineer.space import answer_schema, apportion
from examples.column_addition.engineer_side import addition_domain
from examples.column_addition.environment import AdditionSpace
from tests.engineer import words

SIZES = (3, 4, 5)
BOUNDS = Bounds(sizes=SIZES)


def from_rows(*rows: Sequence[float], sizes: Sequence[int] = SIZES) -> LakeConfiguration:
    """Return a configuration from rows of data, hole and wait ratio, one per size."""
    knobs = (dict(zip(Bounds.knobs, row, strict=True)) for row in rows)
    return LakeConfiguration.model_validate({"sizes": dict(zip(sizes, knobs, strict=False))})


CURRENT = from_rows((0.5, 0.2, 0.25), (0.3, 0.1, 0.5), (0.2, 0.0, 1.0))


def make_lake(bounds: Bounds = BOUNDS, num_agents: int = 2) -> Domain:
    """Return a lake domain without the limit on acceptance rates."""
    return lake_domain(bounds, num_agents, acceptance=None)


def column(configuration: Configuration | None, knob: str) -> list[float]:
    """Return the values of a knob, one per group."""
    assert configuration is not None
    return [knobs[knob] for knobs in configuration.values().values()]


def data_shares(decision: Review) -> list[float]:
    """Return the data shares of a review's configuration."""
    return column(decision.configuration, "data_ratio")


def make_answer(start: Configuration = CURRENT, **changes: object) -> str:
    """Return a configuration as JSON, with changes such as `s3_hole_ratio=0.9`."""
    groups: dict[str, dict[str, Any]] = start.values()
    for name, value in changes.items():
        group, _, knob = name.removeprefix("s").partition("_")
        groups[group][knob] = value
    return json.dumps(groups)


def hole_tally(valid: int, count: int = 100) -> GroupEvidence:
    """Return evidence in which all invalid answers fell into holes."""
    failures = {"hole": count - valid} if count > valid else {}
    return GroupEvidence(count=count, valid=valid, failures=failures)


def draw_configuration(draw: Callable[[int], int], space: KnobSpace) -> Configuration:
    """Draw a configuration on the grid and within the bounds; `draw(n)` returns one of 0..n."""
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
    """Draw a configuration on the grid by hypothesis."""
    return draw_configuration(lambda maximum: draw(st.integers(0, maximum)), space)


bounds_strategy = st.builds(
    Bounds,
    sizes=st.just(SIZES),
    max_hole_ratio=st.sampled_from([0.0, 0.3, 0.5]),
    max_wait_ratio=st.sampled_from([0.0, 0.5, 1.0]),
    min_share=st.sampled_from([0.0, 0.1, 0.3]),
    step=st.sampled_from([0.05, 0.1]),
)


def make_training(learnability: Mapping[str, float] | None = None, num_instances: int = 100):
    return TrainingEvidence(
        updates=4,
        instances=num_instances,
        reward_first=0.1,
        reward_last=0.2,
        zero_variance_share=0.5,
        clip_share=0.0,
        entropy=1.0,
        completion_length=9.0,
        learnability=learnability or {},
    )


def make_view(
    valid: Mapping[str, int],
    *,
    domain: Domain | None = None,
    current: Configuration = CURRENT,
    stage: int = 1,
    **fields,
) -> StageView:
    """Return a view with these percentages of valid answers per group."""
    history = fields.pop("history", ())
    evidence = StageEvidence(
        stage=stage, validation={group: hole_tally(n) for group, n in valid.items()}, **fields
    )
    return StageView(domain or make_lake(), evidence, current, history)


def make_history(
    valid_before: Mapping[str, float], valid_after: Mapping[str, float], stage=1, **fields
):
    return StageHistory(
        stage=stage,
        configuration=fields.pop("configuration", CURRENT),
        decision="accepted",
        valid_before=valid_before,
        valid_after=valid_after,
        **fields,
    )


def make_task(view: StageView, seed: int = 0) -> Task:
    """Return a task with a placeholder prompt, which scripted engineers ignore."""
    prompt = Context("the prompt", cut=(), tokens=2)
    schema = answer_schema(view.domain.space)
    return Task(prompt, view, schema, seed, first_seed=seed, build_context=lambda view: prompt)


def propose(engineer: Engineer, view: StageView, seed: int = 0) -> Configuration:
    """Return an engineer's proposal, which must pass the review without repairs."""
    proposal = engineer.propose(make_task(view, seed))
    decision = review_answer(proposal.text, view.current, view.domain)
    assert decision.kind in ("accepted", "unchanged"), decision.reason
    assert decision.repairs == ()
    assert decision.configuration is not None
    return decision.configuration


@dataclass
class Spy:
    """Engineer that records its tasks and answers with the current configuration."""

    tasks: list[Task] = field(default_factory=list)
    name: str = "spy"

    def propose(self, task: Task) -> Proposal:
        self.tasks.append(task)
        return Proposal(answer_text(task.view.current), 0.0, tokens=3)

    def write(self, prompt: str, seed: int) -> Proposal:
        return Proposal("notes", 0.0)


DOMAINS: tuple[Domain, ...] = (
    lake_domain(Bounds(sizes=(3,))),
    lake_domain(Bounds(sizes=(3, 4, 5), max_wait_ratio=0.0)),
    lake_domain(Bounds(sizes=(3, 4, 7, 10), step=0.1, min_share=0.1, max_hole_ratio=0.3)),
    words.DOMAIN,
)

ADDITION = addition_domain(AdditionSpace(digits=(1, 2, 3)), instances=50)


def random_configuration(rng: np.random.Generator, space: KnobSpace) -> Configuration:
    """Draw a configuration on the grid by NumPy."""
    return draw_configuration(lambda maximum: int(rng.integers(maximum + 1)), space)


def random_evidence(rng: np.random.Generator, domain: Domain) -> GroupEvidence:
    """Draw evidence of 0 to 300 answers."""
    count = int(rng.choice([0, 1, 16, 300]))
    valid = int(rng.binomial(count, rng.choice([0.0, rng.random(), 1.0])))
    failures = rng.multinomial(count - valid, rng.dirichlet([0.5] * len(domain.failures))).tolist()
    return GroupEvidence(
        count=count,
        valid=valid,
        failures={label.key: n for label, n in zip(domain.failures, failures, strict=True)},
    )


def random_view(rng: np.random.Generator, domain: Domain | None = None) -> StageView:
    """Draw a view, of a random environment if none is given, with random facts missing."""
    domain = domain or (*DOMAINS, ADDITION)[int(rng.integers(len(DOMAINS) + 1))]
    space = domain.space

    def draw_rates() -> dict[str, float]:
        values = {g: float(rng.choice([0.0, 1.0, rng.random()])) for g in space.groups}
        return {group: rate for group, rate in values.items() if rng.random() < 0.9}

    def draw_optional(make: Callable[[], Any]) -> Any:
        return make() if rng.random() < 0.8 else None

    history = [
        StageHistory(
            stage=stage + 1,
            configuration=random_configuration(rng, space),
            decision=("initial", "accepted", "rolled_back")[int(rng.integers(3))],
            valid_before=draw_rates(),
            valid_after=draw_rates(),
            failures_before={group: {"hole": 0.5} for group in draw_rates()},
        )
        for stage in range(int(rng.integers(4)))
    ]
    groups = [group for group in space.groups if rng.random() < 0.9] or list(space.groups[:1])
    groups += ["99"] * (rng.random() < 0.3)  # a group that is validated, but not trained on
    evidence = StageEvidence(
        stage=len(history) + 1,
        validation={group: random_evidence(rng, domain) for group in groups},
        training=draw_optional(
            lambda: make_training({g: round(r / 4, 3) for g, r in draw_rates().items()})
        ),
        environment={group: {"acceptance": 0.5} for group in draw_rates()},
        failed_cases=tuple(
            FailedCase(group=group, failure="hole", completion="R") for group in groups[:2]
        ),
    )
    return StageView(
        domain,
        evidence,
        random_configuration(rng, space),
        history,
        notice="The valid rate fell." if rng.random() < 0.2 else "",
        valid_before=draw_rates(),
        designed_from=draw_optional(lambda: random_configuration(rng, space)),
        trained=draw_optional(lambda: random_configuration(rng, space)),
        refusal="no" if rng.random() < 0.3 else "",
    )
