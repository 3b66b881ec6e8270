"""Where the command line lets JAX keep what it compiles, for the next process."""

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path

CACHE = "JAX_COMPILATION_CACHE_DIR"
"""The variable in which JAX looks for the folder, while it is imported."""


def keep_compiled_programs() -> None:
    """Let JAX keep what it compiles on disk, for the next process; call it before JAX is imported.

    JAX's own variables win: JAX_COMPILATION_CACHE_DIR is another folder, and with
    JAX_ENABLE_COMPILATION_CACHE=false nothing is kept. Nor is it where no folder can be written.
    """
    if (folder := compilation_cache_folder(os.environ)) is not None:
        os.environ[CACHE] = str(folder)
    # Programs of the lake take seconds to compile; smaller ones aren't worth their files.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    # XLA's own cache of GPU tuning would stand in this folder, and so the folder's name in the key
    # of every program: none would be found in a folder that was moved.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")


def compilation_cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Make and return the folder for compiled programs; None: leave it to JAX.

    It is `jaxlake/xla/MACHINE` in XDG_CACHE_HOME, or in `~/.cache`. What is compiled for one
    processor may not run on another, so each kind has its own, even where home is shared.
    """
    on = environment.get("JAX_ENABLE_COMPILATION_CACHE", "true").lower()
    if CACHE in environment or on in ("0", "f", "false", "n", "no", "off"):
        return None
    caches = environment.get("XDG_CACHE_HOME", "")
    try:
        base = Path(caches) if os.path.isabs(caches) else Path.home() / ".cache"
        folder = base / "jaxlake" / "xla" / machine_digest()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home
        return None
    return folder if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else None


def machine_digest() -> str:
    """Name this kind of processor, by what it can do as far as the system tells."""
    told = [platform.machine(), platform.processor()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip():
                    break  # the other cores are alike
                if line.startswith(("model name", "flags", "Features", "CPU part")):
                    told.append(line)
    except OSError:
        pass
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]
