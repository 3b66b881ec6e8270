"""Flags of XLA for loops over boards on CPUs; they are set before JAX is imported."""

from collections.abc import MutableMapping
from importlib.metadata import version

FUSION_EMITTERS = "xla_cpu_use_fusion_emitters"
LLVM_LEVEL = "xla_backend_optimization_level"

FLAGS_FOR_SEARCHES = (
    "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000",
    f"--{FUSION_EMITTERS}=false",
)
"""One thread per loop, and one function per loop, which is faster to compile and to run."""

TRIED_JAXLIB = "0.10."


def add_search_flags(environment: MutableMapping[str, str]) -> None:
    """Add `FLAGS_FOR_SEARCHES` to XLA_FLAGS, which XLA reads when JAX makes its devices.

    Flags that the user set win. A jaxlib that was never tried gets none: XLA ends the process where
    it doesn't know a flag.
    """
    if not version("jaxlib").startswith(TRIED_JAXLIB):
        return
    flags = environment.get("XLA_FLAGS", "").split()
    given = {flag.partition("=")[0] for flag in flags}
    flags += [flag for flag in FLAGS_FOR_SEARCHES if flag.partition("=")[0] not in given]
    environment["XLA_FLAGS"] = " ".join(flags)
