"""Calls whose boards exceed the free memory raise before they start."""

import os
from functools import partial

import jax
import numpy as np
import pytest

import jaxlake
from jaxlake.policies import RandomPolicy, roll_out
from jaxlake.runtime import memory
from jaxlake.solver import solve_batch
from tests.jaxlake.solver.boards import make_instances

NUM_BOARDS, HORIZON = 1 << 20, 4096
KEY, PARAMS = jax.random.key(0), jaxlake.lake_params(6)


def make_many_boards():
    board = make_instances([["S G", "F F"]], 2, 2)
    return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (NUM_BOARDS, *leaf.shape[1:])), board)


CALLS = {
    "generate": lambda: jaxlake.generate(KEY, PARAMS, NUM_BOARDS, horizon=HORIZON),
    "generate under vmap": lambda: jax.vmap(
        lambda key: jaxlake.generate(key, PARAMS, NUM_BOARDS // 4, horizon=HORIZON)
    )(jax.random.split(KEY, 4)),
    "generate_sharded": lambda: jaxlake.generate_sharded(KEY, PARAMS, NUM_BOARDS, horizon=HORIZON),
    "solve under vmap": lambda: jax.vmap(lambda board: jaxlake.solve(board, horizon=HORIZON))(
        make_many_boards()
    ),
    "solve under two vmaps": lambda: jax.vmap(
        jax.vmap(lambda board: jaxlake.solve(board, horizon=HORIZON))
    )(jax.tree.map(lambda leaf: leaf.reshape(4, -1, *leaf.shape[1:]), make_many_boards())),
    "solve_batch": lambda: solve_batch(make_many_boards(), horizon=HORIZON),
    "roll_out": lambda: roll_out(KEY, RandomPolicy(), make_many_boards(), max_steps=HORIZON),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_beyond_free_memory_raise(name, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device: 8 << 30)
    function = name.split()[0]
    problem = rf"^{function}: 1,048,576 boards .* need about \d+\.\d GB, but 8\.6 GB of memory are"
    with pytest.raises(MemoryError, match=problem):
        CALLS[name]()


def test_require_memory_uses_the_device_of_the_boards(monkeypatch):
    devices = []
    monkeypatch.setattr(memory, "free_memory", lambda device: devices.append(device) or 0)
    monkeypatch.setattr(memory, "_default_device", lambda: "the default")
    [device] = jax.devices("cpu")[:1]
    require = partial(
        memory.require_memory, "solve_batch", count=NUM_BOARDS, bytes_per_board=HORIZON
    )
    for boards in (np.zeros(4), jax.device_put(np.zeros(4), device)):
        with pytest.raises(MemoryError):
            require(arguments=boards)
    assert devices == ["the default", device]
    monkeypatch.setattr(memory, "_committed_devices", lambda arguments: {device, "another"})
    require(arguments=boards)  # each device holds a part


def test_free_memory_is_below_total_memory():
    free_bytes = memory.free_memory(jax.devices("cpu")[0])
    assert 0 < free_bytes < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


CGROUP_V1, CGROUP_V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("files", "free_bytes"),
    [
        ({}, 8 << 30),
        # The parent's limit applies, and cached files count as free.
        (
            {
                "/proc/self/cgroup": "0::/a/b\n",
                f"{CGROUP_V2}/a/b/memory.max": "max\n",
                f"{CGROUP_V2}/a/memory.max": "5000\n",
                f"{CGROUP_V2}/a/memory.current": "2000\n",
                f"{CGROUP_V2}/a/memory.stat": "anon 7\ninactive_file 600\nactive_file 50\n",
            },
            3650,
        ),
        # In a container, its group is the root.
        (
            {
                "/proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/x\n",
                f"{CGROUP_V1}/memory.limit_in_bytes": "9000\n",
                f"{CGROUP_V1}/memory.usage_in_bytes": "1000\n",
                f"{CGROUP_V1}/memory.stat": (
                    "active_file 5\ntotal_inactive_file 30\ntotal_active_file 4\n"
                ),
            },
            8034,
        ),
    ],
)
def test_free_memory_respects_cgroup_limits(files, free_bytes, monkeypatch):
    files = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  8388608 kB\n"} | files
    monkeypatch.setattr(memory, "_read_text", lambda path: files.get(str(path), ""))
    assert memory.free_memory(jax.devices("cpu")[0]) == free_bytes
