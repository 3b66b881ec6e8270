"""Availability of Pallas's Triton backend, which JAX has deprecated since 0.11."""

import importlib
import warnings
from functools import cache


@cache
def has_triton_backend() -> bool:
    """Return whether this JAX can compile Pallas kernels with Triton; warn once if it cannot."""
    try:
        importlib.import_module("jax.experimental.pallas.triton")  # as slow as importing JAX
    except ImportError:
        warnings.warn(
            "jax.experimental.pallas.triton cannot be imported from this version of JAX, so the "
            "solver and attention use slower XLA programs on GPUs",
            stacklevel=2,
        )
        return False
    return True
