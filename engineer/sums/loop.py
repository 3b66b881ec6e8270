"""Train -> Validate -> Design on column addition, with any engineer."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from engineer.context.view import View
from engineer.design import DesignRecord, DesignSettings, design
from engineer.domain import Domain
from engineer.engineers.base import Engineer
from engineer.evidence import StageEvidence, StageHistory
from engineer.sums.configuration import DigitKnobs, SumsBounds, SumsConfiguration
from engineer.sums.domain import sums_domain
from engineer.sums.evidence import sums_evidence
from engineer.sums.generator import generate, statistics
from engineer.sums.instance import Sum
from engineer.sums.learning import Course, imitate, train
from engineer.sums.trainee import Trainee, answer, untrained

BOUNDS = SumsBounds(digits=(1, 2, 3), min_share=0.1, step=0.1)
INITIAL = SumsConfiguration(
    digits={
        1: DigitKnobs(data_ratio=0.4, carry_ratio=0.1, third_ratio=0.1),
        2: DigitKnobs(data_ratio=0.3, carry_ratio=0.1, third_ratio=0.1),
        3: DigitKnobs(data_ratio=0.3, carry_ratio=0.1, third_ratio=0.1),
    }
)

_WARM_START = SumsConfiguration(
    digits={1: DigitKnobs(data_ratio=1.0, carry_ratio=0.3, third_ratio=0.3)}
)
_WARM_COUNT, _WARM_PASSES, _WARM_RATE = 60, 3, 0.1

# One-digit sums are few: the validation set leaves most of them to the training.
_VALIDATION = SumsConfiguration(
    digits={
        digits: DigitKnobs(data_ratio=share, carry_ratio=0.5, third_ratio=0.5)
        for digits, share in ((1, 0.1), (2, 0.45), (3, 0.45))
    }
)
_VALIDATION_COUNT = 400

# Places in a run that have random numbers of their own.
_HELD_OUT, _WARM, _INSTANCES, _ROLLOUTS, _ANSWERS, _DESIGN = range(6)


@dataclass(frozen=True)
class Loop:
    """What a run is; everything random in it comes from the seed."""

    stages: int = 6
    instances: int = 128  # of each stage
    seed: int = 0
    course: Course = field(default_factory=Course)
    settings: DesignSettings = field(default_factory=DesignSettings)

    def __post_init__(self) -> None:
        for name, least in (("stages", 1), ("instances", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def derived(self, *place: int) -> int:
        """The seed of one place in the run."""
        return int(np.random.SeedSequence([self.seed, *place]).generate_state(1)[0])

    def held_out(self) -> tuple[Sum, ...]:
        """The fixed validation set, none of whose sums is ever trained on."""
        return generate(_VALIDATION, _VALIDATION_COUNT, self.derived(_HELD_OUT))

    def domain(self) -> Domain:
        """The environment for stages of this size."""
        return sums_domain(BOUNDS, self.instances, self.held_out())

    def initial(self) -> SumsConfiguration:
        """The first stage's configuration: `INITIAL`, or the nearest that so many sums can have.

        Raises:
            InfeasibleError: there are not so many different sums.
        """
        nearest = self.domain().nearest
        values = {group: dict(nearest(group, knobs)) for group, knobs in INITIAL.values().items()}
        return BOUNDS.make(values)

    def warm_start(self) -> Trainee:
        """A trainee that has been shown a few one-digit sums with their answers."""
        shown = generate(_WARM_START, _WARM_COUNT, self.derived(_WARM), self.held_out())
        return imitate(untrained(), shown, _WARM_PASSES, _WARM_RATE)


@dataclass(frozen=True)
class Stage:
    """What a stage trained on, what it showed, and what was designed after it."""

    evidence: StageEvidence
    configuration: SumsConfiguration | None = None  # None of the warm start
    sums: tuple[Sum, ...] = ()  # trained on
    record: DesignRecord | None = None  # None of the warm start and of the last stage


def run(loop: Loop, engineer: Engineer) -> Iterator[Stage]:
    """Run the stages one by one, the validation of the warm start before them.

    Raises:
        InfeasibleError: see `Loop.initial`.
    """
    domain, held_out = loop.domain(), loop.held_out()
    trainee = loop.warm_start()
    before = sums_evidence(0, held_out, answer(trainee, held_out, loop.derived(_ANSWERS, 0)))
    yield Stage(before)
    current = loop.initial()
    decision: Literal["initial", "accepted", "repaired", "retried", "kept"] = "initial"
    history: list[StageHistory] = []
    for number in range(1, loop.stages + 1):
        sums = generate(current, loop.instances, loop.derived(_INSTANCES, number), held_out)
        trainee, training = train(trainee, sums, loop.derived(_ROLLOUTS, number), loop.course)
        evidence = sums_evidence(
            number,
            held_out,
            answer(trainee, held_out, loop.derived(_ANSWERS, number)),
            training=training,
            environment=statistics(current, loop.instances, sums),
        )
        if number == loop.stages:
            yield Stage(evidence, current, sums)
            return
        record = design(
            engineer,
            View(domain, evidence, current, tuple(history)),
            loop.settings,
            seed=partial(loop.derived, _DESIGN, number),
        )
        yield Stage(evidence, current, sums, record)
        history.append(
            StageHistory(
                stage=number,
                configuration=current,
                decision=decision,
                valid_before=_rates(before),
                valid_after=_rates(evidence),
                failures_before={
                    group: {kind: count / tally.count for kind, count in tally.failures.items()}
                    for group, tally in before.validation.items()
                },
            )
        )
        before, decision = evidence, record.kind
        current = BOUNDS.make(record.configuration.values())


def _rates(evidence: StageEvidence) -> dict[str, float]:
    return {group: tally.valid / tally.count for group, tally in evidence.validation.items()}
