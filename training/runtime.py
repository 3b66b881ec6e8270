"""Environment variables that libraries read while they are imported; the user's values win."""

import hashlib
import os
import platform
import warnings
from collections.abc import Mapping
from pathlib import Path

_DEFAULTS = {
    # JAX shares one accelerator with vLLM, so it must not reserve most of the memory at start.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    # It takes what it needs, and stops here; by default a quarter would stay out of its reach.
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95",
    # The run shows its own progress; errors still come through.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    # Workers of several GPUs: a fork after JAX has initialised CUDA can't use it.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}

_CACHE = "JAX_COMPILATION_CACHE_DIR"


def set_library_defaults() -> None:
    """Set these variables where the user did not; call it before JAX, torch or vLLM is imported."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\b.*")


def keep_compiled_programs() -> None:
    """Let JAX keep what it compiles on disk, for the next process; call it before JAX is imported.

    JAX's own variables win: JAX_COMPILATION_CACHE_DIR is another folder, and with
    JAX_ENABLE_COMPILATION_CACHE=false nothing is kept. Nor is it where no folder can be written.
    """
    if (folder := compilation_cache_folder(os.environ)) is not None:
        os.environ[_CACHE] = str(folder)
    # Programs of the lake take seconds to compile; smaller ones aren't worth their files.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def compilation_cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Make and return the folder for compiled programs; None: leave it to JAX.

    It is `jaxlake/xla/MACHINE` in XDG_CACHE_HOME, or in `~/.cache`. What is compiled for one
    processor may not run on another, so each kind has its own, even where home is shared.
    """
    on = environment.get("JAX_ENABLE_COMPILATION_CACHE", "true").lower()
    if _CACHE in environment or on in ("0", "f", "false", "n", "no", "off"):
        return None
    caches = environment.get("XDG_CACHE_HOME", "")
    try:
        base = Path(caches) if os.path.isabs(caches) else Path.home() / ".cache"
        folder = base / "jaxlake" / "xla" / machine_digest()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home
        return None
    return folder if os.access(folder, os.R_OK | os.W_OK | os.X_OK) else None


def share_compiled_programs(folder: Path) -> None:
    """Let JAX keep what it compiles from now on in a folder that all processes of a run see.

    Of several processes only the first writes what it compiled, so that in the user's cache, on a
    disk of each host, the others would find nothing. A folder that the user has named stays.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    environment = {name: value for name, value in os.environ.items() if name != _CACHE}
    ours = compilation_cache_folder(environment)
    if ours is not None and os.environ.get(_CACHE) == str(ours):
        compilation_cache.reset_cache()  # JAX looks at the setting once only
        jax.config.update("jax_compilation_cache_dir", str(folder / machine_digest()))


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
