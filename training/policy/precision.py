"""How exactly products are computed."""

from contextlib import AbstractContextManager, nullcontext

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


def products_of(dtype: DTypeLike) -> AbstractContextManager[object]:
    """Let products in here, and in their gradients, be as exact as the dtype of their factors."""
    exact = jnp.dtype(dtype) == jnp.float32
    return jax.default_matmul_precision("float32") if exact else nullcontext()
