"""XLA flags that speed up searches over boards on CPUs."""

from collections.abc import MutableMapping
from importlib.metadata import version

FUSION_EMITTERS_FLAG = "xla_cpu_use_fusion_emitters"
LLVM_LEVEL_FLAG = "xla_backend_optimization_level"

FLAGS_FOR_SEARCHES = (
    "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000000",
    f"--{FUSION_EMITTERS_FLAG}=false",
)
"""Flags that compile each loop to one function on one thread, which also runs faster."""

TESTED_JAXLIB = "0.10."


def add_search_flags(environment: MutableMapping[str, str]) -> None:
    """Add `FLAGS_FOR_SEARCHES` to XLA_FLAGS in an environment.

    XLA reads the variable when JAX creates its devices. Flags that the user has set take
    precedence. Untested versions of jaxlib get no flags, because XLA terminates the process on an
    unknown flag.
    """
    if not version("jaxlib").startswith(TESTED_JAXLIB):
        return
    flags = environment.get("XLA_FLAGS", "").split()
    names = {flag.partition("=")[0] for flag in flags}
    flags += [flag for flag in FLAGS_FOR_SEARCHES if flag.partition("=")[0] not in names]
    environment["XLA_FLAGS"] = " ".join(flags)
