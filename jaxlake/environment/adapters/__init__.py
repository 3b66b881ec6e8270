"""Adapters to the interfaces of other libraries, which are imported on first use."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from jaxlake.environment.lake_environment import LakeEnvironment
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
"""The interfaces supported by `adapt` and `make_for`."""


def adapt(interface: str, environment: Any, params: Any, **options: Any) -> Any:
    """Wrap an environment and its parameters in the interface of another library.

    Args:
        interface: one of `INTERFACES`:
            "gymnax", a single agent that moves all agents, for gymnax 1.0;
            "gymnax-before-1.0", the same with a `step` of five values, as rejax 0.1 expects;
            "gymnasium", the same single agent as a `gymnasium.Env`;
            "pettingzoo", a `ParallelEnv` with one agent per lake agent;
            "jaxmarl", a `MultiAgentEnv` with dictionaries keyed by agent.
        environment: a `LakeEnvironment`. For "pettingzoo" and "jaxmarl" its observation must have
            one row per agent (`FlatAgents`). For the others it must be a single array (`Flat`).
        params: its `EnvParams`.
        options: keyword arguments of the adapter class.

    Returns:
        The adapted environment.

    Raises:
        TypeError: `environment` is not a `LakeEnvironment`.
        ValueError: the interface is unknown.
        ImportError: the library is not installed; the message names the extra to install.
    """
    if not isinstance(environment, LakeEnvironment):
        type_name = type(environment).__name__
        raise TypeError(f"environment must be a LakeEnvironment, got {type_name}")
    return _import_adapter(interface)[0](environment, params, **options)


def make_for(interface: str, id: str, **options: Any) -> Any:
    """Return the environment of an id with the interface of another library.

    Args:
        interface: see `adapt`.
        id: one of `registered()`.
        options: keyword arguments of `make` and of the adapter class, such as `render_mode`. The
            default observation is `FlatAgents()` for "pettingzoo" and "jaxmarl", else `Flat()`.

    Raises:
        KeyError: the id is not registered.
        ValueError: the interface is unknown, or as for `make`.
        ImportError: the library is not installed; the message names the extra to install.
    """
    adapter, observation = _import_adapter(interface)
    adapter_names = inspect.signature(adapter).parameters
    adapter_options = {name: value for name, value in options.items() if name in adapter_names}
    make_options = {name: value for name, value in options.items() if name not in adapter_names}
    environment, params = make(id, **{"observation": observation, **make_options})
    return adapter(environment, params, **adapter_options)


def _import_adapter(interface: str) -> tuple[Callable[..., Any], Any]:
    """Import the class of an adapter, and return it with its default observation."""
    if interface not in _CLASSES:
        names = ", ".join(_CLASSES)
        suggestion = did_you_mean(interface, _CLASSES)
        raise ValueError(f"interface must be one of {names}, got {interface!r}{suggestion}")
    library, module, name, observation = _CLASSES[interface]
    try:
        import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        message = f"{library} is not installed: pip install 'jaxlake[adapters]'"
        raise ImportError(message, name=library) from error
    return getattr(import_module(f"{__name__}.{module}"), name), observation
