"""A stage's atlas after the fact: measured or read, and configurations scored on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SerializeAsAny

from engineer import (
    AtlasEngineer,
    AtlasSource,
    Budget,
    Configuration,
    Engineer,
    Estimate,
    RuleEngineer,
    StageView,
    run_design,
)
from engineer.domain import Domain
from engineer.engineers.computed import by_group, compose_configuration
from engineer.engineers.plans import CopyPreviousEngineer, FixedEngineer, RandomEngineer
from engineer.scoring.atlas import DesignAtlas
from engineer.space import apportion
from training.analysis.counterfactual import results_until
from training.analysis.evaluation import frozen_policy
from training.environments.catalogue import domain_of
from training.errors import UserError
from training.phases.atlas import known_atlas, measure_atlas, rollouts_per_atlas
from training.phases.stage_results import (
    StageResult,
    design_settings,
    gate_record,
    reference_of,
    view_of,
)
from training.phases.validate import validation_set
from training.run.directory import RunDirectory
from training.run.progress import console, new_table, print_table
from training.run.records import AtlasRecord, Record
from training.schema import RunConfig

RANDOM_DRAWS = 64
"""How many random configurations stand for random ones."""


class ScoredConfiguration(Record):
    """What a configuration is worth on an atlas; None where some of its cells have no boards."""

    name: str
    configurations: tuple[SerializeAsAny[Configuration], ...]  # one, or those whose mean it is
    expected: Estimate | None
    regret: Estimate | None


class ScoredAtlas(NamedTuple):
    """A stage's atlas, and what configurations are worth on it."""

    config: RunConfig
    record: AtlasRecord
    best: Configuration
    scores: list[ScoredConfiguration]


def score_stage(path: Path, stage: int) -> ScoredAtlas:
    """Read or measure the atlas of a stage, and score what was decided and what could have been.

    An atlas that is measured here goes to `atlases/S.json`. Stage 0 stands for what the run began
    with; the initial configuration is all that was decided for it. A `UserError` says what is
    missing: the run, the stage, its weights, or every instance of a map size that needs some.
    """
    directory = RunDirectory(path)
    config = directory.config()
    _ = config.lake  # only its boards are measured by cell
    results = results_until(directory, config, stage, first=0)
    if stage and results[stage].gate is None:
        results[stage] = replace(results[stage], gate=gate_record(config, results, stage))
    record = _atlas_of(directory, config, results)
    try:
        best = record.atlas.best(domain_of(config))
    except ValueError as error:
        raise UserError(f"stage {stage}: {error}") from error
    return ScoredAtlas(config, record, best, list(_scores(config, results, record)))


def _atlas_of(
    directory: RunDirectory, config: RunConfig, results: Sequence[StageResult]
) -> AtlasRecord:
    """Read the atlas of the last stage, or measure it with the weights in force after it."""
    stage = results[-1].stage
    own, later = directory.stage(stage).atlas, directory.later_atlas(stage)
    if not own.exists() and not later.exists():
        weights = reference_of(results, stage + 1)
        folder = directory.stage(weights).policy
        if not folder.is_dir():
            raise UserError(f"{folder}: is missing, it holds the weights after stage {weights}")
        validation = validation_set(config)
        with frozen_policy(config, folder) as (policy, sampler):
            atlas = measure_atlas(config, policy, sampler, stage, validation)
        later.write(AtlasRecord(stage=stage, weights=weights, atlas=atlas))
    return known_atlas(directory, config, stage)


def _scores(
    config: RunConfig, results: Sequence[StageResult], record: AtlasRecord
) -> Iterator[ScoredConfiguration]:
    """Score the stage's configuration, the decided one, and what baselines would have decided."""
    atlas, domain, result = record.atlas, domain_of(config), results[-1]
    if result.stage == 0:
        yield _scored(atlas, domain, "initial", config.environment.initial)
        yield _scored(atlas, domain, "atlas", atlas.best(domain))
        return
    view = view_of(config, results, result.stage)
    settings = design_settings(config, view)
    # None of them reads the prompt, and the atlas is there.
    settings = settings.model_copy(update={"max_context_tokens": None, "budget": Budget()})

    def decided(engineer: Engineer) -> Configuration:
        return run_design(engineer, view, settings).configuration

    scored = partial(_scored, atlas, domain)
    if result.configuration is not None:
        yield scored("trained on", result.configuration)
    if result.decision is not None:
        yield scored(f"decided: {result.decision.engineer}", result.decision.configuration)
    source = AtlasSource(lambda: atlas, rollouts_per_atlas(config))
    yield scored("atlas", decided(AtlasEngineer(source)))
    yield scored("copy_previous", decided(CopyPreviousEngineer()))
    yield scored("rule", decided(RuleEngineer()))
    yield scored("uniform", decided(FixedEngineer(uniform_configuration(view))))
    drawn = [decided(RandomEngineer(number)) for number in range(RANDOM_DRAWS)]
    measured = [one for one in drawn if atlas.expected(one) is not None]
    yield scored(f"random (mean of {len(measured)})", *measured)


def _scored(
    atlas: DesignAtlas, domain: Domain, name: str, *configurations: Configuration
) -> ScoredConfiguration:
    return ScoredConfiguration(
        name=name,
        configurations=configurations,
        expected=atlas.expected(*configurations) if configurations else None,
        regret=atlas.regret(domain, *configurations) if configurations else None,
    )


def uniform_configuration(view: StageView) -> Configuration:
    """Give all groups equal shares, and every other knob half of its maximum, rounded up."""
    space = view.domain.space
    equal = apportion([1.0] * len(space.groups), space.units, space.to_units(space.min_share))
    half = {knob: space.maximum(knob) / 2 for knob in space.difficulty_knobs}
    knobs = {knob: space.from_units(space.to_units(value)) for knob, value in half.items()}
    return compose_configuration(view, by_group(space, equal), dict.fromkeys(space.groups, knobs))


def print_atlas(scored: ScoredAtlas) -> None:
    """Print p(1-p) by map size, hole ratio and kind of wait, and what configurations are worth."""
    atlas, record = scored.record.atlas, scored.record
    console.print(
        f"Atlas of stage {record.stage}, weights of stage {record.weights}: {atlas.rollouts} "
        f"answers to {atlas.count} boards, {atlas.answers} per board. p(1-p) with 95% intervals.\n"
    )
    waits = sorted({cell.knobs["wait_ratio"] for cell in atlas.cells})
    names = [f"{'wait' if wait else 'no wait'} needed" for wait in waits]
    table = new_table("Learnability", "map size", "hole_ratio", *names)
    rows: dict[tuple[str, float], dict[float, str]] = {}
    for cell in atlas.cells:
        words = rows.setdefault((cell.group, cell.knobs["hole_ratio"]), {})
        words[cell.knobs["wait_ratio"]] = str(cell.learnability or "no boards")
    for (group, holes), words in rows.items():
        table.add_row(f"{group}x{group}", f"{holes:g}", *(words[wait] for wait in waits))
    print_table(table)
    knobs = list(scored.config.lake.bounds.knobs)
    table = new_table("The best configuration on the grid", "map size", *knobs)
    for group, chosen in scored.best.values().items():
        table.add_row(f"{group}x{group}", *(f"{chosen[knob]:g}" for knob in knobs))
    print_table(table)
    table = new_table("Configurations", "", "expected p(1-p)", "regret")
    for row in scored.scores:
        table.add_row(row.name, *(str(value or "-") for value in (row.expected, row.regret)))
    print_table(table)


def atlas_json(scored: ScoredAtlas) -> dict[str, Any]:
    """Return everything that `print_atlas` prints as JSON."""
    record = scored.record
    cells = [
        one.model_dump(mode="json")
        | {
            "valid_rate": one.valid_rate,
            "learnability": (value := one.learnability) and value.model_dump(mode="json"),
        }
        for one in record.atlas.cells
    ]
    return {
        "stage": record.stage,
        "weights": record.weights,
        "answers": record.atlas.answers,
        "cells": cells,
        "best": scored.best.model_dump(mode="json"),
        "scores": [row.model_dump(mode="json") for row in scored.scores],
    }
