"""Where the command line lets JAX keep what it compiles, for the next process."""

import hashlib
import os
import platform
from pathlib import Path

CACHE = "JAX_COMPILATION_CACHE_DIR"
"""The variable in which JAX looks for the folder, while it is imported."""


def keep_compiled_programs() -> None:
    """Let JAX keep what it compiles in the user's cache; call it before JAX is imported.

    JAX's own variables win.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    os.environ.setdefault(CACHE, str(caches / "jaxlake" / "xla" / _machine_digest()))
    # Programs of the lake take seconds to compile; smaller ones aren't worth their files.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    # XLA's own cache of GPU tuning would put this folder's name into the key of every program:
    # none would be found in a folder that was moved.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")


def _machine_digest() -> str:
    """Name this kind of processor: programs for another one may not run, where home is shared."""
    facts = [platform.machine(), platform.processor()]
    try:
        first_core = Path("/proc/cpuinfo").read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        first_core = ""
    names = ("model name", "flags", "Features", "CPU part")
    facts += [line for line in first_core.splitlines() if line.startswith(names)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
