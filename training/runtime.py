"""Environment variables that libraries read while they are imported; the user's values win."""

import logging
import os
import warnings

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
    # On GPUs Triton compiles vLLM's attention in float32, and would round its factors to TF32.
    "TRITON_F32_DEFAULT": "ieee",
    # Workers of several GPUs: a fork after JAX has initialised CUDA can't use it.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}


_NEWER_NAMES = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "XLA_CLIENT_MEM_FRACTION"}
"""Variables that JAX has a newer name for; it finds no GPU where both are set."""


def set_library_defaults() -> None:
    """Set these variables where the user did not; call it before JAX, torch or vLLM is imported."""
    for name, value in _DEFAULTS.items():
        newer = _NEWER_NAMES.get(name)
        if newer is None or not os.environ.get(newer):
            os.environ.setdefault(name, value)
    # On a CPU vLLM warns that Triton has no backend for it, whatever VLLM_LOGGING_LEVEL is.
    logging.getLogger("vllm.triton_utils").setLevel(logging.ERROR)
    # On a full disk, once for each program: it is compiled again when it is needed.
    warnings.filterwarnings("ignore", message="Error writing persistent compilation cache entry")
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\b.*")
