"""One process of several, with virtual devices: `jax.distributed` on this machine's CPU.

`python tests/jaxlake/one_of_many.py ADDRESS PROCESSES INDEX OUTPUT` makes boards and a sweep over
them on the devices of all processes and writes the arrays to the file OUTPUT.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxlake import lake_params
from jaxlake.generator import generate_sharded
from jaxlake.policies import RandomPolicy, ShortestPathPolicy, sweep
from tests.paths import ROOT

LOCAL_DEVICES = 4
BOARDS = 24
SHAPES = {"max_size": 4, "horizon": 16}
CONFIGURATIONS = 3
"""How many configurations the boards are taken to be of, so that 8 devices share out boards."""


def request() -> tuple[jax.Array, Any]:
    """Give the key and the parameters of the boards."""
    return jax.random.key(7), lake_params([3, 4], [0.2, 0.2], [0.5, 0.25])


def tables_of(made: Any, **options: Any) -> Any:
    """Sweep over boards, two policies, with one row of them masked out."""
    boards = jax.tree.map(
        lambda leaf: np.reshape(leaf, (CONFIGURATIONS, -1, *leaf.shape[1:])),
        (made.instances, made.solutions, made.filled),
    )
    boards[2][1, 2:] = False
    policies = (RandomPolicy(), ShortestPathPolicy())
    return sweep(jax.random.key(3), policies, *boards, max_steps=16, **options)


def run_all(
    outputs: Sequence[Path],
    *,
    module: str = "tests.jaxlake.one_of_many",
    local_devices: int = LOCAL_DEVICES,
    timeout: float = 600,
) -> None:
    """Start one process of a module for each output, and wait for all of them to end well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    own = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={local_devices}"}
    command = [sys.executable, "-m", module, address, str(len(outputs))]
    processes = [
        subprocess.Popen(
            [*command, str(index), str(output)],
            cwd=ROOT,
            env=os.environ | own | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index, output in enumerate(outputs)
    ]
    try:
        for process in processes:
            said, _ = process.communicate(timeout=timeout)
            assert process.returncode == 0, said
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(address: str, processes: str, index: str, output: str) -> None:
    jax.distributed.initialize(address, int(processes), int(index))
    assert len(jax.devices()) == LOCAL_DEVICES * int(processes)
    assert len(jax.local_devices()) == LOCAL_DEVICES
    key, params = request()
    made = generate_sharded(key, params, BOARDS, batch_size=64, **SHAPES)
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(made))
    made = jax.tree.map(np.array, made)
    tables = tables_of(made, devices=jax.devices())
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(tables))
    np.savez(output, *jax.tree.leaves((made, jax.tree.map(np.asarray, tables))))


if __name__ == "__main__":
    main(*sys.argv[1:])
