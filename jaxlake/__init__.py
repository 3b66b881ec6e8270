"""The lake: multi-agent path finding on frozen lakes, exact and in pure JAX.

`jaxlake.public` defines the public names. They are imported on first use, as are modules such as
`jaxlake.environment` and `jaxlake.prompts`. `import jaxlake` alone does not import JAX, which keeps
the command line responsive.
"""

import importlib.metadata as _metadata
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from jaxlake.public import *  # noqa: F403

try:
    __version__ = _metadata.version("jaxlake")
except _metadata.PackageNotFoundError:  # a checkout on the path that is not installed
    __version__ = "unknown"

_LAZY_MODULES = {
    "answers": "jaxlake.language.answers",
    "datasets": "jaxlake.datasets",
    "environment": "jaxlake.environment",
    "judging": "jaxlake.language.judging",
    "paired": "jaxlake.statistics.paired",
    "policies": "jaxlake.policies",
    "prompts": "jaxlake.language.prompts",
    "rewards": "jaxlake.language.rewards",
    "sweeps": "jaxlake.sweeps",
}


def __getattr__(name: str) -> _Any:
    if name in _LAZY_MODULES:
        return _import_module(_LAZY_MODULES[name])
    if name == "__all__":  # read by `from jaxlake import *`
        return _public_names()
    if not name.startswith("_"):
        public = _import_module("jaxlake.public")
        # This import also binds submodules, such as `jaxlake.solver`, which take precedence.
        value = globals().get(name, getattr(public, name, None))
        if value is not None:
            return globals().setdefault(name, value)
    raise AttributeError(f"module 'jaxlake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_public_names(), *_LAZY_MODULES})


def _public_names() -> list[str]:
    return [name for name in vars(_import_module("jaxlake.public")) if not name.startswith("_")]
