"""The chunk program agrees with single calls for any chunk size and devices."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxlake import generate, lake_params, tabulate
from jaxlake.environment.conflict_policies import ConflictPolicy
from jaxlake.policies import RandomPolicy, ShortestPathPolicy, roll_out
from jaxlake.statistics.summaries import summary_columns
from jaxlake.sweeps.program import ChunkOptions, chunk_program
from tests.jaxlake.solver.boards import assert_same, select_rows
from tests.paths import ROOT

pytestmark = pytest.mark.slow  # the program takes longer to compile than a test may take

OPTIONS = ChunkOptions(
    policies=(RandomPolicy(), ShortestPathPolicy()),
    boards=8,
    max_size=4,
    max_agents=2,
    horizon=16,
    max_steps=16,
    conflict=ConflictPolicy.FAIL,
    max_candidates=500,
    tables=True,
)
KEY = jax.random.key(5)
HOLE_RATIOS = [[0.1], [0.2], [0.3], [0.9], [0.25]]  # the fourth kind has no boards
WAIT_RATIOS = [[0.0], [0.25], [0.5], [0.0], [1.0]]
FIRST_NUMBER = 70_000


def _make_request(rows=slice(None)):
    params = [lake_params(4, *ratios) for ratios in zip(HOLE_RATIOS, WAIT_RATIOS, strict=True)]
    stacked_params = jax.tree.map(lambda *leaves: np.stack(leaves)[rows], *params)
    numbers = np.arange(FIRST_NUMBER, FIRST_NUMBER + len(HOLE_RATIOS), dtype=np.uint32)
    return KEY, stacked_params, numbers[rows]


@pytest.fixture(scope="module")
def result():
    return jax.device_get(chunk_program(OPTIONS, (jax.devices()[0],))(*_make_request()))


def test_chunk_program_matches_single_calls(result):
    boards_key, play_key = jax.random.split(KEY)
    _, params, numbers = _make_request()
    columns = summary_columns(result.summaries)
    shapes = {"max_size": 4, "horizon": 16, "max_candidates": 500}
    for c, number in enumerate(numbers):
        lakes = generate(
            jax.random.fold_in(boards_key, number), select_rows(params, c), 8, **shapes
        )
        for p, policy in enumerate(OPTIONS.policies):
            key = jax.random.fold_in(play_key, number)
            options = {"max_steps": 16, "solutions": lakes.solutions}
            outcomes = roll_out(key, policy, lakes.instances, **options).outcome
            table = tabulate(
                lakes.instances, lakes.solutions.needs_wait, outcomes, lakes.filled, lakes.solutions
            )
            assert_same(select_rows(select_rows(result.tables, c), p), table)
            counts = {name: int(column[c, p]) for name, column in columns.items()}
            assert counts["boards"] == lakes.filled.sum() == 8 - counts["missing"]
            assert counts["valid"] == (outcomes.valid & lakes.filled).sum()
            assert counts["candidates"] == lakes.candidates.sum()
    assert columns["missing"][:, 0].tolist()[3] == 8
    assert len({tuple(row) for row in columns["sum_of_costs"].tolist()}) > 2


@pytest.mark.parametrize("rows", [slice(1, 2), slice(2, 5)])
def test_chunk_program_rows_are_independent_of_the_chunk(result, rows):
    part_result = chunk_program(OPTIONS, (jax.devices()[0],))(*_make_request(rows))
    assert_same(part_result, jax.tree.map(lambda leaf: leaf[rows], result))


@pytest.mark.parametrize("num_devices", [2, 8])
def test_chunk_program_is_equal_on_several_devices(result, num_devices, tmp_path):
    program = """
import sys
import jax, numpy as np
from jaxlake.sweeps.program import chunk_program
from tests.jaxlake.sweeps.test_program import OPTIONS, _make_request
assert len(jax.devices()) == int(sys.argv[2])
result = chunk_program(OPTIONS, tuple(jax.devices()))(*_make_request())
assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(result))
np.savez(sys.argv[1], *jax.tree.leaves(result))
"""
    file = tmp_path / "result.npz"
    flags = f"--xla_force_host_platform_device_count={num_devices}"
    subprocess.run(
        [sys.executable, "-c", program, str(file), str(num_devices)],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
        check=True,
        timeout=300,
    )
    with np.load(file) as arrays:
        assert_same(jax.tree.leaves(result), list(arrays.values()))
