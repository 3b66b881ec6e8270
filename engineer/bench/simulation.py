"""Run engineers on simulated learners, with the real design phase and review."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from engineer.bench.learners import Learners, count_valid_answers, train_skill, validation_rates
from engineer.design import DesignRecord, DesignSettings, run_design
from engineer.domain import Domain
from engineer.engineers.base import Engineer
from engineer.engineers.catalogue import RunSettings
from engineer.evidence import GroupEvidence, TrainingEvidence
from engineer.space import Configuration
from engineer.synthetic.learner import (
    configuration_arrays,
    rollout_evidence,
    success_rates,
    validation_evidence,
)
from engineer.synthetic.visible_run import VisibleRun

EngineerFactory = Callable[[RunSettings], Engineer]
"""Returns the engineer of one learner's run; `RunSettings.seed` is the index of the learner."""

UPDATES, INSTANCES = 48, 1536
"""Reported numbers of updates and instances per stage, as in configs/miniature.yaml."""


@dataclass(frozen=True)
class LearnerResults:
    """The results of N learners with one engineer."""

    rates: np.ndarray  # float (N, S + 1): true valid rate at the start and after each stage
    designs: int  # number of design phases
    calls: int  # number of requested answers, including retries
    usable: int  # number of design phases with a usable answer
    tokens: int  # number of tokens that the engineer generated
    seconds: float  # total time of the design phases

    @property
    def final_rates(self) -> np.ndarray:
        """The true valid rate after the last stage, float (N,)."""
        return self.rates[:, -1]


def train_learners(
    make_engineer: EngineerFactory,
    learners: Learners,
    domain: Domain,
    settings: DesignSettings | None = None,
) -> LearnerResults:
    """Train learners for all their stages on an engineer's designs.

    The first stage uses the learner's initial configuration. After each stage except the last, the
    engineer designs the next one as in a real run: answers are reviewed and retried, and stages
    with a significant fall are rolled back.

    Args:
        make_engineer: Returns the engineer of each learner.
        learners: N learners of the domain.
        domain: The environment.
        settings: The design settings; None: the default settings in the compact style.

    Returns:
        The true valid rates and the costs.

    Raises:
        UserError: An engineer returned something that is not a `Proposal`.
    """
    settings = settings or DesignSettings(style="compact")
    stages = learners.drift.shape[1]
    skill, rates = learners.skill, [validation_rates(learners, learners.skill)]
    validation = _validate(learners, domain, rates[0], 0)
    runs, engineers = [], []
    for i, evidence in enumerate(validation):
        initial = round_configuration(domain, learners.shares[i], learners.levels[i])
        runs.append(VisibleRun(domain, initial, evidence))
        engineers.append(make_engineer(RunSettings(domain.space, initial, stages, i)))
    records: list[DesignRecord[Configuration]] = []
    for stage in range(1, stages + 1):
        arrays = [configuration_arrays(domain.space, run.current) for run in runs]
        shares, levels = (np.stack(values) for values in zip(*arrays, strict=True))
        training = _collect_training_evidence(learners, domain, skill, shares, levels, stage)
        skill = train_skill(learners, skill, shares, levels, learners.drift[:, stage - 1])
        rates.append(validation_rates(learners, skill))
        if stage == stages:
            break
        validation = _validate(learners, domain, rates[-1], stage)
        for i, (run, engineer) in enumerate(zip(runs, engineers, strict=True)):
            view = run.finish_stage(validation[i], training[i], stages - stage)
            seed = partial(_attempt_seed, i, stage)
            records.append(run_design(engineer, view, settings, seed=seed))
            run.use_design(records[-1].configuration, records[-1].kind)
    return LearnerResults(
        rates=np.stack([np.mean(rate, axis=1) for rate in rates], axis=1),
        designs=len(records),
        calls=sum(len(record.attempts) for record in records),
        usable=sum(record.kind != "kept" for record in records),
        tokens=sum(record.spent.engineer_tokens for record in records),
        seconds=math.fsum(record.spent.seconds for record in records),
    )


def round_configuration(domain: Domain, shares: np.ndarray, levels: np.ndarray) -> Configuration:
    """Return the configuration with shares (G,) and levels (G, K), rounded to the grid."""
    space = domain.space
    values = {}
    for g, group in enumerate(space.groups):
        ratios = {space.share: shares[g]} | {
            knob: levels[g, k] * space.maximum(knob)
            for k, knob in enumerate(space.difficulty_knobs)
        }
        values[group] = {knob: space.from_units(space.to_units(x)) for knob, x in ratios.items()}
    return space.make(values)


def _attempt_seed(learner: int, stage: int, attempt: int) -> int:
    return (learner * 100 + stage) * 100 + attempt


def _validate(
    learners: Learners, domain: Domain, rates: np.ndarray, stage: int
) -> list[dict[str, GroupEvidence]]:
    """Return the validation answers of each learner after a stage."""
    normals = learners.validation_normals[:, stage]
    count = learners.count[:, None]
    valid = count_valid_answers(count, rates, normals[..., 0])
    failures = _split_failures(learners, count - valid, normals[..., 1:])
    scores = np.floor(0.7 * valid + 0.5)
    columns = map(_to_int_lists, (learners.count, valid, scores, failures))
    return [
        {
            group: validation_evidence(domain, count, *numbers)
            for group, *numbers in zip(domain.space.groups, *values, strict=True)
        }
        for count, *values in zip(*columns, strict=True)
    ]


def _collect_training_evidence(
    learners: Learners,
    domain: Domain,
    skill: np.ndarray,
    shares: np.ndarray,
    levels: np.ndarray,
    stage: int,
) -> list[TrainingEvidence]:
    rates = success_rates(skill, learners.cost, levels)
    normals = learners.training_normals[:, stage - 1]
    count = learners.rollouts[:, None]
    valid = count_valid_answers(count, rates, normals[..., 0])
    failures = _split_failures(learners, count - valid, normals[..., 1:])
    learnability = rates * (1.0 - rates) * learners.uniformity[:, stage - 1]
    reward = np.sum(shares * rates, axis=1)
    zero_variance_share = np.sum(shares * (rates**8 + (1.0 - rates) ** 8), axis=1)
    values = (learners.rollouts, reward, zero_variance_share, rates, learnability)
    columns = [*(x.tolist() for x in values), *map(_to_int_lists, (valid, failures))]
    return [_make_training_evidence(domain, *row) for row in zip(*columns, strict=True)]


def _make_training_evidence(
    domain: Domain,
    count: int,
    reward: float,
    zero_variance_share: float,
    rates: Sequence[float],
    learnability: Sequence[float],
    valid: Sequence[int],
    failures_by_group: Sequence[Sequence[int]],
) -> TrainingEvidence:
    groups = domain.space.groups
    answers = {
        group: rollout_evidence(domain, count, n, failures, rate)
        for group, n, failures, rate in zip(groups, valid, failures_by_group, rates, strict=True)
    }
    return TrainingEvidence(
        updates=UPDATES,
        instances=INSTANCES,
        reward_first=reward,
        reward_last=reward,
        zero_variance_share=min(zero_variance_share, 1.0),
        clip_share=0.01,
        entropy=0.4,
        completion_length=30.0,
        learnability=dict(zip(groups, learnability, strict=True)),
        rollouts={group: tally for group, (tally, _) in answers.items()},
        answer_statistics={group: statistics for group, (_, statistics) in answers.items()},
    )


def _split_failures(
    learners: Learners, failed_counts: np.ndarray, normals: np.ndarray
) -> np.ndarray:
    """Split failed answers (N, G) by kind into integers (N, G, F), with successive binomials."""
    shares = learners.failure_shares
    remaining, mass = failed_counts, np.ones(failed_counts.shape)
    counts = []
    for kind in range(shares.shape[-1] - 1):
        rate = np.divide(shares[..., kind], mass, out=np.zeros_like(mass), where=mass > 1e-9)
        counts.append(count_valid_answers(remaining, np.clip(rate, 0.0, 1.0), normals[..., kind]))
        remaining, mass = remaining - counts[-1], mass - shares[..., kind]
    return np.stack([*counts, remaining], axis=-1)


def _to_int_lists(values: np.ndarray) -> list[Any]:
    return values.astype(int).tolist()
