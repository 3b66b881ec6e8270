"""Teams of neighbouring lanes that search a tree together, and what they add up."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxlake.solver.chunks import TEAM_LANES
from jaxlake.solver.space_time import NEVER

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
        return self._reduce(flags, 0, jnp.max) != 0

    def sum(self, values: jax.Array) -> jax.Array:
        """Add up the values of a team."""
        return self._reduce(values, 0, jnp.sum)

    def least(self, values: jax.Array) -> jax.Array:
        """Return the least time of a team."""
        return self._reduce(values, NEVER, jnp.min)

    def count_before(self, flags: jax.Array) -> jax.Array:
        """Count the lanes of the same team that come before and are marked."""
        before = jnp.cumsum(flags) - flags
        for team in range(1, LANES // TEAM_LANES):
            earlier = jnp.sum(jnp.where(self.team < team, flags, 0))
            before = jnp.where(self.team == team, before - earlier, before)
        return jnp.where(self.size > 1, before, 0)

    def _reduce(
        self, values: jax.Array, unit: int, reduce: Callable[[jax.Array], jax.Array]
    ) -> jax.Array:
        result = values
        for team in range(LANES // TEAM_LANES):
            own = (self.size > 1) & (self.team == team)
            result = jnp.where(own, reduce(jnp.where(own, values, unit)), result)
        return result
