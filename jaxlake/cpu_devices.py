"""JAX on CPUs as the lake needs it: one device per core, and flags for loops over boards."""

import os
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.metadata import version
from typing import Any, ParamSpec, TypeVar

import jax

from jaxlake.search_flags import FLAGS_FOR_SEARCHES as FLAGS_FOR_SEARCHES
from jaxlake.search_flags import FUSION_EMITTERS, TRIED_JAXLIB
from jaxlake.search_flags import add_search_flags as add_search_flags

P = ParamSpec("P")
R = TypeVar("R")


def use_all_cores(devices: int | None = None) -> int:
    """Show JAX one CPU device per core, and make searches of boards faster; call it first.

    `jax.devices()` has so many devices then, over which `generate_sharded`, `sweep` and
    `jax.sharding` share work out; all else goes on on the first one. XLA gets the flags of
    `add_search_flags`, which concern all that this process compiles for CPUs: a model trained
    beside the lake may be slower. Where JAX uses a GPU or TPU nothing changes there.

    Args:
        devices: how many, at least 1; None stands for the cores that this process may use.

    Returns:
        The number of CPU devices.

    Raises:
        ValueError: `devices` is below 1.
        RuntimeError: JAX has computed something in this process already, so that its devices are
            made.
    """
    count = len(os.sched_getaffinity(0)) if devices is None else devices
    if count < 1:
        raise ValueError(f"devices: got {devices}, at least 1 is allowed")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError as error:
        raise RuntimeError(
            "use_all_cores: JAX has made its devices already; call it right after the imports"
        ) from error
    add_search_flags(os.environ)
    return count


def jit_search(
    function: Callable[P, R], static_argnames: str | Sequence[str] = ()
) -> Callable[P, R]:
    """Return `jax.jit(function)`, compiled in two thirds of the time where a CPU runs it.

    That is by the one of `FLAGS_FOR_SEARCHES` which can be set for one program. It holds where the
    function is a program of its own; within another one, that one's flags hold. What the user sets
    in XLA_FLAGS wins, and a jaxlib that was never tried gets nothing.
    """
    plain = jax.jit(function, static_argnames=static_argnames)
    if not version("jaxlib").startswith(TRIED_JAXLIB):
        return plain
    options = {FUSION_EMITTERS: False}
    apart = jax.jit(function, static_argnames=static_argnames, compiler_options=options)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        chosen = FUSION_EMITTERS in os.environ.get("XLA_FLAGS", "")
        if _within_another_program() or chosen or jax.default_backend() != "cpu":
            return plain(*args, **kwargs)
        return apart(*args, **kwargs)

    return call


def called_apart(*arguments: Any) -> bool:
    """Tell whether a call is outside of programs and transformations, with all arrays at hand.

    Then the host may look at values, and choose by them which program is next.
    """
    leaves = jax.tree.leaves(arguments)
    if _within_another_program() or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return False
    return all(getattr(leaf, "is_fully_addressable", True) for leaf in leaves)


def _within_another_program() -> bool:
    # There, constants are traced too.
    return isinstance(jax.lax.full((), 0), jax.core.Tracer)
