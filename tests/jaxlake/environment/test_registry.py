"""Registered ids: the environments of `make`, and rejected ids."""

import hashlib
import re

import jax
import pytest

import jaxlake
from jaxlake.environment import LakeSpec, make, register, registered, spec
from tests.jaxlake.solver.boards import select_rows
from tests.paths import ROOT

POOL_DIGESTS = {
    "MAPF-FrozenLake-4x4-1ag-v0": "d026fa9ffec542ae",
    "MAPF-FrozenLake-4x4-2ag-v0": "a4236c7b510955db",
    "MAPF-FrozenLake-Dense-6x6-2ag-v0": "51fe8266b650f0d1",
    "MAPF-FrozenLake-5x5-3ag-v0": "ce4cee846fcb9919",
}
"""First digits of the SHA-256 of small pools' grids. A version with other pools must say so in
CHANGELOG.md."""


def test_documented_table_equals_the_registry():
    page = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(MAPF-\S+)` \| (.+) \|$", page, flags=re.MULTILINE)
    documented_rows = {id: cells.split(" | ") for id, cells in rows}
    specs = {id: spec(id) for id in registered()}
    assert len(rows) == len(documented_rows) > 15
    assert documented_rows == {
        id: [
            *(f"{lake.size}x{lake.size}", str(lake.num_agents)),
            *(f"{lake.hole_ratio:g}", f"{lake.wait_ratio:g}"),
        ]
        for id, lake in specs.items()
    }
    assert "An episode has at most 64 steps." in page
    for id, lake in specs.items():
        assert lake.max_steps == 64
        assert re.search(r"-(\d+)x\1-(\d)ag-v\d+$", id).groups() == (
            str(lake.size),
            str(lake.num_agents),
        )


@pytest.mark.slow
@pytest.mark.parametrize(("id", "digest"), POOL_DIGESTS.items())
def test_pool_of_an_id_is_frozen_per_version(id, digest):
    _, params = make(id, num_instances=32)
    boards = jax.device_get(params.instances)
    rows = [row for i in range(32) for row in jaxlake.format_grid(select_rows(boards, i))]
    assert hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16] == digest


def test_unknown_and_taken_ids_are_rejected():
    with pytest.raises(KeyError, match="MAPF-FrozenLake-10x10-4ag-v0"):
        make("MAPF-FrozenLake-10x10-9ag-v0")
    with pytest.raises(ValueError, match="num_instances must be at least 1, got 0"):
        make("MAPF-FrozenLake-4x4-2ag-v0", num_instances=0)
    with pytest.raises(ValueError, match="already registered"):
        register(LakeSpec(registered()[0], 4, 2))
    with pytest.raises(ValueError, match="must end in a version"):
        register(LakeSpec("Lake", 4, 2))
    with pytest.raises(ValueError, match=r"conflict must be one of .* got 'soft'"):
        make("MAPF-FrozenLake-4x4-2ag-v0", conflict="soft")
