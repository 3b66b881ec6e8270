"""Views and tasks for tests of single engineers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from engineer import (
    Configuration,
    Context,
    Domain,
    Engineer,
    FailedCase,
    GroupEvidence,
    Proposal,
    StageEvidence,
    StageHistory,
    StageView,
    Task,
    TrainingEvidence,
    answer_text,
    review_answer,
)
from engineer.lake import Bounds, lake_domain
from engineer.space import answer_schema
from tests.engineer.builders import CURRENT, on_grid, roomy, tally

ROOMY = roomy()


def training(learnability: Mapping[str, float] | None = None, instances: int = 100):
    return TrainingEvidence(
        updates=4,
        instances=instances,
        reward_first=0.1,
        reward_last=0.2,
        groups_without_variance=0.5,
        clip_share=0.0,
        entropy=1.0,
        completion_length=9.0,
        learnability=learnability or {},
    )


def view_of(
    valid: Mapping[str, int],
    *,
    domain: Domain = ROOMY,
    current: Configuration = CURRENT,
    stage: int = 1,
    **more,
) -> StageView:
    """A view in which so many per cent of each group's validation answers are valid."""
    history = more.pop("history", ())
    evidence = StageEvidence(
        stage=stage, validation={group: tally(n) for group, n in valid.items()}, **more
    )
    return StageView(domain, evidence, current, history)


def past(before: Mapping[str, float], after: Mapping[str, float], stage: int = 1, **more):
    return StageHistory(
        stage=stage,
        configuration=more.pop("configuration", CURRENT),
        decision="accepted",
        valid_before=before,
        valid_after=after,
        **more,
    )


def task_of(view: StageView, seed: int = 0) -> Task:
    """With a prompt that says nothing: scripted engineers don't read it."""
    prompt = Context("the prompt", cut=(), tokens=2)
    schema = answer_schema(view.domain.space)
    return Task(prompt, view, schema, seed, first_seed=seed, rebuild=lambda other: prompt)


def proposed(engineer: Engineer, view: StageView, seed: int = 0) -> Configuration:
    """What an engineer proposes, which must pass as written."""
    decision = review_answer(engineer.propose(task_of(view, seed)).text, view.current, view.domain)
    assert decision.kind == "accepted", decision.reason
    assert decision.repairs == ()
    assert decision.configuration is not None
    return decision.configuration


@dataclass
class Spy:
    """Keeps the tasks that it is given and answers with the configuration in force."""

    seen: list[Task] = field(default_factory=list)
    name: str = "spy"

    def propose(self, task: Task) -> Proposal:
        self.seen.append(task)
        return Proposal(answer_text(task.view.current), 0.0, tokens=3)

    def write(self, prompt: str, seed: int, max_tokens: int | None = None) -> Proposal:
        return Proposal("notes", 0.0)


@st.composite
def views(draw, bounds: Bounds) -> StageView:
    groups = (*bounds.groups, "99")  # one that is validated, but not trained on
    some = st.sampled_from(groups)

    def answers() -> GroupEvidence:
        count = draw(st.integers(0, 60))
        valid = draw(st.sampled_from([0, count]) | st.integers(0, count))
        return tally(valid, count)

    rates = st.dictionaries(some, st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
    validated = draw(st.just(list(groups)) | st.lists(some, min_size=1, unique=True))
    learnability = draw(st.dictionaries(some, st.sampled_from([0.0, 0.25]) | st.floats(0, 0.25)))
    evidence = StageEvidence(
        stage=draw(st.integers(0, 9)),
        validation={group: answers() for group in validated},
        training=draw(st.none() | st.just(training(learnability, draw(st.integers(0, 10**7))))),
        environment=draw(
            st.dictionaries(some, st.just({"acceptance": 0.5, "mean_sum_of_costs": 4.0}))
        ),
        failed_cases=tuple(
            FailedCase(group=group, failure="hole", completion="R")
            for group in draw(st.lists(some, max_size=3))
        ),
    )
    history = [
        past(
            draw(rates),
            draw(rates),
            stage,
            configuration=draw(on_grid(bounds)),
            failures_before=draw(st.dictionaries(some, st.just({"hole": 0.5}))),
        )
        for stage in range(1, draw(st.integers(1, 4)))
    ]
    return StageView(lake_domain(bounds), evidence, draw(on_grid(bounds)), history)
