"""JAX on CPUs as the lake needs it: one device per core, and flags for loops over boards."""

import os
from collections.abc import Callable, MutableMapping, Sequence
from functools import wraps
from importlib.metadata import version
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")

_FUSION_EMITTERS = "xla_cpu_use_fusion_emitters"

FLAGS_FOR_SEARCHES = (
    "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000",
    f"--{_FUSION_EMITTERS}=false",
)
"""What makes XLA's loops over boards faster on CPUs.

Such loops are many small operations. One thread for each loop spares them the hand-over to others,
and without fusion emitters XLA compiles a loop's operations as one function: faster to compile and
to run.
"""

_TRIED_JAXLIB = "0.10."


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


def add_search_flags(environment: MutableMapping[str, str]) -> None:
    """Add `FLAGS_FOR_SEARCHES` to XLA_FLAGS, which XLA reads when JAX makes its devices.

    Flags that the user set win. With a jaxlib that was never tried nothing is added, because XLA
    ends the process where it doesn't know a flag.
    """
    if not version("jaxlib").startswith(_TRIED_JAXLIB):
        return
    flags = environment.get("XLA_FLAGS", "").split()
    given = {flag.partition("=")[0] for flag in flags}
    flags += [flag for flag in FLAGS_FOR_SEARCHES if flag.partition("=")[0] not in given]
    environment["XLA_FLAGS"] = " ".join(flags)


def jit_search(
    function: Callable[P, R], static_argnames: str | Sequence[str] = ()
) -> Callable[P, R]:
    """Return `jax.jit(function)`, compiled in two thirds of the time where a CPU runs it.

    That is by the one of `FLAGS_FOR_SEARCHES` which can be set for one program. It holds where the
    function is a program of its own; within another one, that one's flags hold. What the user sets
    in XLA_FLAGS wins, and a jaxlib that was never tried gets nothing.
    """
    plain = jax.jit(function, static_argnames=static_argnames)
    if not version("jaxlib").startswith(_TRIED_JAXLIB):
        return plain
    options = {_FUSION_EMITTERS: False}
    apart = jax.jit(function, static_argnames=static_argnames, compiler_options=options)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        # Within another program, constants are traced too.
        within = isinstance(jax.lax.full((), 0), jax.core.Tracer)
        chosen = _FUSION_EMITTERS in os.environ.get("XLA_FLAGS", "")
        if within or chosen or jax.default_backend() != "cpu":
            return plain(*args, **kwargs)
        return apart(*args, **kwargs)

    return call
