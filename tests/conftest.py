"""Settings that have to stand before JAX is imported, also in the processes that tests start."""

import os
from pathlib import Path

# The same program is compiled once, however many processes and jitted functions ask for it.
_CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
