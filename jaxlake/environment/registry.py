"""Registry of versioned environment ids; an id names the same boards within a jaxlake version."""

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from jaxlake.environment.lake_environment import LakeEnvironment
from jaxlake.environment.params import EnvParams, env_params
from jaxlake.errors import did_you_mean
from jaxlake.generator import lake_params
from jaxlake.generator.generation import generate_quietly
from jaxlake.runtime.random_keys import threefry_key
from jaxlake.solver import DEFAULT_HORIZON


@dataclass(frozen=True)
class LakeSpec:
    """Specification of an id: the boards of its pool and the time limit."""

    id: str
    size: int  # side of the boards; they are not padded
    num_agents: int  # on every board
    hole_ratio: float = 0.2  # share of all cells
    wait_ratio: float = 0.25  # share of the pool that needs a wait
    max_steps: int = DEFAULT_HORIZON


_SPECS: dict[str, LakeSpec] = {}


def register(spec: LakeSpec) -> None:
    """Register an id for `make`.

    Args:
        spec: the specification; its id ends in a version such as -v0.

    Raises:
        ValueError: the id is taken, or does not end in its version.
    """
    version = spec.id.rpartition("-v")[2]
    if not version.isdecimal() or version == spec.id:
        raise ValueError(f"id must end in a version such as -v0, got {spec.id!r}")
    if spec.id in _SPECS:
        raise ValueError(f"id must be new, got {spec.id!r}, which is already registered")
    _SPECS[spec.id] = spec


def registered() -> tuple[str, ...]:
    """Return the registered ids, in order of registration."""
    return tuple(_SPECS)


def spec(id: str) -> LakeSpec:
    """Return the specification of an id.

    Raises:
        KeyError: the id is not registered.
    """
    if id not in _SPECS:
        raise KeyError(
            f"id must be one of {', '.join(_SPECS)}, got {id!r}{did_you_mean(id, _SPECS)}"
        )
    return _SPECS[id]


def make(
    id: str,
    *,
    num_instances: int = 1024,
    key: jax.Array | None = None,
    max_steps: jax.Array | int | None = None,
    **options: Any,
) -> tuple[LakeEnvironment, EnvParams]:
    """Return the environment of an id and its parameters, with a pool of generated boards.

    To use your own boards, call `LakeEnvironment` and `env_params`.

    Args:
        id: one of `registered()`.
        num_instances: number of boards to generate; boards that could not be made are left out.
        key: typed PRNG key of the pool; `jax.random.key(0)` if None.
        max_steps: time limit in steps; the id's default if None.
        options: `conflict`, `observation` and `reward` of `LakeEnvironment`.

    Returns:
        (environment, params).

    Raises:
        KeyError: the id is not registered.
        ValueError: no board could be made; or as for `LakeEnvironment` and `env_params`.
    """
    lake_spec = spec(id)
    if num_instances < 1:
        raise ValueError(f"num_instances must be at least 1, got {num_instances}")
    environment = LakeEnvironment(**options)
    max_steps = lake_spec.max_steps if max_steps is None else max_steps
    _report_compilation(id)
    key = threefry_key(0) if key is None else key
    params = lake_params(
        lake_spec.size, lake_spec.hole_ratio, lake_spec.wait_ratio, lake_spec.num_agents
    )
    # The horizon is fixed, so that an id always names the same boards.
    pool = generate_quietly(key, params, num_instances, horizon=DEFAULT_HORIZON)
    if not bool(jnp.any(pool.filled)):
        raise ValueError(f"no board could be generated for {id}, num_instances is {num_instances}")
    return environment, env_params(pool.instances, max_steps=max_steps, filled=pool.filled)


@cache
def _report_compilation(id: str) -> None:
    print(f"jaxlake: compiling the board generator for {id}", file=sys.stderr, flush=True)


# This order is the order of `registered()`.
for _agents, _sizes in (
    (2, (4, 8, 10)),
    (3, (10,)),
    (4, (6, 10)),
    (5, (10,)),
    (2, (3, 5, 6, 16)),
    (3, (5, 8)),
    (4, (8,)),
    (5, (8,)),
):
    for _size in _sizes:
        register(LakeSpec(f"MAPF-FrozenLake-{_size}x{_size}-{_agents}ag-v0", _size, _agents))
for _size in (4, 8, 10):  # a single agent never needs a wait
    register(LakeSpec(f"MAPF-FrozenLake-{_size}x{_size}-1ag-v0", _size, 1, wait_ratio=0.0))
for _size in (6, 10):
    _id = f"MAPF-FrozenLake-Dense-{_size}x{_size}-2ag-v0"
    register(LakeSpec(_id, _size, 2, hole_ratio=0.35, wait_ratio=0.5))
