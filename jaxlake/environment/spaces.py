"""The spaces of actions and observations: their structure, shapes, dtypes and bounds."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

_MANY = 256


class Space(Protocol):
    """Something that values can be drawn from and tested against."""

    def sample(self, key: jax.Array) -> Any:
        """Draw a value."""

    def contains(self, value: Any) -> jax.Array:
        """Say whether a value has the right structure, shapes, dtypes and bounds: bool ()."""


@dataclass(frozen=True)
class Box:
    """Arrays of one shape and dtype between two bounds, both inclusive."""

    low: int | float
    high: int | float
    shape: tuple[int, ...]
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", jnp.dtype(self.dtype))
        if not self.low <= self.high:
            raise ValueError(f"low: got {self.low}, at most high ({self.high}) is allowed")

    def sample(self, key: jax.Array, batch: tuple[int, ...] = ()) -> jax.Array:
        """Draw an array of shape (*batch, *shape), every entry uniform and independent.

        Of few integers, several are drawn from one random word: the odds of two outcomes then
        differ by less than one in 2**8. One draw for a batch is cheaper than a key for each.
        """
        shape = (*batch, *self.shape)
        if jnp.issubdtype(self.dtype, jnp.floating):
            return jax.random.uniform(key, shape, self.dtype, self.low, self.high)
        count = int(self.high) - int(self.low) + 1
        if count <= _MANY:
            return _draw_few(key, count, shape, self.low).astype(self.dtype)
        if count == 1 << 32:
            return jax.lax.bitcast_convert_type(jax.random.bits(key, shape, jnp.uint32), self.dtype)
        drawn = jax.random.bits(key, shape, jnp.uint32) % jnp.uint32(count)
        return drawn.astype(self.dtype) + jnp.asarray(self.low, self.dtype)

    def contains(self, value: Any) -> jax.Array:
        """Say whether a value has the shape and dtype and lies within the bounds: bool ()."""
        if getattr(value, "dtype", None) != self.dtype or np.shape(value) != self.shape:
            return jnp.bool_(False)
        value = jnp.asarray(value)
        low, high = np.asarray(self.low, self.dtype), np.asarray(self.high, self.dtype)
        return jnp.all((value >= low) & (value <= high))


@dataclass(frozen=True)
class Discrete:
    """The numbers from 0 to n - 1, int32 ()."""

    n: int
    shape: ClassVar[tuple[int, ...]] = ()
    dtype: ClassVar[Any] = np.dtype(np.int32)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"n: got {self.n}, at least 1 is allowed")

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw a number, uniformly."""
        return jax.random.randint(key, (), 0, self.n, jnp.int32)

    def contains(self, value: Any) -> jax.Array:
        """Say whether a value is one of the numbers, of Python or any integer dtype (): bool ()."""
        value = value if isinstance(value, jax.Array) else np.asarray(value)
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.integer):
            return jnp.bool_(False)
        return jnp.asarray((value >= 0) & (value < self.n))


@dataclass(frozen=True)
class Tree:
    """Values that are pytrees: `spaces` has their structure, with a space in place of a leaf."""

    spaces: Any

    def sample(self, key: jax.Array) -> Any:
        """Draw every leaf."""
        leaves: list[Space]
        structure: Any
        leaves, structure = jax.tree.flatten(self.spaces)
        keys = jax.random.split(key, max(len(leaves), 1))
        drawn = [space.sample(k) for space, k in zip(leaves, keys, strict=False)]
        return structure.unflatten(drawn)

    def contains(self, value: Any) -> jax.Array:
        """Say whether a value has the structure and every leaf lies in its space: bool ()."""
        spaces = jax.tree.leaves(self.spaces)
        leaves = jax.tree.leaves(value)
        structures: list[Any] = [jax.tree.structure(tree) for tree in (self.spaces, value)]
        if structures[0] != structures[1]:
            return jnp.bool_(False)
        inside = [space.contains(leaf) for space, leaf in zip(spaces, leaves, strict=True)]
        return jnp.all(jnp.stack(inside)) if inside else jnp.bool_(True)


def convert_space(space: Space, library: Any) -> Any:
    """Convert a space into that of another library, given its module of spaces.

    Raises:
        ValueError: the space is a `Tree`: choose an observation that is one array.
    """
    if isinstance(space, Discrete):
        return library.Discrete(space.n)
    if isinstance(space, Box):
        return library.Box(space.low, space.high, space.shape, space.dtype)
    raise ValueError(f"space: got {space}, Box and Discrete are allowed; Flat() observes a Box")


def _draw_few(key: jax.Array, count: int, shape: tuple[int, ...], low: int | float) -> jax.Array:
    """Uniform int32 from low to low + count - 1: as many to a word as leave it 8 bits.

    A word is read as a fraction of 2**32: its product with `count` has a draw above the point and
    a fresh fraction below. Random words, not arithmetic, are what drawing costs.
    """
    per_word, odds = 1, count
    while per_word < math.prod(shape) and odds * count <= 1 << 24:
        per_word, odds = per_word + 1, odds * count
    words = jax.random.bits(key, (-(-math.prod(shape) // per_word),), jnp.uint32)
    draws = []
    for _ in range(per_word):
        above = (words >> 16) * jnp.uint32(count) + (((words & 0xFFFF) * jnp.uint32(count)) >> 16)
        draws.append(above >> 16)
        words *= jnp.uint32(count)
    drawn = jnp.stack(draws, axis=-1).reshape(-1)[: math.prod(shape)].reshape(shape)
    return drawn.astype(jnp.int32) + jnp.int32(low)
