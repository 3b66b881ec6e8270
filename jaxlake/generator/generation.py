"""Sets of distinct solved boards for a mixture (`LakeParams`), by rejection sampling."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial, wraps
from inspect import unwrap
from typing import ParamSpec

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.board.limits import MAX_AGENTS, MAX_SIZE, MIN_AGENTS, MIN_SIZE, validate_lake_params
from jaxlake.generator.board_parts import ALL_BOARDS, Part, validate_part
from jaxlake.generator.mixture import LakeParams
from jaxlake.generator.pool import Generated as Generated
from jaxlake.generator.pool import PoolOptions, default_batch_size
from jaxlake.generator.rounds import PoolProgram, fill_pool, make_eager_program
from jaxlake.runtime.batch_axes import merge_batch_axes
from jaxlake.runtime.cpu_devices import is_eager, jit_search
from jaxlake.runtime.memory import require_memory
from jaxlake.runtime.random_keys import check_key
from jaxlake.solver import Limits, default_horizon, limits_for
from jaxlake.solver.chunks import default_platform
from jaxlake.solver.entry_points import MAX_HORIZON

P = ParamSpec("P")

MAX_CANDIDATES = 1 << 18
"""Smallest default of `max_candidates`."""

_TRACED_MAX_SIZE, _TRACED_MAX_AGENTS = 10, 2  # defaults under jit and vmap


def _warn_if_incomplete(generate: Callable[P, Generated]) -> Callable[P, Generated]:
    """Decorate a generator with a warning about missing boards, outside jit."""

    @wraps(generate)
    def call(*args: P.args, **kwargs: P.kwargs) -> Generated:
        generated = generate(*args, **kwargs)
        filled = generated.filled
        if is_eager(filled) and (num_missing := int(np.sum(~np.asarray(filled)))):
            warnings.warn(
                f"{generate.__name__}: {num_missing} of {filled.size} boards could not be made; "
                "their solutions are UNKNOWN with costs of -1, so use `filled` as the mask of "
                "statistics; `shortfall_wait` and `shortfall_no_wait` count them by component",
                stacklevel=2,
            )
        return generated

    return call


@_warn_if_incomplete
def generate(
    key: jax.Array,
    params: LakeParams,
    n: int,
    *,
    max_size: int | None = None,
    max_agents: int | None = None,
    horizon: int | None = None,
    batch_size: int | None = None,
    max_candidates: int | None = None,
    limits: Limits | None = None,
    part: Part = ALL_BOARDS,
) -> Generated:
    """Generate n distinct boards, each with its optimal solution.

    The n boards are divided among the configurations of `params` in proportion to `data_ratio`, by
    largest remainder. In each configuration, exactly the share `wait_ratio` of the boards, rounded
    half up, needs a wait. Candidates have exactly `hole_count` holes, placed uniformly at
    random, and starts and goals on distinct free squares, also uniform. Unsolvable, UNKNOWN and
    duplicate boards are counted and discarded. Missing boards are counted per configuration.
    Outside jit and vmap, they also raise a warning. `filled` is the mask of the generated boards.

    The function works under jit; outside of jit, similar values of n share a program. `jax.vmap`
    over keys, parameters or both matches single calls. `jax.shard_map` distributes configurations
    over devices. Under jit alone, every device holds all boards. A million two-agent boards
    padded to 10 x 10 take 0.4 GB with the default horizon.

    Args:
        key: Typed PRNG key. Together with the parameters it determines the boards.
        params: The S configurations, leaves (S,), see `lake_params`. Infeasible ones cost nothing
            and are counted as shortfall. Under jit and vmap, so are invalid ones, and those that
            exceed `max_size` or `max_agents`.
        n: Number of boards (static), 1 to 2**24.
        max_size: N, the padded side of the boards (static), 2 to 32. Defaults to the largest `size`
            with a positive share, and under jit and vmap to 10. Calls with the same `max_size`,
            `max_agents` and `horizon` share a compiled program.
        max_agents: K, the number of agent slots (static), 1 to 5. Defaults to the largest
            `num_agents` with a positive share, and under jit and vmap to 2.
        horizon: Longest plan in steps, see `solve` (static). Defaults to 64 up to a `max_size`
            of 10, 96 up to 16 and 160 beyond.
        batch_size: Candidates examined at once (static). It does not change the result. The default
            depends on n and the device.
        max_candidates: Number of candidates to draw for the boards of one configuration that need
            a wait, or for those that need none, before giving up (static), at most 2**30. Defaults
            to 8 n, and at least `MAX_CANDIDATES`.
        limits: Number of candidates that the solver processes at once, see `solve` (static).
        part: (i, P), restrict the boards to part i, counted from 0, of P parts of all boards. Two
            parts have no board in common, whatever their keys.

    Returns:
        The boards, their solutions and the counts per configuration.

    Raises:
        TypeError: `key` is not a typed key, `params` is not a `LakeParams`, or a number is not an
            integer.
        ValueError: `key` has kind `rbg` or `unsafe_rbg` or holds several keys, a static argument is
            out of range, or the parameters are not (S,) arrays. Outside jit and vmap also if
            `lake_params` rejects a value, or a configuration with a positive share exceeds
            `max_size` or `max_agents`.
        MemoryError: Outside jit: the boards would not fit into the free memory.
    """
    n = _check_arguments(key, params, n, max_size, max_agents, horizon, batch_size, max_candidates)
    max_size, max_agents = _get_padding(params, max_size, max_agents)
    horizon = default_horizon(max_size) if horizon is None else horizon
    require_memory("generate", (key, params), n, bytes_per_board(max_size, max_agents, horizon))
    part_index, num_parts = validate_part(part)
    limits = limits or limits_for()
    options = PoolOptions(
        _num_slots(n), max_size, max_agents, horizon, batch_size, limits, num_parts
    )
    # On accelerators, separate programs would add host synchronisation. They pay off with more than
    # two slots, because the eager solver skips tiers that no board needs.
    run_eagerly = is_eager(key, params) and (max_agents > 2 or default_platform() == "cpu")
    program = _make_eager_program(options) if run_eagerly else _make_program(options)
    return _fill_one_set(program, key, params, n, max_candidates, part_index)


generate_quietly = unwrap(generate)
"""`generate` without the warning, for callers that report missing boards."""


@_warn_if_incomplete
def generate_sharded(
    key: jax.Array,
    params: LakeParams,
    n: int,
    *,
    devices: tuple[jax.Device, ...] | None = None,
    batch_size: int | None = None,
    max_size: int | None = None,
    max_agents: int | None = None,
    horizon: int | None = None,
    max_candidates: int | None = None,
    limits: Limits | None = None,
    part: Part = ALL_BOARDS,
) -> Generated:
    """Generate boards as `generate` does, with each batch of candidates spread over devices.

    The devices may belong to several processes (`jax.distributed.initialize`), each of which makes
    the same call. The other arguments and all errors are as for `generate`.

    Args:
        key: See `generate`.
        params: See `generate`.
        n: See `generate`.
        devices: The devices to use. Defaults to all devices of all processes.
        batch_size: Candidates examined at once by all devices together, rounded up to a multiple of
            their number.
        max_size: See `generate`.
        max_agents: See `generate`.
        horizon: See `generate`.
        max_candidates: See `generate`.
        limits: See `generate`.
        part: See `generate`.

    Returns:
        The result of `generate`, replicated on all devices.
    """
    devices = tuple(jax.devices() if devices is None else devices)
    if not devices:
        raise ValueError("devices must have at least 1 device, got none")
    n = _check_arguments(key, params, n, max_size, max_agents, horizon, batch_size, max_candidates)
    max_size, max_agents = _get_padding(params, max_size, max_agents)
    horizon = default_horizon(max_size) if horizon is None else horizon
    local_devices = [device for device in devices if device.process_index == jax.process_index()]
    if local_devices:
        device = local_devices[0]
        # The CPU devices of a process share its memory, and each holds all boards.
        num_copies = len(local_devices) if device.platform == "cpu" else 1
        bytes_each = num_copies * bytes_per_board(max_size, max_agents, horizon)
        require_memory("generate_sharded", (key, params), n, bytes_each, device)
    limits = limits or limits_for(devices[0].platform)
    batch_size = _sharded_batch_size(batch_size, n, len(devices), limits)
    part_index, num_parts = validate_part(part)
    options = PoolOptions(
        _num_slots(n), max_size, max_agents, horizon, batch_size, limits, num_parts
    )
    return _fill_one_set(
        _make_sharded_program(options, devices), key, params, n, max_candidates, part_index
    )


def _check_arguments(
    key: jax.Array,
    params: LakeParams,
    n: int,
    max_size: int | None,
    max_agents: int | None,
    horizon: int | None,
    batch_size: int | None,
    max_candidates: int | None,
) -> int:
    """Check the arguments, and return n as a Python integer."""
    check_key(key)
    if not isinstance(params, LakeParams):
        raise TypeError(
            f"params must be a LakeParams, got {type(params).__name__}; "
            "jaxlake.lake_params(size, hole_ratio) creates one"
        )
    shapes = {name: np.shape(leaf) for name, leaf in vars(params).items()}
    for name, shape in shapes.items():
        if len(shape) != 1 or shape != shapes["size"] or not shape[0]:
            raise ValueError(
                f"params.{name} must have shape (S,), the same for all leaves, got {shape}; "
                "use jax.vmap for further axes"
            )
    if is_eager(params):
        try:
            validate_lake_params(**vars(params))
        except ValueError as error:
            raise ValueError(f"params.{error}") from None
    for name, value, low, high in (
        ("n", n, 1, 1 << 24),
        ("max_size", max_size, MIN_SIZE, MAX_SIZE),
        ("max_agents", max_agents, MIN_AGENTS, MAX_AGENTS),
        ("horizon", horizon, 1, MAX_HORIZON),
        ("batch_size", batch_size, 1, 1 << 20),
        ("max_candidates", max_candidates, 0, 1 << 30),
    ):
        if value is None:
            continue
        if not isinstance(value, int | np.integer):
            raise TypeError(f"{name} must be an integer, got {value!r}")
        if not low <= value <= high:
            raise ValueError(f"{name} must be in [{low}, {high}], got {value}")
    return int(n)


def _get_padding(
    params: LakeParams, max_size: int | None, max_agents: int | None
) -> tuple[int, int]:
    """Return N and K; raise `ValueError` if a component with a positive share exceeds them."""
    if not is_eager(params):
        return max_size or _TRACED_MAX_SIZE, max_agents or _TRACED_MAX_AGENTS
    has_boards = np.asarray(params.data_ratio) > 0
    largest_size, largest_agents = (
        int(np.asarray(leaf)[has_boards].max()) for leaf in (params.size, params.num_agents)
    )
    for field, largest, padding, max_value in (
        ("size", largest_size, "max_size", max_size),
        ("num_agents", largest_agents, "max_agents", max_agents),
    ):
        if max_value is not None and largest > max_value:
            raise ValueError(
                f"params.{field} must be at most {padding} = {max_value}, got {largest}; "
                f"pass {padding}={largest} or more"
            )
    return max_size or largest_size, max_agents or largest_agents


def bytes_per_board(max_size: int, max_agents: int, horizon: int) -> int:
    """Return the memory per board, as measured for two and three agents on a CPU."""
    return 5 * horizon * max_agents + 3 * max_size**2


def _num_slots(n: int) -> int:
    """Round n up to a power of two, or above 4096 to a multiple of a quarter of the last power."""
    step = max(5, (n - 1).bit_length() - (3 if n > 4096 else 0))
    return -(-n >> step) << step


def _fill_one_set(
    program: PoolProgram,
    key: jax.Array,
    params: LakeParams,
    n: int,
    max_candidates: int | None,
    part_index: int,
) -> Generated:
    max_candidates = max(MAX_CANDIDATES, 8 * n) if max_candidates is None else max_candidates
    batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)
    return _take_only_set(
        program(key[None], batch, *np.array([[n], [max_candidates], [part_index]], np.int32)), n
    )


@partial(jax.jit, static_argnames="n")
def _take_only_set(generated: Generated, n: int) -> Generated:
    """Return the only set, from leaves (1, ...), without the slots after the first n."""
    generated = jax.tree.map(lambda leaf: leaf[0], generated)
    boards = (generated.instances, generated.solutions, generated.filled, generated.component)
    instances, solutions, filled, component = jax.tree.map(lambda leaf: leaf[:n], boards)
    return replace(
        generated, instances=instances, solutions=solutions, filled=filled, component=component
    )


def _sharded_batch_size(
    batch_size: int | None, num_boards: int, num_devices: int, limits: Limits
) -> int:
    """Return the batch size, or a default of at most 2**20, as a multiple of `num_devices`."""
    if batch_size is None:
        return min(default_batch_size(num_boards, limits), (1 << 20) // num_devices) * num_devices
    return -(-batch_size // num_devices) * num_devices


@cache
def _make_program(options: PoolOptions) -> PoolProgram:
    """Return `fill_pool` compiled for the options, with batch axes merged into one pool."""
    return jit_search(merge_batch_axes(partial(fill_pool, options=options)))


_make_eager_program = cache(make_eager_program)


@cache
def _make_sharded_program(options: PoolOptions, devices: tuple[jax.Device, ...]) -> PoolProgram:
    """Return `fill_pool` with lanes split over the devices and all other arrays replicated."""
    mesh = jax.sharding.Mesh(np.array(devices), ("lanes",))
    replicated = jax.sharding.PartitionSpec()
    fill_shard = partial(fill_pool, options=options, axis_name="lanes")
    return jit_search(
        jax.shard_map(
            fill_shard, mesh=mesh, in_specs=replicated, out_specs=replicated, check_vma=False
        )
    )
