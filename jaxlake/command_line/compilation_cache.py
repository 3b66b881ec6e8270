"""Enable JAX's persistent compilation cache for the command line."""

import hashlib
import os
import platform
from pathlib import Path

CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
"""Environment variable with the cache folder, which JAX reads when it is imported."""


def enable_compilation_cache() -> None:
    """Store JAX's compiled programs in the user's cache folder; call it before importing JAX.

    Environment variables set by the user take precedence.
    """
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    os.environ.setdefault(CACHE_VARIABLE, str(user_cache / "jaxlake" / "xla" / _hash_machine()))
    # Store only programs that take at least 0.1 s to compile.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    # XLA's GPU autotuning cache would add the folder's name to the key of every program, which
    # would invalidate the cache when the folder is moved.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")


def _hash_machine() -> str:
    """Return a digest of the processor type, because home folders may be shared between hosts."""
    properties = [platform.machine(), platform.processor()]
    try:
        first_core = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        first_core = ""
    names = ("model name", "flags", "Features", "CPU part")
    properties += [line for line in first_core.splitlines() if line.startswith(names)]
    return hashlib.sha256("\n".join(properties).encode()).hexdigest()[:12]
