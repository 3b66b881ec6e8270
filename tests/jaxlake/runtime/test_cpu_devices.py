"""One device per core, and XLA's flags for loops over boards."""

import json
import subprocess
import sys

import jax
import pytest

import jaxlake
from jaxlake.runtime.cpu_devices import FLAGS_FOR_SEARCHES, add_search_flags


def test_flags_are_added_once_and_keep_user_values():
    user_flags = "--xla_cpu_use_fusion_emitters=true --xla_dump_to=/elsewhere"
    environment = {"XLA_FLAGS": user_flags}
    for _ in range(2):
        add_search_flags(environment)
        assert environment["XLA_FLAGS"] == f"{user_flags} {FLAGS_FOR_SEARCHES[0]}"


def test_use_all_cores_fails_after_first_computation():
    jax.block_until_ready(jax.numpy.zeros(()))
    with pytest.raises(RuntimeError, match="right after the imports"):
        jaxlake.use_all_cores(7)
    assert jax.config.values["jax_num_cpu_devices"] != 7


def test_use_all_cores_sets_devices_and_flags():
    script = """
import json, os, sys
import jax, jaxlake
assert jaxlake.use_all_cores(3) == 3
print(json.dumps([len(jax.devices()), float(jax.numpy.ones(2).sum()), os.environ["XLA_FLAGS"]]))
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    num_devices, total, flags = json.loads(process.stdout)
    assert (num_devices, total) == (3, 2.0)
    assert all(flag in flags for flag in FLAGS_FOR_SEARCHES)
