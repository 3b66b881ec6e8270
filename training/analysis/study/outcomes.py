"""Every answer of a study in one small file, `outcomes.json.gz`: what all its rates follow from."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake.files import write_bytes_whole
from training.analysis.study.reading import KINDS, METRICS, FinishedRun


def write_outcomes(path: Path, runs: Sequence[FinishedRun]) -> None:
    """Write the answers of finished runs; equal runs give equal bytes.

    `boards` lists the validation boards: grid, size, tenth of holes, whether a wait is needed.
    `runs` has one string per run and stage with a character per board: in `kinds` the place of
    what became of the answer in the list `kinds`, in the others 1 where it holds, else 0. A run's
    `configurations`, of stages 1 on, say what it was trained on, by map size and knob.
    """
    boards = runs[0].boards
    content: dict[str, Any] = {
        "boards": [
            {"grid": list(grid), "size": int(size), "hole_tenth": int(tenth), "needs_wait": bool(w)}
            for grid, size, tenth, w in zip(
                boards.grids, boards.size, boards.hole_tenth, boards.needs_wait, strict=True
            )
        ],
        "kinds": list(KINDS),
        "runs": [_run(run) for run in runs],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_whole(path, gzip.compress(json.dumps(content).encode(), mtime=0))


def _run(run: FinishedRun) -> dict[str, Any]:
    metrics = {
        name: [_characters(row) for row in run.scores[number]]
        for number, name in enumerate(METRICS)
    }
    kinds = [_characters(row) for row in run.kinds]
    trained_on = {"configurations": [dict(one) for one in run.configurations]}
    return {"engineer": run.engineer, "seed": run.seed, "kinds": kinds} | metrics | trained_on


def _characters(row: np.ndarray) -> str:
    return "".join(map(str, row.astype(int).tolist()))
