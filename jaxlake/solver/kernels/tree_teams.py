"""Teams of neighbouring lanes that search a tree together, and what they add up."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.chunks import TEAM_LANES

LANES = 32
"""Lanes of a program: a warp of a GPU."""


class Teams(NamedTuple):
    """As `constraint_tree._Teams`: of one lane each, or of `TEAM_LANES`."""

    size: jax.Array  # int32, how many lanes a team has
    team: jax.Array  # int32, which team a lane is in
    rank: jax.Array  # int32, its place there
    split: jax.Array  # int32 ()

    def any(self, flags: jax.Array) -> jax.Array:
        """Tell, as bool, whether any lane of the team is marked, int32."""
        return self._reduce(flags, jnp.max) != 0

    def sum(self, values: jax.Array) -> jax.Array:
        """Add up the values of a team."""
        return self._reduce(values, jnp.sum)

    def least(self, values: jax.Array) -> jax.Array:
        """Return the least value of a team."""
        return self._reduce(values, jnp.min)

    def count_before(self, flags: jax.Array) -> jax.Array:
        """Count the lanes of the same team that come before and are marked."""
        before = jnp.cumsum(flags) - flags
        # It never falls, so the least one is that of the team's first lane.
        return before - self.least(before)

    def _reduce(self, values: jax.Array, reduce: Callable[..., jax.Array]) -> jax.Array:
        teams = values.reshape(-1, TEAM_LANES)
        reduced = jnp.broadcast_to(reduce(teams, axis=1)[:, None], teams.shape)
        return jnp.where(self.size > 1, reduced.reshape(values.shape), values)
