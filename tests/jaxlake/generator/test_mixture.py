"""Mixtures: counts, quotas, and errors for invalid fields."""

from dataclasses import replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxlake
from jaxlake.generator.mixture import board_counts, wait_counts
from tests.jaxlake.solver.boards import assert_same, select_rows

_jit_board_counts = jax.jit(board_counts, static_argnums=1)


def test_hole_count_is_exact_for_hundredths():
    hundredths = np.arange(101)
    sizes = np.arange(2, 33)[:, None]
    assert (jaxlake.hole_count(sizes, hundredths / 100) == hundredths * sizes**2 // 100).all()


def test_infeasible_requests_are_explained():
    assert jaxlake.infeasibility(3, 0.5, 2) is None
    assert jaxlake.infeasibility(3, 0.5, 3) == (
        "a 3x3 board with hole_ratio 0.5 has 4 holes and 5 free cells, "
        "but 3 agents need 6 for their starts and goals"
    )
    assert jaxlake.infeasibility(1, 0.0, 1).startswith("size must be at least 2, got 1")
    assert jaxlake.infeasibility(3, 1.5, 1).startswith("hole_ratio must be in [0, 1], got 1.5")
    assert jaxlake.infeasibility(3, float("nan"), 1).startswith(
        "hole_ratio must be in [0, 1], got nan"
    )
    assert jaxlake.infeasibility(3, 0.1, 0).startswith("num_agents must be at least 1, got 0")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 1}, r"size must be in \[2, 32\], got 1"),
        ({"size": [3, 33]}, r"size must be in \[2, 32\], got 33"),
        ({"size": 3.5}, "size must be an integer or a sequence of them, got 3.5"),
        ({"size": []}, r"size must be an integer or a sequence of them, got \[\]"),
        ({"hole_ratio": 1.5}, r"hole_ratio must be in \[0, 1\], got 1.5"),
        ({"wait_ratio": float("nan")}, r"wait_ratio must be in \[0, 1\], got nan"),
        ({"wait_ratio": "0.5"}, "wait_ratio must be a number or a sequence of them, got '0.5'"),
        ({"num_agents": 6}, r"num_agents must be in \[1, 5\], got 6"),
        (
            {"num_agents": [1, 2], "wait_ratio": 0.5},
            "wait_ratio must be 0 for one agent, .*, got 0.5",
        ),
        ({"data_ratio": -1}, r"data_ratio must be in \[0, 1e\+06\], got -1"),
        ({"data_ratio": float("inf")}, "data_ratio must be in .*, got inf"),
        ({"data_ratio": [0, 0]}, "data_ratio must be positive for at least one component"),
        ({"size": [3, 4], "hole_ratio": [0.1] * 3}, "size must have 1 or 3 values, got 2"),
        (
            {"size": [[3], [4]], "wait_ratio": [[0.1]] * 3},
            r"wait_ratio must have a shape .*, got \(3, 1\)",
        ),
        (
            {"data_ratio": [[0.5, 0], [0, 0]]},
            "data_ratio must be positive for at least one component",
        ),
        ({"hole_ratio": np.float32([[0.5], [-1]])}, r"hole_ratio must be in \[0, 1\], got -1.0"),
    ],
)
def test_out_of_range_values_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        jaxlake.lake_params(**({"size": 4} | fields))


def test_lake_params_of_arrays_equal_single_ones():
    sizes, hole_ratios = np.array([3, 4, 5]), np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    params = jaxlake.lake_params(sizes[:, None], hole_ratios, [0.0, 0.5])
    for i in range(3):
        expected = jaxlake.lake_params(int(sizes[i]), hole_ratios[i].tolist(), [0.0, 0.5])
        assert_same(select_rows(params, i), expected)
    large_params = jaxlake.lake_params(np.full((10**6, 1), 6), np.linspace(0, 1, 10**6)[:, None])
    assert {leaf.shape for leaf in jax.tree.leaves(large_params)} == {(10**6, 1)}


def test_lake_params_accept_traced_ratios():
    def make_params(size, hole_ratios):
        return jaxlake.lake_params(size, hole_ratios, num_agents=3)

    sizes, hole_ratios = ((4,), (5,)), np.array([[0.25], [0.5]])
    expected = make_params(np.array(sizes), hole_ratios)
    assert_same(jax.jit(make_params, static_argnums=0)(sizes, hole_ratios), expected)
    assert_same(jax.vmap(make_params)(np.array([4, 5]), np.array([0.25, 0.5])), expected)
    actual = jax.jit(lambda low, high: make_params(4, [low, high]))(0.25, 0.5)
    assert_same(actual, make_params(4, [0.25, 0.5]))
    with pytest.raises(ValueError, match=r"size must be in \[2, 32\], got 40"):
        jax.jit(make_params, static_argnums=0)(40, 0.5)
    with pytest.raises(ValueError, match="must be an integer or a sequence of them"):
        jax.vmap(make_params)(np.array([4.0, 5.0]), np.array([0.25, 0.5]))


@settings(max_examples=60)
@given(
    hundredths=st.lists(st.integers(0, 100), min_size=5, max_size=5).filter(any),
    n=st.sampled_from([1, 7, 10, 512, 4000, 1_000_000]),
)
def test_shares_follow_largest_remainders(hundredths, n):
    params = jaxlake.lake_params(4, data_ratio=[value / 100 for value in hundredths])
    counts = _jit_board_counts(params, n).tolist()
    assert sum(counts) == n
    exact_shares = [Fraction(value * n, sum(hundredths)) for value in hundredths]
    # float32 can't distinguish remainders that differ by less than its precision.
    tolerance = Fraction(1, 1000) + Fraction(n, 2**22)
    for count, share in zip(counts, exact_shares, strict=True):
        assert abs(count - share) < 1 + tolerance
    pairs = list(zip(counts, exact_shares, strict=True))
    up_remainders = [share % 1 for count, share in pairs if count > share]
    down_remainders = [share % 1 for count, share in pairs if count < share]
    smallest, largest = min(up_remainders, default=1), max(down_remainders, default=0)
    assert smallest >= largest - 2 * tolerance


@pytest.mark.parametrize("count_boards", [board_counts, _jit_board_counts])
@pytest.mark.parametrize(
    ("weights", "n", "counts"),
    [
        # 7,830,188.68 and 2,169,811.32 boards: float32 would round both up.
        ([83, 23], 10**7, [7_830_189, 2_169_811]),
        ([5, 17, 19, 87], 10**7, [390_625, 1_328_125, 1_484_375, 6_796_875]),
        # Of equal remainders, the earlier one is rounded up.
        ([1, 1, 1], 10, [4, 3, 3]),
        ([1, 2, 1], 2, [1, 1, 0]),
        ([1, 1, 1, 1], 10, [3, 3, 2, 2]),
        ([1, 1], 10**7 + 1, [5_000_001, 5_000_000]),
    ],
)
def test_remainder_ties_go_to_the_earlier_cell(count_boards, weights, n, counts):
    params = jaxlake.lake_params(4, data_ratio=[weight / 100 for weight in weights])
    assert count_boards(params, n).tolist() == counts


def test_wait_counts_are_exact_for_hundredths():
    hundredths = np.arange(101)
    counts = np.arange(4001)[:, None]
    ratios = np.broadcast_to(np.float32(hundredths / 100), (4001, 101))
    params = replace(jaxlake.lake_params(4), wait_ratio=jnp.asarray(ratios))
    waits = jax.jit(wait_counts)(params, jnp.broadcast_to(jnp.int32(counts), (4001, 101)))
    assert (waits == (2 * hundredths * counts + 100) // 200).all()


@pytest.mark.parametrize("transform", [jax.jit, lambda function: function])
def test_wait_counts_are_exact_for_the_largest_set(transform):
    ratios = [Fraction(1, 3), Fraction(5, 6), Fraction(1, 30_000), Fraction(29_999, 30_000)]
    ratios += [Fraction(k, 100) for k in range(101)] + [Fraction(k, 10_000) for k in (1, 625, 9999)]
    ratios += [Fraction(k, 1024) for k in (1, 3, 511, 1023)] + [Fraction(2**23 + 1, 2**24)]
    ratios += [Fraction(1, 2**31), Fraction(1, 2**40), Fraction(2**24 - 1, 2**24)]
    counts = [32_769, 65_535, 4_200_001, 10**7, 16_777_217, 100_000_050, 10**9, 2**31 - 1]
    counts += np.random.default_rng(0).integers(2**15, 2**31, 500).tolist()
    params = replace(
        jaxlake.lake_params(4), wait_ratio=jnp.asarray([float(x) for x in ratios], jnp.float32)
    )
    count_waits = transform(jax.vmap(wait_counts, (None, 0)))
    waits = count_waits(
        params, jnp.asarray(counts, jnp.int32)[:, None] + jnp.zeros(len(ratios), int)
    )
    expected = [[(2 * ratio * n + 1) // 2 for ratio in ratios] for n in counts]
    np.testing.assert_array_equal(waits, np.array(expected, np.int64))
