"""Errors for insufficient memory, raised before the work starts if possible."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import jax

from training.errors import UserError
from training.policy.architectures import DecoderConfig
from training.policy.parameters import parameter_shapes

_GIB = 2**30
_EXHAUSTED = "RESOURCE_EXHAUSTED"  # in XLA's messages on all devices


@contextmanager
def report_out_of_memory(advice: str) -> Iterator[None]:
    """Convert out-of-memory errors to a `UserError` that ends with `advice`."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
        problem = " ".join(str(error).split())
        if isinstance(error, jax.errors.JaxRuntimeError) and _EXHAUSTED not in problem:
            raise
        raise UserError(f"memory is full ({problem or 'no message':.200}): {advice}") from error


def require_memory(name: str, shape: DecoderConfig) -> None:
    """Raise a `UserError` if a model's weights, in float32, exceed this machine's memory."""
    required_bytes = 4 * sum(prod(sizes) for sizes in parameter_shapes(shape).values())
    available_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if required_bytes > available_bytes:
        raise UserError(
            f"the weights of {name} must fit in this machine's memory of "
            f"{available_bytes / _GIB:,.1f} GiB, got {required_bytes // 4:,} weights, "
            f"{required_bytes / _GIB:,.1f} GiB"
        )
