"""Sets of distinct solved boards for a mixture of kinds, by rejection on the device."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.generator import mixture
from jaxlake.generator.board_parts import ALL_BOARDS, Part, checked_part
from jaxlake.generator.mixture import LakeParams
from jaxlake.generator.pool import Generated as Generated
from jaxlake.generator.pool import PoolOptions, batch_size_for
from jaxlake.generator.rounds import Pool, fill_by_parts, fill_pool
from jaxlake.runtime.batch_axes import merge_batch_axes
from jaxlake.runtime.cpu_devices import called_apart, jit_search
from jaxlake.runtime.random_keys import check_kind
from jaxlake.solver import DEFAULT_HORIZON, Widths, widths_for
from jaxlake.solver.chunks import default_platform

MAX_CANDIDATES = 1 << 18
"""Candidates of a stream after which `generate` gives up, unless told otherwise."""


def generate(
    key: jax.Array,
    params: LakeParams,
    n: int,
    *,
    max_size: int = 10,
    max_agents: int = 2,
    horizon: int = DEFAULT_HORIZON,
    batch_size: int | None = None,
    max_candidates: int | None = None,
    widths: Widths | None = None,
    part: Part = ALL_BOARDS,
) -> Generated:
    """Make n distinct boards, each with its optimal solution.

    Cell s gets its share of n by largest remainder of `data_ratio`; of these, wait_ratio (rounded,
    halves up) need a wait and the others do not, exactly. Candidates have exactly `hole_count`
    holes, uniform over all such sets of cells, and starts and goals uniform over distinct free
    cells. Boards that are unsolvable, UNKNOWN or equal to an earlier one of the set are counted and
    not used. What could not be made is reported by cell.

    Usable under jit; outside of it, close numbers of boards share a program. `jax.vmap` over keys,
    parameters or both agrees with single calls, and `jax.shard_map` shares configurations out over
    devices; under jit alone, all boards would be on all devices. A million two-agent
    boards padded to 10 x 10 take 0.4 GB with the default horizon.

    Args:
        key: typed PRNG key; it alone decides among the boards of the same parameters.
        params: leaves (S,), see `lake_params`; cells that are infeasible, and under jit and vmap
            those beyond `max_size` or `max_agents`, cost nothing and are all shortfall.
        n: boards (static), 1 to 2**24.
        max_size: N, the padding of the boards (static), 2 to 32.
        max_agents: K, the padding of the agents (static), 1 to 5.
        horizon: longest plan, see `solve` (static).
        batch_size: candidates tried at once (static). It does not change the result; by default it
            follows n and the device.
        max_candidates: candidates of one stream after which to give up (static), at most 2**30; by
            default 8 a board, and no fewer than `MAX_CANDIDATES`.
        widths: how many candidates the solver works on at a time, see `solve` (static).
        part: (i, P), make boards of part i, counted from 0, of P parts of all boards: no two parts
            have a board in common, whatever their keys.

    Returns:
        A `Generated`.

    Raises:
        TypeError: `key` is no typed key, or a number is no whole one.
        ValueError: `key` is of kind `rbg` or `unsafe_rbg`, or several keys; a static argument is
            out of range, or the parameters are no (S,) arrays. Outside jit and vmap also where a
            cell that has a share is beyond `max_size` or `max_agents`.
    """
    n = _check(n, max_size, max_agents, batch_size, max_candidates)
    _check_padding(params, max_size, max_agents)
    index, parts = checked_part(part)
    options = PoolOptions(
        *(_slots(n), max_size, max_agents, horizon, batch_size, widths or widths_for(), parts)
    )
    # Accelerators would wait for the host more often, and two slots have no tiers to leave out.
    by_parts = called_apart(key, params) and (max_agents > 2 or default_platform() == "cpu")
    pool = _pool_by_parts(options) if by_parts else _pool(options)
    return _of_one(pool, key, params, n, max_candidates, index)


def generate_sharded(
    key: jax.Array,
    params: LakeParams,
    n: int,
    *,
    devices: tuple[jax.Device, ...] | None = None,
    batch_size: int | None = None,
    max_size: int = 10,
    max_agents: int = 2,
    horizon: int = DEFAULT_HORIZON,
    max_candidates: int | None = None,
    widths: Widths | None = None,
    part: Part = ALL_BOARDS,
) -> Generated:
    """`generate` with each batch of candidates drawn and solved on several devices.

    The result is that of `generate`, on all of them. The devices may be those of several processes
    (`jax.distributed.initialize`), each of which makes the same call.

    Arguments and errors are those of `generate`, except `devices` (None for all devices of all
    processes) and `batch_size`: the candidates tried at once by all devices together, rounded up to
    a multiple of their number.
    """
    chosen = tuple(jax.devices() if devices is None else devices)
    if not chosen:
        raise ValueError("devices: got none, at least one is needed")
    n = _check(n, max_size, max_agents, batch_size, max_candidates)
    _check_padding(params, max_size, max_agents)
    widths = widths or widths_for(chosen[0].platform)
    batch_size = _shared_batch_size(batch_size, n, len(chosen), widths)
    index, parts = checked_part(part)
    options = PoolOptions(_slots(n), max_size, max_agents, horizon, batch_size, widths, parts)
    return _of_one(_pool_on(options, chosen), key, params, n, max_candidates, index)


def _check(
    n: int, max_size: int, max_agents: int, batch_size: int | None, max_candidates: int | None
) -> int:
    """Check what is static, and give n back as a Python integer."""
    for name, value, least, most in (
        ("n", n, 1, 1 << 24),
        ("max_size", max_size, mixture.MIN_SIZE, mixture.MAX_SIZE),
        ("max_agents", max_agents, mixture.MIN_AGENTS, mixture.MAX_AGENTS),
        ("batch_size", batch_size, 1, 1 << 20),
        ("max_candidates", max_candidates, 0, 1 << 30),
    ):
        if value is None:
            continue
        if not isinstance(value, int | np.integer):
            raise TypeError(f"{name}: got {value!r}, a whole number is needed")
        if not least <= value <= most:
            raise ValueError(f"{name}: got {value}, {least} to {most} are allowed")
    return int(n)


def _check_padding(params: LakeParams, max_size: int, max_agents: int) -> None:
    """Raise a ValueError if a cell that has a share does not fit, where values can be looked at."""
    shapes = {np.shape(leaf) for leaf in vars(params).values()}
    if any(len(shape) != 1 for shape in shapes) or len(shapes) > 1 or not called_apart(params):
        return  # other shapes are refused later, and values of a program can't be looked at
    for field, padding, most in (
        ("size", "max_size", max_size),
        ("num_agents", "max_agents", max_agents),
    ):
        values = np.where(np.asarray(params.data_ratio) > 0, np.asarray(getattr(params, field)), 0)
        if (largest := int(values.max(initial=0))) > most:
            raise ValueError(
                f"params.{field}: got {largest}, but {padding} is {most}; "
                f"pass {padding}={largest} or more"
            )


def _slots(n: int) -> int:
    """Round n up to a power of two or, beyond 4096, to a quarter between two: at most 25% more."""
    step = max(5, (n - 1).bit_length() - (3 if n > 4096 else 0))
    return -(-n >> step) << step


def _of_one(
    pool: Pool, key: jax.Array, params: LakeParams, n: int, max_candidates: int | None, part: int
) -> Generated:
    shapes = {name: np.shape(leaf) for name, leaf in vars(params).items()}
    for name, shape in shapes.items():
        if len(shape) != 1 or shape != shapes["size"] or not shape[0]:
            raise ValueError(
                f"params.{name}: got shape {shape}, (S,) is needed, the same for all leaves "
                "(jax.vmap maps over further axes)"
            )
    if not jax.dtypes.issubdtype(getattr(key, "dtype", None), jax.dtypes.prng_key):
        raise TypeError("key: a typed key is needed, such as jax.random.key(0)")
    check_kind(key)
    if key.shape:
        raise ValueError(f"key: got shape {key.shape}, one key is needed (jax.vmap maps over more)")
    most = max(MAX_CANDIDATES, 8 * n) if max_candidates is None else max_candidates
    one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params)
    return _first(pool(key[None], one, *np.array([[n], [most], [part]], np.int32)), n)


@partial(jax.jit, static_argnames="n")
def _first(made: Generated, n: int) -> Generated:
    """Give the only set, leaves (1, ...), without the slots after the first n."""
    made = jax.tree.map(lambda leaf: leaf[0], made)
    boards = (made.instances, made.solutions, made.filled, made.cell)
    instances, solutions, filled, cell = jax.tree.map(lambda leaf: leaf[:n], boards)
    return replace(made, instances=instances, solutions=solutions, filled=filled, cell=cell)


def _shared_batch_size(batch_size: int | None, boards: int, devices: int, widths: Widths) -> int:
    """The batch that is asked for or, if None, a good one of at most 2**20; equal shares."""
    if batch_size is None:
        return min(batch_size_for(boards, widths), (1 << 20) // devices) * devices
    return -(-batch_size // devices) * devices


@cache
def _pool(options: PoolOptions) -> Pool:
    """Fill many configurations in one pool, with further batch axes merged into it."""
    return jit_search(merge_batch_axes(partial(fill_pool, options=options)))


_pool_by_parts = cache(fill_by_parts)


@cache
def _pool_on(options: PoolOptions, devices: tuple[jax.Device, ...]) -> Pool:
    """The pool with its lanes shared out over devices, and everything else on all of them."""
    mesh = jax.sharding.Mesh(np.array(devices), ("lanes",))
    everywhere = jax.sharding.PartitionSpec()
    fill = partial(fill_pool, options=options, axis_name="lanes")
    return jit_search(
        jax.shard_map(fill, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False)
    )
