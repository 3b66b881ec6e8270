"""Rates of cells are means over the boards of each kind."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from benchmarks.base_model_cells import cell_rates, main
from jaxlake.board.grids import parse_grid
from jaxlake.solver import solve
from training.rollout.instances import InstanceSet

_EASY = ["S F s", "F F F", "g F G"]
_HOLES = ["S H s", "F F F", "G F g"]


def test_cells_are_told_apart_by_holes_and_waits_and_averaged_over_boards() -> None:
    boards = [parse_grid(grid) for grid in (_EASY, _HOLES, _HOLES)]
    instances = jax.tree.map(lambda *leaves: np.stack(leaves), *boards)
    waits = replace(
        jax.device_get(jax.vmap(solve)(instances)), needs_wait=np.array([True, False, False])
    )
    cells = cell_rates(InstanceSet(instances, waits), np.array([0.0, 0.25, 0.75]))
    assert [(one.size, one.holes, one.needs_wait, one.boards) for one in cells] == [
        (3, 0, True, 1),
        (3, 1, False, 2),
    ]
    assert cells[0].valid == cells[0].low == cells[0].high == 0
    assert (cells[1].valid, cells[1].low, cells[1].high) == (0.5, 0.25, 0.75)


@pytest.mark.slow
def test_the_command_answers_boards_and_prints_a_row_for_each_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["sampling.engine=jax", "validation.sizes=[3]", "validation.hole_ratios=[0.2]"]
    small += ["validation.wait_ratios=[0.5]", "validation.per_cell=6"]
    file = tmp_path / "cells.json"
    main(["configs/miniature.yaml", "--answers", "2", "--set", *small, "--json", str(file)])
    rows = [line for line in capsys.readouterr().out.splitlines() if "3x3" in line]
    cells = json.loads(file.read_text())["cells"]
    assert [one["boards"] for one in cells] == [3, 3]
    assert len(rows) == 2
    for row, cell in zip(rows, cells, strict=True):
        assert f"{100 * cell['valid']:.1f}" in row
