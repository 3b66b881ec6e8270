"""Environment variables that libraries read while they are imported; the user's values win."""

import os
import warnings
from pathlib import Path

from jaxlake.command_line.compilation_cache import CACHE, compilation_cache_folder, machine_digest

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


def set_library_defaults() -> None:
    """Set these variables where the user did not; call it before JAX, torch or vLLM is imported."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\b.*")


def share_compiled_programs(folder: Path) -> None:
    """Let JAX keep what it compiles from now on in a folder that all processes of a run see.

    Of several processes only the first writes what it compiled, so that in the user's cache, on a
    disk of each host, the others would find nothing. A folder that the user has named stays.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    environment = {name: value for name, value in os.environ.items() if name != CACHE}
    ours = compilation_cache_folder(environment)
    if ours is not None and os.environ.get(CACHE) == str(ours):
        compilation_cache.reset_cache()  # JAX looks at the setting once only
        jax.config.update("jax_compilation_cache_dir", str(folder / machine_digest()))
