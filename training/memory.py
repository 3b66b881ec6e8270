"""Memory that isn't there: said in a line, and before the work where it can be known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import jax

from training.errors import UserError
from training.policy.architectures import DecoderConfig
from training.policy.parameters import parameter_shapes

_GIB = 2**30
_FULL = "RESOURCE_EXHAUSTED"  # how XLA's messages begin, whichever device is full


@contextmanager
def full_memory_told(advice: str) -> Iterator[None]:
    """Turn the error of a full device or machine into a `UserError` that ends with `advice`."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        problem = " ".join(str(error).split())
        if isinstance(error, jax.errors.JaxRuntimeError) and _FULL not in problem:
            raise
        raise UserError(f"memory is full ({problem or 'no message':.200}): {advice}") from error


def require_memory(name: str, shape: DecoderConfig) -> None:
    """Raise a `UserError` if a model's weights, in float32, exceed this machine's memory."""
    needed = 4 * sum(prod(sizes) for sizes in parameter_shapes(shape).values())
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise UserError(
            f"{name}: got a model of {needed // 4:,} weights, allowed is what this machine's "
            f"memory holds: they take {needed / _GIB:,.1f} GiB, {there / _GIB:,.1f} are there"
        )
