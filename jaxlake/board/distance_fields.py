"""Single-agent distances by shift-and-min flooding."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxlake.runtime.batch_axes import merge_batch_axes

UNREACHABLE = 1 << 13
"""Distance of a cell from which the target can't be reached; two of them fit into int16."""

STEPS_PER_TEST = 4  # between two tests for changes, where a GPU waits for its host


def until_unchanged(
    step: Callable[[jax.Array], jax.Array], value: jax.Array, begin: jax.Array | bool = True
) -> jax.Array:
    """Repeat a step until it changes an array no more, if it is to `begin`, bool (), at all."""

    def several(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        before, _ = state
        after = jax.lax.fori_loop(0, STEPS_PER_TEST, lambda _, value: step(value), before)
        return after, jnp.any(after != before)

    state = (value, jnp.asarray(begin))
    return jax.lax.while_loop(lambda state: state[1], several, state)[0]


@jax.jit
def distances(blocked: jax.Array, target: jax.Array) -> jax.Array:
    """Count the steps that one agent alone needs from every cell to a target, int (2,).

    Cells that can't be entered are `blocked`, bool (N, N). There, and where there is no path, the
    result, int16 (N, N), is UNREACHABLE.
    """
    blocked, target = jnp.asarray(blocked)[None], jnp.asarray(target)[None]
    return _distances_batch(blocked, target)[0]


@merge_batch_axes
def _distances_batch(blocked: jax.Array, targets: jax.Array) -> jax.Array:
    """Flood boards bool (B, N, N) from targets int (B, 2) at once: int16 (B, N, N)."""
    rows = jnp.arange(blocked.shape[-1])[:, None]
    at_target = (rows == targets[:, 0])[:, None] & (rows == targets[:, 1])[None]
    return jnp.moveaxis(flood(jnp.moveaxis(~blocked, 0, -1), at_target), -1, 0)


def flood(free: jax.Array, sources: jax.Array) -> jax.Array:
    """Compute distances from the nearest source, for many boards at once along trailing axes.

    Cells that can be entered, and sources at distance 0, are bool (R, C, ...); sources that are not
    free do not count. Gives int16 (R, C, ...), UNREACHABLE where no source is reached.
    """
    far = jnp.int16(UNREACHABLE)

    def relax(field: jax.Array) -> jax.Array:
        rim = jnp.pad(field, [(1, 1), (1, 1)] + [(0, 0)] * (field.ndim - 2), constant_values=far)
        nearest = jnp.minimum(
            jnp.minimum(rim[:-2, 1:-1], rim[2:, 1:-1]), jnp.minimum(rim[1:-1, :-2], rim[1:-1, 2:])
        )
        return jnp.where(free, jnp.minimum(field, nearest + jnp.int16(1)), far)

    field = jnp.where(free & sources, jnp.int16(0), far)
    return until_unchanged(relax, field, jnp.any(field < far))
