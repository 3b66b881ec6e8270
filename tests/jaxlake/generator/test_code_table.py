"""The set of codes against Python's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.generator.code_table import contains, empty_table, insert


@pytest.mark.parametrize(("values", "rows"), [(3, 2), (40, 64), (1 << 30, 64)])
def test_it_answers_as_a_set_does(values, rows):
    rng = np.random.default_rng(values)
    B, batches = min(16, rows), rows // 16 or 1
    table, stored = empty_table(rows), jnp.zeros((rows, 2), jnp.uint32)
    assert table.size >= 2 * rows
    model: dict[tuple[int, ...], int] = {}
    look, put = jax.jit(contains), jax.jit(insert)
    for batch in range(batches):
        codes = rng.integers(0, values, (B, 2)).astype(np.uint32)
        lanes = batch * B + rng.permutation(B).astype(np.int32)
        active = rng.random(B) < 0.7
        found = look(table, stored, codes, active)
        assert found.tolist() == [
            bool(on) and tuple(code) in model
            for code, on in zip(codes.tolist(), active, strict=True)
        ]
        stored = stored.at[lanes].set(codes)
        table, owner = put(table, stored, codes, lanes, active)
        order = np.argsort(lanes)
        for lane in order[active[order]]:
            model.setdefault(tuple(codes[lane].tolist()), int(lanes[lane]))
        for lane in range(B):
            wanted = model[tuple(codes[lane].tolist())] if active[lane] else lanes[lane]
            assert owner[lane] == wanted
    assert sorted(model.values()) == sorted(set(np.asarray(table).tolist()) - {2**31 - 1})
