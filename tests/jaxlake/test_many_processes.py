"""`jax.distributed` processes with several devices each return the results of one device."""

import jax
import numpy as np
import pytest

from jaxlake.generator import generate
from tests.jaxlake import one_of_many
from tests.jaxlake.solver.boards import assert_same


@pytest.mark.slow
def test_two_processes_of_four_devices_equal_one_device(tmp_path):
    files = [tmp_path / f"{index}.npz" for index in range(2)]
    one_of_many.run_all(files)
    key, params = one_of_many.make_request()
    lakes = jax.device_get(generate(key, params, one_of_many.NUM_BOARDS, **one_of_many.SHAPES))
    lakes = jax.tree.map(np.array, lakes)
    assert lakes.filled.all()
    tables = jax.device_get(one_of_many.sweep_tables(lakes))
    assert tables.failures.sum(axis=(2, 3, 4, 5, 6)).tolist() == [[8, 2, 8]] * 2
    for file in files:
        with np.load(file) as arrays:
            assert_same(jax.tree.leaves((lakes, tables)), list(arrays.values()))
