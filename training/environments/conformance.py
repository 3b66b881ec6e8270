"""Conformance checks of training environments."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from engineer import Configuration, Domain, answer_text, review_answer
from engineer.domain import InfeasibleError
from engineer.engineers.baselines import random_configuration
from jaxlake.environment.conformance import ConformanceError
from training.environments.catalogue import get_environment
from training.environments.protocol import Instances, StageInstances, TrainingEnvironment
from training.errors import UserError
from training.run.answer_records import EpisodeRecord, make_stage_evidence
from training.schema import RunConfig

ANSWERS = ("", " \n", "\x00", "yes", "-1", "3.5e400", "[[", "{}", "null", "9" * 5000, "é\U0001f9ca")
"""Arbitrary texts that every environment must be able to score."""

MAX_SCORED_INSTANCES = 32
"""Maximum number of instances in the checks of scores."""


def check_run_environment(config: RunConfig, *, configurations: int = 3) -> None:
    """Check draws, prompts, scores, demonstrations and evidence of a run's environment.

    Instances are drawn from the initial configuration and from reviewed random configurations.
    Nothing is trained. `configurations` is the number of random configurations.

    Raises:
        ConformanceError: A check failed. `reason` names the first failure: draw, determinism,
            shares, prompts, scores, alone (a score depends on the batch), demonstrations, pay (an
            invalid answer earns as much as a demonstration), evidence, factors or nearest.
    """
    environment = get_environment(config)
    domain = _call_user_code("draw", lambda: environment.domain)
    held_out: Instances = _call_user_code("draw", environment.validation_set)
    _check_nearest(domain)
    configuration: Configuration = config.environment.initial
    rng = np.random.default_rng(0)
    for seed in range(configurations + 1):
        _check_draw(environment, config, configuration, held_out, seed)
        answer = answer_text(random_configuration(rng, domain))
        review = review_answer(answer, config.environment.initial, domain)
        configuration = review.configuration or config.environment.initial
    _check_prompts(environment, held_out)
    sample = held_out.take(range(min(MAX_SCORED_INSTANCES, len(held_out))))
    _check_scores(environment, sample)
    if config.warm_start is not None:
        _check_demonstrations(environment, sample)
    _check_evidence(environment, held_out)


def _check_nearest(domain: Domain) -> None:
    """Check `domain.nearest` for the maximum of all difficulty knobs, in every group.

    The result must be within bounds, and a second call must not change it.
    """
    space = domain.space
    for group in space.groups:
        knobs = {space.share: 1 / len(space.groups)}
        knobs |= {knob: space.maximum(knob) for knob in space.difficulty_knobs}
        try:
            nearest = dict(domain.nearest(group, knobs))
        except InfeasibleError:
            continue
        second = dict(domain.nearest(group, nearest))
        _require(
            second == nearest, "nearest", f"of {knobs} is {nearest}, whose nearest is {second}"
        )
        for knob in space.difficulty_knobs:
            within_bounds = -1e-9 <= nearest[knob] <= space.maximum(knob) + 1e-9
            _require(within_bounds, "nearest", f"{group}.{knob} is {nearest[knob]}, out of bounds")


def _check_draw(
    environment: TrainingEnvironment,
    config: RunConfig,
    configuration: Configuration,
    held_out: Instances,
    seed: int,
) -> None:
    """Compare two draws of a stage with the same key, and a draw with another key."""
    count = config.stages.instances

    def draw(seed: int) -> Instances:
        key = jax.random.key(seed)
        stage: StageInstances = _call_user_code(
            "draw", lambda: environment.stage_set(key, configuration, count, held_out)
        )
        return stage.instances

    instances, repetition, other_draw = draw(seed), draw(seed), draw(seed + 1000)
    lines = _serialize(environment, instances)
    _require(len(lines) == count, "draw", f"{len(lines)} instances instead of {count}")
    is_same = lines == _serialize(environment, repetition)
    _require(is_same, "determinism", "one key draws different instances")
    is_different = count == 1 or lines != _serialize(environment, other_draw)
    _require(is_different, "determinism", "every key draws the same instances in the same order")
    overlap = set(_serialize(environment, held_out)) & set(lines)
    _require(not overlap, "draw", f"{len(overlap)} instances are held out for validation")
    counts = Counter(str(group) for group in environment.groups(instances).tolist())
    for group, knobs in configuration.values().items():
        expected_count = knobs[environment.domain.space.share] * count
        _require(
            abs(counts[group] - expected_count) < 1 + 1e-6,
            "shares",
            f"{counts[group]} instances of {group}, expected {expected_count:g}",
        )
        del counts[group]
    _require(not counts, "shares", f"groups not in the configuration: {', '.join(counts)}")


def _check_prompts(environment: TrainingEnvironment, instances: Instances) -> None:
    """Check that there is one distinct, reproducible prompt per instance."""
    prompts, lines = environment.prompts(instances), _serialize(environment, instances)
    _require(len(prompts) == len(instances), "prompts", f"{len(prompts)} of {len(instances)}")
    _require(all(map(str.strip, prompts)), "prompts", "one is empty")
    _require(prompts == environment.prompts(instances), "prompts", "they change from call to call")
    is_distinct = len(set(prompts)) >= len(set(lines))
    _require(is_distinct, "prompts", "different instances have the same one")


def _check_scores(environment: TrainingEnvironment, instances: Instances) -> None:
    """Score every text of `ANSWERS` for every instance, in a batch and in reverse order."""
    rows = np.repeat(np.arange(len(instances)), len(ANSWERS))
    texts = list(ANSWERS) * len(instances)
    scores = _judge(environment, instances.take(rows), texts).scores
    reversed_scores = _judge(environment, instances.take(rows[::-1]), texts[::-1]).scores
    for name, values, reversed_values in zip(scores._fields, scores, reversed_scores, strict=True):
        problem = f"{len(values)} {name} for {len(texts)} answers"
        _require(len(values) == len(texts), "scores", problem)
        is_equal = np.array_equal(values, reversed_values[::-1])
        _require(is_equal, "alone", f"{name} depend on the batch")


def _check_demonstrations(environment: TrainingEnvironment, instances: Instances) -> None:
    demonstrations = _call_user_code(
        "demonstrations", lambda: environment.demonstrations(instances)
    )
    scores = _judge(environment, instances, demonstrations).scores
    for row in np.flatnonzero(~scores.valid)[:1]:
        _require(False, "demonstrations", f"{demonstrations[row]!r:.100} is not valid")
    rows = np.repeat(np.arange(len(instances)), len(ANSWERS))
    text_scores = _judge(environment, instances.take(rows), list(ANSWERS) * len(instances)).scores
    invalid_rewards = text_scores.rewards[~text_scores.valid]
    if len(invalid_rewards):
        max_invalid, min_valid = invalid_rewards.max(), scores.rewards.min()
        problem = f"an invalid answer earns {max_invalid}, a demonstration {min_valid}"
        _require(max_invalid < min_valid, "pay", problem)


def _check_evidence(environment: TrainingEnvironment, instances: Instances) -> None:
    """Compare the records of an answer to each instance with the domain's counts and names."""
    texts = [ANSWERS[row % len(ANSWERS)] for row in range(len(instances))]
    judgement = _judge(environment, instances, texts)
    episodes: tuple[EpisodeRecord, ...] = _call_user_code(
        "evidence", lambda: environment.episodes(instances, texts, judgement)
    )
    evidence, domain = make_stage_evidence(0, episodes), environment.domain
    count = sum(tally.count for tally in evidence.validation.values())
    is_complete = count == len(texts) == len(episodes)
    _require(is_complete, "evidence", f"counts {count} of {len(texts)} answers")
    num_valid = sum(episode.valid for episode in episodes)
    num_expected = int(judgement.scores.valid.sum())
    _require(num_valid == num_expected, "evidence", f"{num_valid} valid, not {num_expected}")
    for factor in domain.factors.values():
        for group, tally in evidence.validation.items():
            levels = set(tally.slices.get(factor.name, {}))
            _require(
                bool(levels) and levels <= set(factor.levels),
                "factors",
                f"levels of {factor.name} in group {group} must be "
                f"{', '.join(sorted(factor.levels))}, got {', '.join(sorted(levels)) or 'none'}",
            )


def _judge(environment: TrainingEnvironment, instances: Instances, texts: Sequence[str]) -> Any:
    return _call_user_code("scores", lambda: environment.judge(instances, texts))


def _call_user_code(reason: str, function: Callable[[], Any]) -> Any:
    """Return the result of a call; its errors become a `ConformanceError` with this reason."""
    try:
        return function()
    except UserError as error:
        raise ConformanceError(reason, str(error)) from error
    except Exception as error:
        raise ConformanceError(reason, f"{type(error).__name__}: {error}") from error


def _serialize(environment: TrainingEnvironment, instances: Instances) -> list[str]:
    """Return one JSON line per instance, which identifies it."""
    return [json.dumps(line, sort_keys=True) for line in environment.digest_lines(instances)]


def _require(condition: bool, reason: str, detail: str) -> None:
    if not condition:
        raise ConformanceError(reason, detail)
