"""CPU settings of JAX for the lake: one device per core, and XLA flags for board searches."""

import os
from collections.abc import Callable
from functools import cached_property, update_wrapper
from importlib.metadata import version
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from jaxlake.runtime.search_flags import FLAGS_FOR_SEARCHES as FLAGS_FOR_SEARCHES
from jaxlake.runtime.search_flags import FUSION_EMITTERS_FLAG, LLVM_LEVEL_FLAG, TESTED_JAXLIB
from jaxlake.runtime.search_flags import add_search_flags as add_search_flags

P = ParamSpec("P")
R = TypeVar("R")


def use_all_cores(devices: int | None = None) -> int:
    """Make JAX use one CPU device per core, and speed up board searches.

    Call it right after the imports. `generate_sharded`, `sweep` and `jax.sharding` distribute work
    over the devices. XLA receives the flags of `add_search_flags` for everything that this process
    compiles for CPUs, so a model trained in the same process may be slower. GPUs and TPUs are not
    affected.

    Args:
        devices: Number of CPU devices, at least 1. Defaults to the cores available to this process.

    Returns:
        The number of CPU devices.

    Raises:
        ValueError: `devices` is below 1.
        RuntimeError: JAX has already created its devices.
    """
    num_devices = len(os.sched_getaffinity(0)) if devices is None else devices
    if num_devices < 1:
        raise ValueError(f"devices must be at least 1, got {devices}")
    try:
        jax.config.update("jax_num_cpu_devices", num_devices)
    except RuntimeError as error:
        raise RuntimeError(
            "use_all_cores must be called before JAX creates its devices, right after the imports"
        ) from error
    add_search_flags(os.environ)
    return num_devices


class SearchProgram(Generic[P, R]):
    """Function compiled as by `jax.jit`, but with flags for board searches on CPUs.

    The flags cut compile time by a third. Inside another jitted function, the flags of the outer
    function apply. Flags that the user sets in XLA_FLAGS take precedence. Untested versions of
    jaxlib get no flags.
    """

    def __init__(
        self, function: Callable[P, R], *, fast_compile: bool = False, **options: Any
    ) -> None:
        self._function, self._options = function, options
        self._default = self._flagged = jax.jit(function, **options)
        if version("jaxlib").startswith(TESTED_JAXLIB):
            flags: Any = {FUSION_EMITTERS_FLAG: False} | (
                {LLVM_LEVEL_FLAG: 1} if fast_compile else {}
            )
            self._flagged = jax.jit(function, compiler_options=flags, **options)
        update_wrapper(self, function)

    @cached_property
    def fast_compile(self) -> "SearchProgram[P, R]":
        """The function at LLVM level 1, which compiles faster and runs up to 1.7x slower."""
        return SearchProgram(self._function, fast_compile=True, **self._options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        has_flag = FUSION_EMITTERS_FLAG in os.environ.get("XLA_FLAGS", "")
        use_default = has_flag or is_tracing() or jax.default_backend() != "cpu"
        result: R = (self._default if use_default else self._flagged)(*args, **kwargs)
        return result


jit_search = SearchProgram


def is_eager(*arguments: Any) -> bool:
    """Return whether a call is outside jit and transformations and has concrete arguments."""
    leaves = jax.tree.leaves(arguments)
    if is_tracing() or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return False
    return all(getattr(leaf, "is_fully_addressable", True) for leaf in leaves)


def is_tracing() -> bool:
    """Return whether JAX is tracing a program; `jax.vmap` outside jit does not count."""
    # While JAX traces a program, constants are also tracers.
    return isinstance(jax.lax.full((), 0), jax.core.Tracer)
