"""Compilation of gradient computations with the fastest options for CPUs."""

import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax

from jaxlake.runtime.search_flags import TESTED_JAXLIB

YNN_FUSION_OPTION = "xla_cpu_experimental_ynn_fusion_type"
"""XLA option that selects the CPU operations for the library YNNPACK."""


def jit_gradients(function: Callable[..., Any], **options: Any) -> Any:
    """Return `jax.jit(function, **options)`, compiled without YNNPACK on CPUs.

    YNNPACK's reductions are slower than XLA's loops, and the gradients of norms and softmax have
    many of them. XLA_FLAGS takes precedence. Untested versions of jaxlib keep their defaults,
    because they may not support the option.
    """
    is_cpu = jax.default_backend() == "cpu" and version("jaxlib").startswith(TESTED_JAXLIB)
    if is_cpu and YNN_FUSION_OPTION not in os.environ.get("XLA_FLAGS", ""):
        options["compiler_options"] = {YNN_FUSION_OPTION: ""}
    return jax.jit(function, **options)
