"""The lake under the interfaces of other libraries, each imported when it is asked for."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from jaxlake.environment.observations import Flat, FlatAgents
from jaxlake.environment.registry import make
from jaxlake.errors import did_you_mean

_CLASSES = {
    "gymnax": ("gymnax", "gymnax_lake", "GymnaxLake", Flat()),
    "gymnax-before-1.0": ("gymnax", "gymnax_lake", "FiveValueGymnaxLake", Flat()),
    "gymnasium": ("gymnasium", "gymnasium_lake", "GymnasiumLake", Flat()),
    "pettingzoo": ("pettingzoo", "pettingzoo_lake", "ParallelLake", FlatAgents()),
    "jaxmarl": ("jaxmarl", "jaxmarl_lake", "JaxMarlLake", FlatAgents()),
}

INTERFACES = tuple(_CLASSES)
"""What `adapt` and `make_for` know."""


def adapt(interface: str, environment: Any, params: Any, **options: Any) -> Any:
    """Give an environment and its parameters the interface of another library.

    Args:
        interface: one of `INTERFACES`:
            "gymnax", one agent that moves all, under gymnax 1.0 and with its spaces;
            "gymnax-before-1.0", the same with a `step` of five values, which rejax 0.1 expects;
            "gymnasium", the same one agent as a `gymnasium.Env`;
            "pettingzoo", a `ParallelEnv` with one agent for each of the lake's;
            "jaxmarl", a `MultiAgentEnv` with dictionaries of agents.
        environment: a `LakeEnvironment`; for "pettingzoo" and "jaxmarl" its observation has a row
            per agent (`FlatAgents`), for the others it is one array (`Flat`).
        params: its `EnvParams`.
        options: of the adapter's class.

    Raises:
        ValueError: the interface is unknown.
        ImportError: the library is not installed; the message names the extra to install.
    """
    return _adapter(interface)[0](environment, params, **options)


def make_for(interface: str, id: str, **options: Any) -> Any:
    """Make the environment of an id under the interface of another library.

    Options are those of `make` and of the adapter's class, such as `render_mode`. The observation
    is `Flat()`, or `FlatAgents()` where agents act one by one, unless `options` name another one.
    """
    adapter, observation = _adapter(interface)
    own = options.keys() & inspect.signature(adapter).parameters.keys()
    of_make = {name: value for name, value in options.items() if name not in own}
    environment, params = make(id, **{"observation": observation, **of_make})
    return adapter(environment, params, **{name: options[name] for name in own})


def _adapter(interface: str) -> tuple[Callable[..., Any], Any]:
    """Import an adapter's class, and return it with its default observation."""
    if interface not in _CLASSES:
        names = ", ".join(_CLASSES)
        meant = did_you_mean(interface, _CLASSES)
        raise ValueError(f"interface: got {interface!r}, allowed are {names}{meant}")
    library, module, name, observation = _CLASSES[interface]
    try:
        import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        message = f"{library} is not installed: pip install 'jaxlake[adapters]'"
        raise ImportError(message, name=library) from error
    return getattr(import_module(f"{__name__}.{module}"), name), observation
