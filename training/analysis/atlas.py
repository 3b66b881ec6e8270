"""A stage's atlas after the fact: measured or read, and printed as a table of p(1-p)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from training.analysis.counterfactual import results_until
from training.analysis.evaluation import frozen_policy
from training.errors import UserError
from training.phases.atlas import known_atlas, measure_atlas
from training.phases.stage_results import StageResult, gate_record, reference_of
from training.phases.validate import validation_set
from training.run.directory import RunDirectory
from training.run.progress import console, new_table, print_table
from training.run.records import AtlasRecord
from training.schema import RunConfig


def stage_atlas(path: Path, stage: int) -> AtlasRecord:
    """Read the atlas of a stage, or measure it and write it to `atlases/S.json`.

    Stage 0 stands for what the run began with. A `UserError` says what is missing: the run, the
    stage or its weights.
    """
    directory = RunDirectory(path)
    config = directory.config()
    _ = config.lake  # only its boards are measured by cell
    results = results_until(directory, config, stage, first=0)
    if stage and results[stage].gate is None:
        results[stage] = replace(results[stage], gate=gate_record(config, results, stage))
    return _atlas_of(directory, config, results)


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


def print_atlas(record: AtlasRecord) -> None:
    """Print p(1-p) by map size, hole ratio and kind of wait."""
    atlas = record.atlas
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


def atlas_json(record: AtlasRecord) -> dict[str, Any]:
    """Return everything that `print_atlas` prints as JSON."""
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
    }
