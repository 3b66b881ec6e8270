"""Action and observation spaces."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np


class Space(Protocol):
    """Protocol of spaces: sets of values to sample from and to test for membership."""

    def sample(self, key: jax.Array) -> Any:
        """Draw a value."""

    def contains(self, value: Any) -> jax.Array:
        """Return whether a value has the right structure, shapes, dtypes and bounds, bool ()."""


@dataclass(frozen=True)
class Box:
    """Arrays of a fixed shape and dtype, with inclusive bounds `low` and `high`."""

    low: int | float
    high: int | float
    shape: tuple[int, ...]
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", jnp.dtype(self.dtype))
        if not self.low <= self.high:
            raise ValueError(f"low must be at most high ({self.high}), got {self.low}")

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw an array of independent, uniform entries (integers with a bias below 2**-32)."""
        if jnp.issubdtype(self.dtype, jnp.floating):
            return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)
        bits = jax.random.bits(key, self.shape, jnp.uint32)
        num_values = int(self.high) - int(self.low) + 1
        if num_values < 1 << 32:
            bits %= jnp.uint32(num_values)
        return bits.astype(self.dtype) + jnp.asarray(self.low, self.dtype)

    def contains(self, value: Any) -> jax.Array:
        """Return whether a value has the shape and dtype and lies within the bounds, bool ()."""
        if getattr(value, "dtype", None) != self.dtype or np.shape(value) != self.shape:
            return jnp.bool_(False)
        value = jnp.asarray(value)
        low, high = np.asarray(self.low, self.dtype), np.asarray(self.high, self.dtype)
        return jnp.all((value >= low) & (value <= high))


@dataclass(frozen=True)
class Discrete:
    """The integers from 0 to n - 1, int32 ()."""

    n: int
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[Any] = np.dtype(np.int32)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n must be at least 1, got {self.n}")

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw a uniform integer."""
        return jax.random.randint(key, (), 0, self.n, jnp.int32)

    def contains(self, value: Any) -> jax.Array:
        """Return whether a scalar of any integer type is in the range, bool ()."""
        value = value if isinstance(value, jax.Array) else np.asarray(value)
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.integer):
            return jnp.bool_(False)
        return jnp.asarray((value >= 0) & (value < self.n))


@dataclass(frozen=True)
class Tree:
    """Pytrees of arrays; `spaces` is a pytree of the same structure with a space per leaf."""

    spaces: Any

    def sample(self, key: jax.Array) -> Any:
        """Draw every leaf."""
        leaves: list[Space]
        structure: Any
        leaves, structure = jax.tree.flatten(self.spaces)
        keys = jax.random.split(key, max(len(leaves), 1))
        samples = [space.sample(k) for space, k in zip(leaves, keys, strict=False)]
        return structure.unflatten(samples)

    def contains(self, value: Any) -> jax.Array:
        """Return whether a value has the structure and every leaf lies in its space, bool ()."""
        spaces = jax.tree.leaves(self.spaces)
        leaves = jax.tree.leaves(value)
        structures: list[Any] = [jax.tree.structure(tree) for tree in (self.spaces, value)]
        if structures[0] != structures[1]:
            return jnp.bool_(False)
        flags = [space.contains(leaf) for space, leaf in zip(spaces, leaves, strict=True)]
        return jnp.all(jnp.stack(flags)) if flags else jnp.bool_(True)


def convert_space(space: Space, library: Any) -> Any:
    """Convert a space to the corresponding class of another library.

    Args:
        space: a `Box` or a `Discrete`.
        library: the module with that library's `Box` and `Discrete`.

    Raises:
        ValueError: the space is a `Tree`; observations must be a single array.
    """
    if isinstance(space, Discrete):
        return library.Discrete(space.n)
    if isinstance(space, Box):
        return library.Box(space.low, space.high, space.shape, space.dtype)
    raise ValueError(
        f"space must be a Box or a Discrete, got {space}; the observation Flat() has a Box"
    )


def convert_spaces(spaces: Mapping[str, Space], library: Any) -> dict[str, Any]:
    """Convert the spaces of several agents; see `convert_space`."""
    return {agent: convert_space(space, library) for agent, space in spaces.items()}
