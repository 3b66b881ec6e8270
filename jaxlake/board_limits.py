"""Which boards can exist at all: plain arithmetic, for those who ask before JAX is imported."""

import numpy as np

MIN_SIZE, MAX_SIZE = 2, 32
"""Sides of a board."""

MIN_AGENTS, MAX_AGENTS = 1, 5
"""Agents of a generated board: what `jaxlake.solve` is exact for."""

ROUNDING = np.float32(1e-4)
"""A number of holes this little below a whole number counts as that number."""


def holes_on_board(size: int, hole_ratio: float) -> int:
    """`jaxlake.hole_count` of one board on the host, without a device."""
    return int(np.floor(np.float32(hole_ratio) * np.float32(size * size) + ROUNDING))


def infeasibility(size: int, hole_ratio: float, num_agents: int) -> str | None:
    """Say why no board of this kind exists, or None if the agents fit (host side, no device).

    Fitting means only that starts and goals are distinct free cells: boards that fit may all be
    unsolvable, or none of them may need a wait. `generate` reports such shortfalls.
    """
    if size < MIN_SIZE:
        return f"size: got {size}, at least {MIN_SIZE} is needed"
    if not 0.0 <= hole_ratio <= 1.0:
        return f"hole_ratio: got {hole_ratio}, 0 to 1 are allowed"
    if num_agents < 1:
        return f"num_agents: got {num_agents}, at least 1 is needed"
    holes = holes_on_board(size, hole_ratio)
    free = size * size - holes
    if 2 * num_agents <= free:
        return None
    return (
        f"a {size}x{size} board with hole_ratio {hole_ratio:g} has {holes} holes and {free} free "
        f"cells, but {num_agents} agents need {2 * num_agents} for their starts and goals"
    )
