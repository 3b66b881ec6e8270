"""One of several processes that share a computation through `jax.distributed`, on a CPU.

`python tests/jaxlake/one_of_many.py ADDRESS PROCESSES INDEX OUTPUT` generates boards and sweeps
over them on the devices of all processes, and writes the arrays to the file OUTPUT.
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

NUM_LOCAL_DEVICES = 4
NUM_BOARDS = 24
SHAPES = {"max_size": 4, "horizon": 16}
NUM_CONFIGURATIONS = 3
"""Number of configurations of the sweep; with 3, 8 devices split the boards instead."""


def make_request() -> tuple[jax.Array, Any]:
    """Return the key and the parameters of the boards."""
    return jax.random.key(7), lake_params([3, 4], [0.2, 0.2], [0.5, 0.25])


def sweep_tables(lakes: Any, **options: Any) -> Any:
    """Sweep two policies over the boards, with some boards masked."""
    boards = jax.tree.map(
        lambda leaf: np.reshape(leaf, (NUM_CONFIGURATIONS, -1, *leaf.shape[1:])),
        (lakes.instances, lakes.solutions, lakes.filled),
    )
    boards[2][1, 2:] = False
    policies = (RandomPolicy(), ShortestPathPolicy())
    return sweep(jax.random.key(3), policies, *boards, max_steps=16, **options)


def run_all(
    outputs: Sequence[Path],
    *,
    module: str = "tests.jaxlake.one_of_many",
    num_local_devices: int = NUM_LOCAL_DEVICES,
    timeout: float = 600,
) -> None:
    """Run a module in one process per output, and wait until all succeed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    xla_flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={num_local_devices}"}
    command = [sys.executable, "-m", module, address, str(len(outputs))]
    processes = [
        subprocess.Popen(
            [*command, str(index), str(output)],
            cwd=ROOT,
            env=os.environ | xla_flags | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for index, output in enumerate(outputs)
    ]
    try:
        for process in processes:
            log, _ = process.communicate(timeout=timeout)
            assert process.returncode == 0, log
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main(address: str, num_processes: str, index: str, output: str) -> None:
    jax.distributed.initialize(address, int(num_processes), int(index))
    assert len(jax.devices()) == NUM_LOCAL_DEVICES * int(num_processes)
    assert len(jax.local_devices()) == NUM_LOCAL_DEVICES
    key, params = make_request()
    lakes = generate_sharded(key, params, NUM_BOARDS, batch_size=64, **SHAPES)
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(lakes))
    lakes = jax.tree.map(np.array, lakes)
    tables = sweep_tables(lakes, devices=jax.devices())
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(tables))
    np.savez(output, *jax.tree.leaves((lakes, jax.tree.map(np.asarray, tables))))


if __name__ == "__main__":
    main(*sys.argv[1:])
