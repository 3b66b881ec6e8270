"""Default environment variables of libraries, which the user's values override."""

import logging
import os
import warnings

_DEFAULTS = {
    # JAX may share an accelerator with vLLM, so it must not preallocate memory.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    # Upper limit of JAX's memory; the default is 75%.
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95",
    # The run shows its own progress, so only show errors.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    # Prevent TF32 in vLLM's float32 attention, which Triton compiles on GPUs.
    "TRITON_F32_DEFAULT": "ieee",
    # A worker that is forked after JAX has initialised CUDA can't use CUDA.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}


_NEWER_NAMES = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "XLA_CLIENT_MEM_FRACTION"}
"""Deprecated names of variables; JAX finds no GPU if both names are set."""


def set_library_defaults() -> None:
    """Set variables that the user has not set; call this before importing JAX, torch or vLLM."""
    for name, value in _DEFAULTS.items():
        newer_name = _NEWER_NAMES.get(name)
        if newer_name is None or not os.environ.get(newer_name):
            os.environ.setdefault(name, value)
    # vLLM warns about Triton on CPUs regardless of VLLM_LOGGING_LEVEL.
    logging.getLogger("vllm.triton_utils").setLevel(logging.ERROR)
    # JAX warns about a full disk once per program. The only consequence is a recompilation.
    warnings.filterwarnings("ignore", message="Error writing persistent compilation cache entry")
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\b.*")
