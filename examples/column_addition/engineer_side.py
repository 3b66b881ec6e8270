"""The engineer's view of column addition: its domain, and the evidence of a stage."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from engineer import (
    Domain,
    Factor,
    FailedCase,
    GroupEvidence,
    InfeasibleError,
    Label,
    StageEvidence,
    Tally,
    TrainingEvidence,
)
from engineer.domain import Knobs
from examples.column_addition.environment import (
    AdditionSpace,
    Sum,
    check_answer,
    count_sums,
    split_quota,
)

FAILURES = (
    Label("parse_error", "unparsable answer", "parse"),
    Label("wrong_length", "wrong number of digits", "length"),
    Label("carry_missed", "missed carry", "carry"),
    Label("wrong_digit", "other wrong digit", "digit"),
)
STATISTICS = (Label("carry", "share of sums that carry", "carry"),)
_OPENING = (
    "You are the environment engineer of a model that learns to add decimal numbers, column by"
    " column from the lowest one up. Both operands of a sum have the same number of digits; times"
    " of failures are columns, the lowest being 0. The model trains in stages. You read what the"
    " last stage showed and write the configuration of the next one: for each digit count"
    " data_ratio (share of the training instances) and carry_ratio (share of the instances in"
    " which at least one column adds up to 10 or more)."
)
_GUIDELINE = (
    "Learning comes from instances that are sometimes solved and sometimes not. Give most data to"
    " digit counts with a valid rate between 20% and 80%, but keep some of each so that nothing is"
    " forgotten.",
    "Raise carry_ratio where the valid rate is above 60%, lower it where it is below 20%.",
    "Missed carries are learned from sums that carry, and a wrong number of digits often is a"
    " carry out of the highest column.",
    "The fewer the digits, the fewer different sums there are: a large share of one-digit sums"
    " can't have every carry_ratio.",
)


def addition_domain(
    space: AdditionSpace, instances: int, held_out: Collection[Sum] = frozenset()
) -> Domain:
    """Return the domain for stages of `instances` distinct sums without the held-out ones."""
    held_counts = Counter(problem.kind for problem in held_out)

    def nearest(group: str, knobs: Knobs) -> Knobs:
        """Return the nearest carry_ratio with enough sums; ties go to the lower one."""
        # Whether a share is rounded down or up depends on the shares of the other groups.
        exact_count = knobs["data_ratio"] * instances
        counts = math.floor(exact_count + 1e-9), math.ceil(exact_count - 1e-9)
        kinds = [(int(group), carries) for carries in (False, True)]
        supply = [count_sums(*kind) - held_counts[kind] for kind in kinds]
        target = knobs["carry_ratio"]
        grid = [space.from_units(n) for n in range(space.to_units(space.max_carry_ratio) + 1)]
        for ratio in [target, *sorted(grid, key=lambda x: (round(abs(x - target), 9), x))]:
            quotas = [split_quota(count, ratio) for count in counts]
            if all(n <= k for quota in quotas for n, k in zip(quota, supply, strict=True)):
                return {**knobs, "carry_ratio": ratio}
        raise InfeasibleError(
            f"{space.group_label} {group}: data_ratio {knobs['data_ratio']:g} asks for"
            f" {max(counts)} different sums, {sum(supply)} can be had"
        )

    return Domain(
        name="sums",
        space=space,
        opening=_OPENING,
        guideline=_GUIDELINE,
        failures=FAILURES,
        statistics=STATISTICS,
        instance="sum",
        group_format="{0}-digit sums",
        group_symbol="d{0}",
        causes={"carry_missed": "carry_ratio"},
        factors={"carry_ratio": Factor("carries", {"no carry": 0.0, "carry": 1.0}, mixture=True)},
        nearest=nearest,
    )


def addition_evidence(
    stage: int,
    instances: Sequence[Sum],
    answers: Sequence[str],
    training: TrainingEvidence | None = None,
    trained_on: Collection[Sum] = (),
) -> StageEvidence:
    """Check the answers to a validation set and return the evidence; stage 0 is the warm start."""
    carries = defaultdict(list)
    for problem in trained_on:
        carries[str(problem.num_digits)].append(problem.carries)
    failures = defaultdict(lambda: defaultdict(list))  # by group, then by slice
    cases = defaultdict(list)
    for problem, text in zip(instances, answers, strict=True):
        failure, column = check_answer(problem, text)
        group = str(problem.num_digits)
        failures[group]["carry" if problem.carries else "no carry"].append(failure)
        if failure is not None:
            case = FailedCase(
                group=group,
                failure=failure,
                time=column,
                instance=(problem.question,),
                completion=text,
            )
            cases[group, failure].append(case)
    case_groups = sorted(cases.values(), key=len, reverse=True)[:4]
    return StageEvidence(
        stage=stage,
        validation={
            group: GroupEvidence(
                **dict(_tally([problem for level in levels.values() for problem in level])),
                slices={"carries": {name: _tally(level) for name, level in levels.items()}},
            )
            for group, levels in sorted(failures.items())
        },
        training=training,
        environment={
            group: {"carry": sum(flags) / len(flags)} for group, flags in sorted(carries.items())
        },
        failed_cases=tuple(same_failure[0] for same_failure in case_groups),
    )


def _tally(failures: Sequence[str | None]) -> Tally:
    counts = Counter(failure for failure in failures if failure)
    return Tally(count=len(failures), valid=len(failures) - counts.total(), failures=counts)
