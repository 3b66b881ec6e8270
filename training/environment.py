"""What libraries read from the environment while they are imported; the user's own values win."""

from __future__ import annotations

import os
import warnings

_DEFAULTS = {
    # Beside vLLM on one accelerator, JAX must not take the whole memory at once.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    # Progress is ours to show; errors still come through.
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}


def prepare() -> None:
    """Set the defaults; call it before JAX, torch or vLLM are imported."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\b.*")
