"""Programs that compute gradients, compiled as a CPU runs them fastest."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax

from jaxlake.runtime.search_flags import TRIED_JAXLIB

LIBRARY_FUSIONS = "xla_cpu_experimental_ynn_fusion_type"
"""An option of XLA: which operations of a CPU's programs are handed to the library YNNPACK."""


def jit_gradients(function: Callable[..., Any], **options: Any) -> Any:
    """Return `jax.jit` of a function that computes gradients; the options are those of `jax.jit`.

    Where JAX computes on a CPU, XLA hands nothing to YNNPACK. Its sums over an axis, of which the
    gradients of norms and softmax have many, are slower than XLA's own loops: with it the shared
    update took a fifth longer. What the user sets in XLA_FLAGS wins, and a jaxlib that was never
    tried gets nothing, because it may not know the option.
    """
    on_cpu = jax.default_backend() == "cpu" and version("jaxlib").startswith(TRIED_JAXLIB)
    if on_cpu and LIBRARY_FUSIONS not in os.environ.get("XLA_FLAGS", ""):
        options["compiler_options"] = {LIBRARY_FUSIONS: ""}
    return jax.jit(function, **options)
