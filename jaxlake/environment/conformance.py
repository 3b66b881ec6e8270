"""Check that an environment follows the contract of `LakeEnvironment`."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_NUM_ENVIRONMENTS = 8
_NUM_STEPS = 12
_TIME_LIMIT = 5

_REQUIREMENTS = {
    "observation-space": "every observation must lie in observation_space",
    "action-space": "every sampled action must lie in action_space",
    "truncation": "truncated must be True exactly when the time limit is reached",
    "termination": "terminated must not depend on the time limit",
    "auto-reset": "step must reset state.time to 0 when an episode ends, and only then",
    "time": "reset must set state.time to 0, and every step must add 1",
    "observation": "reset and step must return the observation of the state that they return",
    "final-observation": "info['final_observation'] must be the observation of step_env",
    "absorption": "step_env must not change a finished state, and must return reward 0",
}


class ConformanceError(AssertionError):
    """An environment violates the contract; `reason` names the requirement."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


def check_environment(environment: Any, params: Any, *, key: jax.Array | None = None) -> None:
    """Check structure, behaviour, spaces, auto-reset and tracing with random actions.

    Use it to test your own wrappers, observations and rewards. It also works for other
    environments with `reset`, `step`, `step_env`, `observe`, `action_space` and
    `observation_space`, a state with `time`, and parameters with `max_steps`. Dynamics may be
    random if they only depend on the key of `step_env`, which must be the key passed to `step`.

    Args:
        environment: the environment; `observe` takes (state, params), or, as in gymnax,
            (key, state, action, params).
        params: its parameters.
        key: typed PRNG key of the random actions; `jax.random.key(0)` if None.

    Raises:
        ConformanceError: a requirement is violated. `reason` is the first violated one of
            reset-structure, step-structure, state-carry, observation-structure,
            final-observation-structure, flags, reward-dtype (tuples, trees, shapes, dtypes);
            retrace (other values in params or keys cause a new trace); determinism;
            observation-space, action-space, truncation, termination, auto-reset, time,
            observation, final-observation, absorption (see `_REQUIREMENTS`).
    """
    key = jax.random.key(0) if key is None else key
    params = _set_time_limit(params, _TIME_LIMIT)
    _check_structure(environment, params, key)

    num_traces = 0

    def play_all(key: jax.Array, waits: jax.Array, params: Any) -> dict[str, Any]:
        nonlocal num_traces
        num_traces += 1
        play = jax.vmap(partial(_roll_out, environment), (0, 0, None))
        return play(jax.random.split(key, _NUM_ENVIRONMENTS), waits, params)

    # Compare in NumPy, because JAX would compile every operation.
    play_jitted = _jit_unoptimised(play_all)
    waits = np.arange(_NUM_ENVIRONMENTS) % 2 == 1
    rollout = jax.device_get(play_jitted(key, waits, params))
    repeated_rollout = jax.device_get(play_jitted(key, waits, params))
    other_params = jax.tree.map(
        lambda leaf: np.roll(leaf, 1, axis=0) if np.ndim(leaf) else leaf, jax.device_get(params)
    )
    play_jitted(jax.random.fold_in(key, 1), ~waits, _set_time_limit(other_params, _TIME_LIMIT + 1))
    _require(
        num_traces == 1, "retrace", f"equal shapes must share one trace, got {num_traces} traces"
    )
    is_deterministic = _are_equal(rollout, repeated_rollout)
    _require(is_deterministic, "determinism", "equal keys and params must give equal episodes")
    _check_rollout(environment, params, rollout)


def _check_structure(environment: Any, params: Any, key: jax.Array) -> None:
    start = jax.eval_shape(environment.reset, key, params)
    is_pair = isinstance(start, tuple) and len(start) == 2
    _require(is_pair, "reset-structure", "reset must return (observation, state)")
    observation, state = start
    for leaf in jax.tree.leaves(start):
        _require(not leaf.weak_type, "reset-structure", f"{leaf} has a weak dtype")
    actions = jax.eval_shape(environment.action_space(params).sample, key)
    result = jax.eval_shape(environment.step, key, state, actions, params)
    _require(
        isinstance(result, tuple) and len(result) == 6 and isinstance(result[5], dict),
        "step-structure",
        "step must return (observation, state, reward, terminated, truncated, info)",
    )
    step_observation, next_state, reward, terminated, truncated, info = result
    for name, tree, expected in (
        ("state-carry", next_state, state),
        ("observation-structure", step_observation, observation),
        ("final-observation-structure", info.get("final_observation"), observation),
    ):
        _require(
            _list_types(tree) == _list_types(expected), name, f"expected {expected}, got {tree}"
        )
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        is_flag = flag.dtype == jnp.bool_ and flag.shape == ()
        _require(is_flag, "flags", f"{name} must be bool (), got {flag}")
    is_float32 = reward.dtype == jnp.float32
    _require(is_float32, "reward-dtype", f"the reward must be float32, got {reward.dtype}")


def _roll_out(environment: Any, key: jax.Array, waits: jax.Array, params: Any) -> dict[str, Any]:
    """Record the steps of one environment; leaves of `steps` are (_NUM_STEPS, ...)."""
    action_space = environment.action_space(params)
    observation_space = environment.observation_space(params)
    key, key_reset = jax.random.split(key)
    observation, start = environment.reset(key_reset, params)

    def advance(state: Any, key: jax.Array) -> tuple[Any, dict[str, Any]]:
        key_actions, key_step = jax.random.split(key)
        sampled_actions = action_space.sample(key_actions)
        actions = jnp.where(waits, jnp.zeros_like(sampled_actions), sampled_actions)
        result = environment.step(key_step, state, actions, params)
        next_observation, next_state, *_, info = result
        final_observation = info["final_observation"]
        return next_state, {
            "key": jax.random.key_data(key_step),
            "before": state,
            "actions": actions,
            "actions_valid": action_space.contains(actions),
            "observations_valid": observation_space.contains(next_observation)
            & observation_space.contains(final_observation),
            "result": (*result[:5], final_observation),
        }

    _, steps = jax.lax.scan(advance, start, jax.random.split(key, _NUM_STEPS))
    first_valid = observation_space.contains(observation)
    return {"steps": steps, "start": start, "first": observation, "first_valid": first_valid}


def _check_rollout(environment: Any, params: Any, rollout: dict[str, Any]) -> None:
    """Compare every step with `step_env`; leaves (_NUM_ENVIRONMENTS, _NUM_STEPS, ...)."""
    steps = rollout["steps"]
    observation, next_states, _, terminated, truncated, final_observation = steps["result"]
    observe = _get_observe(environment)

    def step_env(data: jax.Array, state: Any, actions: jax.Array, params: Any) -> tuple[Any, ...]:
        key = jax.random.wrap_key_data(data)
        first_view = observe(key, state, actions, params)
        *result, _ = environment.step_env(key, state, actions, params)
        return *result, first_view

    compiled = _jit_unoptimised(jax.vmap(jax.vmap(step_env, (0, 0, 0, None)), (0, 0, 0, None)))

    def step_all(state: Any, params: Any) -> tuple[Any, ...]:
        """Return (observation, state, reward, terminated, observation before) of all steps."""
        return jax.device_get(compiled(steps["key"], state, steps["actions"], params))

    stepped_observation, end_states, _, _, observation_before = step_all(steps["before"], params)
    terminated_unlimited = step_all(steps["before"], _set_time_limit(params, 1 << 30))[3]
    _, absorbed_states, absorbed_reward, _, _ = step_all(end_states, params)
    observation_after = step_all(next_states, params)[4]

    time, is_done = end_states.time, terminated | truncated
    starts_at_zero = (rollout["start"].time == 0).all()
    first_observation = jax.tree.map(lambda leaf: leaf[:, 0], observation_before)
    first_equal = _are_equal(rollout["first"], first_observation)
    finished_states, absorbed_states, absorbed_reward = jax.tree.map(
        lambda leaf: leaf[is_done], (end_states, absorbed_states, absorbed_reward)
    )
    for reason, holds in {
        "observation-space": rollout["first_valid"].all() and steps["observations_valid"].all(),
        "action-space": steps["actions_valid"].all(),
        "truncation": np.array_equal(truncated, time >= params.max_steps),
        "termination": np.array_equal(terminated, terminated_unlimited),
        "auto-reset": np.array_equal(next_states.time, np.where(is_done, 0, time)),
        "time": starts_at_zero and (time == steps["before"].time + 1).all(),
        "observation": first_equal and _are_equal(observation, observation_after),
        "final-observation": _are_equal(final_observation, stepped_observation),
        "absorption": _are_equal(finished_states, absorbed_states) and not np.any(absorbed_reward),
    }.items():
        _require(bool(holds), reason, _REQUIREMENTS[reason])


def _get_observe(environment: Any) -> Callable[..., Any]:
    """Return `observe` with the gymnax signature (key, state, actions, params)."""
    if "key" in inspect.signature(environment.observe).parameters:
        observe: Callable[..., Any] = environment.observe
        return observe
    return lambda key, state, actions, params: environment.observe(state, params)


def _jit_unoptimised(function: Callable[..., Any]) -> Callable[..., Any]:
    # These programs run only a few times, so compilation takes most of the time.
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def _set_time_limit(params: Any, max_steps: int) -> Any:
    dtype = getattr(params.max_steps, "dtype", np.int32)
    return replace(params, max_steps=np.asarray(max_steps, dtype))


def _list_types(tree: Any) -> tuple[Any, list[tuple[Any, Any, bool]]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]


def _are_equal(left: Any, right: Any) -> bool:
    structures: list[Any] = [jax.tree.structure(tree) for tree in (left, right)]
    if structures[0] != structures[1]:
        return False
    return all(map(np.array_equal, jax.tree.leaves(left), jax.tree.leaves(right)))


def _require(holds: bool, reason: str, detail: str) -> None:
    if not holds:
        raise ConformanceError(reason, detail)
