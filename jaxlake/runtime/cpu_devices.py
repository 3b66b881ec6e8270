"""CPU settings of JAX for the lake: one device per core, and XLA flags for board searches."""

import os
from collections.abc import Callable
from functools import cached_property, update_wrapper
from importlib.metadata import version
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from jaxlake.runtime.search_flags import FLAGS_FOR_SEARCHES as FLAGS_FOR_SEARCHES
from jaxlake.runtime.search_flags import FUSION_EMITTERS, LLVM_LEVEL, TRIED_JAXLIB
from jaxlake.runtime.search_flags import add_search_flags as add_search_flags

P = ParamSpec("P")
R = TypeVar("R")


def use_all_cores(devices: int | None = None) -> int:
    """Make JAX show one CPU device per core and speed up board searches; call it first.

    `generate_sharded`, `sweep` and `jax.sharding` distribute work over the devices. XLA receives
    the flags of `add_search_flags` for everything that this process compiles for CPUs, so a model
    trained in the same process may be slower. GPUs and TPUs are not affected.

    Args:
        devices: Number of CPU devices, at least 1. Defaults to the cores available to this process.

    Returns:
        The number of CPU devices.

    Raises:
        ValueError: `devices` is below 1.
        RuntimeError: JAX has already created its devices.
    """
    count = len(os.sched_getaffinity(0)) if devices is None else devices
    if count < 1:
        raise ValueError(f"devices: got {devices}, at least 1 is allowed")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise RuntimeError(
            "use_all_cores: JAX has already created its devices; call it right after the imports"
        ) from error
    add_search_flags(os.environ)
    return count


class SearchProgram(Generic[P, R]):
    """Like `jax.jit`, but compiled with search flags on CPUs, which cuts compile time by a third.

    Inside another jitted function the flags of the outer function apply. Flags that the user sets
    in XLA_FLAGS take precedence. Untested versions of jaxlib get no flags.
    """

    def __init__(
        self, function: Callable[P, R], *, fast_compile: bool = False, **options: Any
    ) -> None:
        self._source = function, options
        self._plain = self._flagged = jax.jit(function, **options)
        if version("jaxlib").startswith(TRIED_JAXLIB):
            flags: Any = {FUSION_EMITTERS: False} | ({LLVM_LEVEL: 1} if fast_compile else {})
            self._flagged = jax.jit(function, compiler_options=flags, **options)
        update_wrapper(self, function)

    @cached_property
    def fast_compile(self) -> "SearchProgram[P, R]":
        """The function compiled at LLVM level 1: faster to compile, up to 1.7x slower to run."""
        function, options = self._source
        return SearchProgram(function, fast_compile=True, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        has_flag = FUSION_EMITTERS in os.environ.get("XLA_FLAGS", "")
        plain = has_flag or within_program() or jax.default_backend() != "cpu"
        result: R = (self._plain if plain else self._flagged)(*args, **kwargs)
        return result


jit_search = SearchProgram


def is_eager(*arguments: Any) -> bool:
    """Return whether a call is outside of jit and transformations, with concrete arguments."""
    leaves = jax.tree.leaves(arguments)
    if within_program() or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return False
    return all(getattr(leaf, "is_fully_addressable", True) for leaf in leaves)


def within_program() -> bool:
    """Return whether a program is being traced; `jax.vmap` alone is not one."""
    # Under a trace, constants are tracers too.
    return isinstance(jax.lax.full((), 0), jax.core.Tracer)
