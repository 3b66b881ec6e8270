"""Single-agent distances on a grid.

Each iteration sets every cell to at most the minimum over its neighbours plus 1, until nothing
changes. This needs only shifts and minima, which vectorise over cells and boards.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxlake.runtime.batch_axes import merge_batch_axes

UNREACHABLE = 1 << 13
"""Distance of unreachable cells; int16 holds the sum of two of them."""

STEPS_PER_TEST = 4  # steps between convergence tests; on a GPU each test synchronises with the host


def iterate_until_stable(
    step: Callable[[jax.Array], jax.Array], value: jax.Array, enabled: jax.Array | bool = True
) -> jax.Array:
    """Apply `step` until the array stops changing, or not at all if `enabled` is False, bool ()."""

    def advance_several(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        old_value, _ = state
        new_value = jax.lax.fori_loop(0, STEPS_PER_TEST, lambda _, value: step(value), old_value)
        return new_value, jnp.any(new_value != old_value)

    state = (value, jnp.asarray(enabled))
    return jax.lax.while_loop(lambda state: state[1], advance_several, state)[0]


@jax.jit
def distances(blocked: jax.Array, target: jax.Array) -> jax.Array:
    """Return the number of steps from every cell to a target for a single agent.

    Args:
        blocked: bool (N, N), cells that the agent cannot enter.
        target: int (2,), row and column of the target.

    Returns:
        int16 (N, N), UNREACHABLE on blocked cells and on cells without a path to the target.
    """
    blocked, target = jnp.asarray(blocked)[None], jnp.asarray(target)[None]
    return _distances_batch(blocked, target)[0]


@merge_batch_axes
def _distances_batch(blocked: jax.Array, targets: jax.Array) -> jax.Array:
    """Return distances int16 (B, N, N) on boards bool (B, N, N) to targets int (B, 2)."""
    rows = jnp.arange(blocked.shape[-1])[:, None]
    at_target = (rows == targets[:, 0])[:, None] & (rows == targets[:, 1])[None]
    return jnp.moveaxis(flood(jnp.moveaxis(~blocked, 0, -1), at_target), -1, 0)


def flood(free: jax.Array, sources: jax.Array) -> jax.Array:
    """Return the distance of each cell from the nearest source. Trailing axes are boards.

    Args:
        free: bool (R, C, ...), cells that can be entered.
        sources: bool (R, C, ...), cells at distance 0. Sources that are not free are ignored.

    Returns:
        int16 (R, C, ...), UNREACHABLE on cells without a path to a source.
    """
    far = jnp.int16(UNREACHABLE)

    def relax(field: jax.Array) -> jax.Array:
        widths = [(1, 1), (1, 1)] + [(0, 0)] * (field.ndim - 2)
        padded = jnp.pad(field, widths, constant_values=far)
        vertical = jnp.minimum(padded[:-2, 1:-1], padded[2:, 1:-1])
        horizontal = jnp.minimum(padded[1:-1, :-2], padded[1:-1, 2:])
        neighbour = jnp.minimum(vertical, horizontal)
        return jnp.where(free, jnp.minimum(field, neighbour + jnp.int16(1)), far)

    field = jnp.where(free & sources, jnp.int16(0), far)
    return iterate_until_stable(relax, field, jnp.any(field < far))
