"""`python -m examples.column_addition`: train, validate and design, in seconds."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from engineer import (
    SCRIPTED_ENGINEERS,
    DesignRecord,
    DesignSettings,
    Domain,
    Engineer,
    RunSettings,
    StageEvidence,
    StageHistory,
    StageView,
    run_design,
    scripted_engineer,
)
from engineer.evidence import DecisionKind
from engineer.space import number_text, percent
from examples.column_addition.engineer_side import addition_domain, addition_evidence
from examples.column_addition.environment import (
    AdditionConfiguration,
    AdditionSpace,
    Sum,
    draw_sums,
)
from examples.column_addition.trainee import UNTRAINED, Trainee, imitate, reinforce

SPACE = AdditionSpace(digits=(1, 2, 3), min_share=0.1, step=0.1)


def addition(**groups: tuple[float, float]) -> AdditionConfiguration:
    """Return a configuration: `addition(d1=(data_ratio, carry_ratio), ...)`."""
    return SPACE.make(
        {name[1:]: dict(zip(SPACE.knobs, knobs, strict=True)) for name, knobs in groups.items()}
    )


INITIAL = addition(d1=(0.4, 0.1), d2=(0.3, 0.1), d3=(0.3, 0.1))
WARM_START = addition(d1=(1.0, 0.3))
# Few one-digit sums exist; the validation set leaves most of them for training.
VALIDATION = addition(d1=(0.06, 0.5), d2=(0.47, 0.5), d3=(0.47, 0.5))

# Random streams of a run.
_HELD_OUT, _WARM, _SUMS, _ROLLOUTS, _ANSWERS, _DESIGN = range(6)


@dataclass(frozen=True)
class Experiment:
    """The settings of a run; all randomness derives from the seed."""

    stages: int = 6
    instances: int = 64  # of each stage
    seed: int = 0
    training: dict[str, Any] = field(default_factory=dict)  # arguments of `reinforce`

    def __post_init__(self) -> None:
        for name, minimum in (("stages", 1), ("instances", 1), ("seed", 0)):
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} must be at least {minimum}, got {getattr(self, name)}")

    def seed_for(self, *stream: int) -> int:
        """Derive the seed of one random stream of the run."""
        return int(np.random.SeedSequence([self.seed, *stream]).generate_state(1)[0])

    def held_out(self) -> tuple[Sum, ...]:
        """Return the fixed validation set, which training excludes."""
        return draw_sums(VALIDATION, 400, self.seed_for(_HELD_OUT))

    def domain(self) -> Domain:
        """Return the engineer's domain for stages of this size."""
        return addition_domain(SPACE, self.instances, self.held_out())

    def initial(self) -> AdditionConfiguration:
        """Return the first stage's configuration: `INITIAL`, or the nearest with enough sums."""
        nearest, groups = self.domain().nearest, INITIAL.values().items()
        return SPACE.make({group: dict(nearest(group, knobs)) for group, knobs in groups})

    def warm_start(self) -> Trainee:
        """Return a trainee that imitated answers to a few one-digit sums."""
        sums = draw_sums(WARM_START, 30, self.seed_for(_WARM), self.held_out())
        return imitate(UNTRAINED, sums, passes=3, learning_rate=0.1)


@dataclass(frozen=True)
class StageOutcome:
    """The evidence and answers of a stage, and the design that followed."""

    evidence: StageEvidence
    answers: tuple[str, ...]  # to the held-out sums
    configuration: AdditionConfiguration | None = None  # None for the warm start
    sums: tuple[Sum, ...] = ()
    record: DesignRecord | None = None  # None for the warm start and the last stage


def run_stages(experiment: Experiment, engineer: Engineer) -> Iterator[StageOutcome]:
    """Train, validate and design stage by stage; first yield the validation of the warm start."""
    seed_for, held_out = experiment.seed_for, experiment.held_out()
    domain, configuration = experiment.domain(), experiment.initial()
    designed_from: AdditionConfiguration | None = None
    decision: DecisionKind = "initial"
    history: list[StageHistory] = []
    trainee = experiment.warm_start()
    answers = trainee.answer(held_out, seed_for(_ANSWERS, 0))
    previous = addition_evidence(0, held_out, answers)
    yield StageOutcome(previous, tuple(answers))
    for stage in range(1, experiment.stages + 1):
        sums = draw_sums(configuration, experiment.instances, seed_for(_SUMS, stage), held_out)
        rollout_seed = seed_for(_ROLLOUTS, stage)
        trainee, training_evidence = reinforce(trainee, sums, rollout_seed, **experiment.training)
        answers = trainee.answer(held_out, seed_for(_ANSWERS, stage))
        evidence = addition_evidence(stage, held_out, answers, training_evidence, sums)
        if stage == experiment.stages:
            yield StageOutcome(evidence, tuple(answers), configuration, sums)
            return
        view = StageView(
            domain,
            evidence,
            configuration,
            tuple(history),
            designed_from=designed_from,
            valid_before=previous.valid_rates(),
        )
        seed = partial(seed_for, _DESIGN, stage)
        record = run_design(engineer, view, DesignSettings(), seed=seed)
        yield StageOutcome(evidence, tuple(answers), configuration, sums, record)
        history.append(StageHistory.from_evidence(previous, evidence, configuration, decision))
        previous, decision, designed_from = evidence, record.kind, configuration
        configuration = SPACE.make(record.configuration.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the loop and print its progress; invalid arguments exit with status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.column_addition",
        description="A table of digit preferences learns column addition; after each stage an"
        " engineer reads its failures and designs the next stage's sums.",
    )
    help_text = f"one of {', '.join(SCRIPTED_ENGINEERS)}, each also as shuffled:NAME"
    parser.add_argument("--engineer", default="rule", metavar="NAME", help=help_text)
    for name in ("stages", "instances", "seed"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Experiment, name), metavar="N")
    parser.add_argument("--context", action="store_true", help="also print what the engineer read")
    options = parser.parse_args(arguments)
    try:
        experiment = Experiment(options.stages, options.instances, options.seed)
        settings = RunSettings(SPACE, experiment.initial(), options.stages, options.seed)
        engineer = scripted_engineer(options.engineer, settings)
    except ValueError as error:
        parser.error(str(error))
    for outcome in run_stages(experiment, engineer):
        _print_outcome(outcome, options.context)
    return 0


def _print_outcome(outcome: StageOutcome, show_context: bool) -> None:
    evidence, record = outcome.evidence, outcome.record
    print(f"\nstage {evidence.stage}" if evidence.stage else "warm start")
    if outcome.configuration:
        knob_text = ", ".join(
            f"{group} " + " ".join(f"{percent(value):02d}" for value in knobs.values())
            for group, knobs in outcome.configuration.values().items()
        )
        print(f"  trained on (digits, data %, carry %): {knob_text}")
    for group, tally in evidence.validation.items():
        failures = ", ".join(f"{kind} {count}" for kind, count in tally.failures.items())
        print(f"  {group} digits: {tally.valid_percent}% of {tally.count} valid; {failures}")
    if record is None:
        return
    if show_context:
        print(f"--- what {record.engineer} read\n{record.context}\n---")
    print(f"  design by {record.engineer}: {record.kind}, {record.reason}")
    for change in record.diff:
        print(f"    {change.field} {number_text(change.old or 0.0)} -> {number_text(change.new)}")


if __name__ == "__main__":
    sys.exit(main())
