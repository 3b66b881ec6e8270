"""Pools of random boards for the tests of the environment."""

import random
from collections.abc import Callable

import pytest

import jaxlake
from benchmarks import oracles
from tests.jaxlake.solver.boards import instances


@pytest.fixture(scope="session")
def pool_of() -> Callable[..., tuple[list[list[str]], jaxlake.Instance]]:
    """Random grids and their batch: (seed, count, sizes, agents, max_size, max_agents)."""

    def make(seed, count, sizes, agents, max_size, max_agents, holes=0.25):
        rng = random.Random(seed)
        grids = [
            oracles.random_grid(rng, rng.choice(sizes), rng.uniform(0, holes), rng.choice(agents))
            for _ in range(count)
        ]
        return grids, instances(grids, max_size, max_agents)

    return make
