"""Joint policies by name: built-in ones, and user-defined ones as `module:NAME`."""

import dataclasses
import hashlib
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxlake.errors import did_you_mean
from jaxlake.policies.joint_rollout import JointPolicy, check_policy
from jaxlake.policies.plan_following import optimal_policy, prioritised_policy
from jaxlake.policies.reactive import RandomPolicy, ShortestPathPolicy
from jaxlake.runtime.random_keys import is_typed_key
from jaxlake.solver import DEFAULT_HORIZON
from jaxlake.user_code import import_code, is_code_name

POLICIES: dict[str, Callable[[int], JointPolicy]] = {
    "random": lambda horizon: RandomPolicy(),
    "shortest_path": lambda horizon: ShortestPathPolicy(),
    "prioritised": prioritised_policy,
    "optimal": optimal_policy,
}
"""Constructors of policies by name. Each takes the planning horizon in steps."""

_ALLOWED = f"{', '.join(POLICIES)} and module:NAME"


def policy_of(name: str, *, horizon: int = DEFAULT_HORIZON) -> JointPolicy:
    """Return a policy by name.

    Args:
        name: A key of `POLICIES`, or `module:NAME` for your own policy. NAME is an object with the
            methods of `JointPolicy`, or a class or function that returns one without arguments.
        horizon: The longest plan of planning policies, in steps.

    Raises:
        ValueError: The name is unknown, its module can't be imported, or it is not a policy.
    """
    if name in POLICIES:
        return POLICIES[name](horizon)
    if not is_code_name(name):
        hint = did_you_mean(name, POLICIES)
        raise ValueError(f"must be one of {_ALLOWED}, got {name!r:.100}{hint}")
    policy = import_code(name, _ALLOWED)
    if isinstance(policy, type) or not hasattr(policy, "act"):
        if not callable(policy):
            raise ValueError(f"must be a JointPolicy, got {name}")
        try:
            policy = policy()
        except TypeError as error:
            raise ValueError(f"must be callable without arguments, got {name}: {error}") from error
    check_policy(name, policy)
    return policy


def policy_digest(policy: JointPolicy) -> str:
    """Return a SHA-256 digest of a policy's class and of the values in its fields.

    Arrays, numbers, strings and dataclasses contribute their values. Other fields contribute only
    the names of their types.
    """
    digest = hashlib.sha256()

    def update_digest(value: Any) -> None:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            update_digest(type(value))
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        leaves, structure = jax.tree.flatten(value)
        digest.update(re.sub(" at 0x[0-9a-f]+", "", str(structure)).encode())
        for leaf in leaves:
            if is_typed_key(leaf):
                leaf = jax.random.key_data(leaf)
            if isinstance(leaf, jax.Array | np.ndarray):
                digest.update(f"{leaf.dtype} {leaf.shape}".encode() + np.asarray(leaf).tobytes())
            elif isinstance(leaf, bool | int | float | str | bytes):
                digest.update(repr(leaf).encode())
            elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
                update_digest(leaf)
            else:
                owner = leaf if hasattr(leaf, "__qualname__") else type(leaf)
                digest.update(owner.__qualname__.encode())

    update_digest(
        policy
        if dataclasses.is_dataclass(policy)
        else [type(policy), getattr(policy, "__dict__", {})]
    )
    return digest.hexdigest()
