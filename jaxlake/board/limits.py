"""Limits of boards, and checks against them. This module does not import JAX."""

from typing import Any

import numpy as np

MIN_SIZE, MAX_SIZE = 2, 32
"""Smallest and largest side of a board."""

MIN_AGENTS, MAX_AGENTS = 1, 5
"""Smallest and largest number of agents of a generated board; `jaxlake.solve` is exact for them."""

ROUNDING_TOLERANCE = np.float32(1e-4)
"""A product of hole ratio and cells that is this close below an integer counts as the integer."""


def holes_on_board(size: int, hole_ratio: float) -> int:
    """Return `jaxlake.hole_count` of one board, computed on the host."""
    return int(np.floor(np.float32(hole_ratio) * np.float32(size * size) + ROUNDING_TOLERANCE))


def infeasibility(size: int, hole_ratio: float, num_agents: int) -> str | None:
    """Return why no board of this kind exists, or None if the agents fit (computed on the host).

    Agents fit if there are enough free cells for distinct starts and goals. It is still possible
    that all such boards are unsolvable, or that none of them needs a wait. `generate` reports the
    missing boards.

    Args:
        size: Side of the board.
        hole_ratio: Share of all cells that are holes, 0 to 1.
        num_agents: Number of agents, at least 1.
    """
    if size < MIN_SIZE:
        return f"size must be at least {MIN_SIZE}, got {size}"
    if not 0.0 <= hole_ratio <= 1.0:
        return f"hole_ratio must be in [0, 1], got {hole_ratio}"
    if num_agents < 1:
        return f"num_agents must be at least 1, got {num_agents}"
    num_holes = holes_on_board(size, hole_ratio)
    free = size * size - num_holes
    if 2 * num_agents <= free:
        return None
    return (
        f"a {size}x{size} board with hole_ratio {hole_ratio:g} has {num_holes} holes and {free} "
        f"free cells, but {num_agents} agents need {2 * num_agents} for their starts and goals"
    )


def validate_lake_params(
    size: Any,
    hole_ratio: Any,
    wait_ratio: Any,
    num_agents: Any,
    data_ratio: Any,
) -> dict[str, np.ndarray]:
    """Return the checked arguments of `jaxlake.lake_params` as arrays.

    Returns:
        Arrays by field name, int32 or float32, of shapes that broadcast to (..., S).

    Raises:
        ValueError: A value is out of range or the shapes differ; the message names the field.
    """
    fields = {
        "size": _check_numbers("size", size, MIN_SIZE, MAX_SIZE, is_integer=True),
        "data_ratio": _check_numbers("data_ratio", data_ratio, 0, 1e6),
        "hole_ratio": _check_numbers("hole_ratio", hole_ratio, 0, 1),
        "wait_ratio": _check_numbers("wait_ratio", wait_ratio, 0, 1),
        "num_agents": _check_numbers(
            "num_agents", num_agents, MIN_AGENTS, MAX_AGENTS, is_integer=True
        ),
    }
    _check_shapes({name: values.shape for name, values in fields.items()})
    is_invalid = (fields["num_agents"] == 1) & (fields["wait_ratio"] > 0)
    if is_invalid.any():
        ratio = np.broadcast_to(fields["wait_ratio"], is_invalid.shape)[is_invalid][0]
        raise ValueError(
            f"wait_ratio must be 0 for one agent, which never needs to wait, got {ratio:g}"
        )
    if not fields["data_ratio"].any(axis=-1).all():
        raise ValueError("data_ratio must be positive for at least one component, got 0 for all")
    return fields


def _check_shapes(shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise `ValueError` if the shapes of the fields do not broadcast."""
    if all(len(shape) == 1 for shape in shapes.values()):
        S = max(shape[0] for shape in shapes.values())
        for name, (length,) in shapes.items():
            if length not in (1, S):
                raise ValueError(f"{name} must have 1 or {S} values, got {length}")
    common_shape: tuple[int, ...] = ()
    for name, shape in shapes.items():
        try:
            common_shape = np.broadcast_shapes(common_shape, shape)
        except ValueError:
            raise ValueError(
                f"{name} must have a shape that broadcasts with {common_shape}, that of the other "
                f"fields, got {shape}"
            ) from None


def _check_numbers(
    name: str, value: object, low: float, high: float, *, is_integer: bool = False
) -> np.ndarray:
    """Return the numbers as int32 or float32, with at least one axis."""
    values = np.atleast_1d(np.asarray(value))
    if not values.size or values.dtype.kind not in ("iu" if is_integer else "iuf"):
        kind = "an integer" if is_integer else "a number"
        raise ValueError(f"{name} must be {kind} or a sequence of them, got {value!r}")
    is_invalid = ~((values >= low) & (values <= high))
    if is_invalid.any():
        number = values[is_invalid][0].item()
        raise ValueError(f"{name} must be in [{low:g}, {high:g}], got {number}")
    return values.astype(np.int32 if is_integer else np.float32)
