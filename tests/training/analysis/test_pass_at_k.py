"""pass@k against the enumeration of all choices of k answers, and its intervals."""

import itertools

import numpy as np
import pytest

from jaxlake import wilson_interval
from training.analysis.pass_at_k import check_samples, pass_rate, pass_sizes
from training.errors import UserError


def test_pass_rate_matches_enumeration():
    answers = {"a": [1, 0, 0, 1, 0], "b": [0, 0, 0, 0, 0], "c": [0, 1, 0, 0, 0], "d": [1, 1]}
    outcomes = [(board, bool(value)) for board, values in answers.items() for value in values]
    for k in (1, 2, 3, 5):
        shares = [
            np.mean([any(choice) for choice in itertools.combinations(values, k)])
            for values in answers.values()
            if len(values) >= k
        ]
        assert pass_rate(outcomes, k)[0] == pytest.approx(np.mean(shares))
    assert np.isnan(pass_rate(outcomes, 6)[0])


@pytest.mark.parametrize("num_valid", [0, 1, 7, 19, 20])
def test_pass_rate_of_single_answers_has_wilson_interval(num_valid: int):
    outcomes = [(board, board < num_valid) for board in range(20)]
    low, high = map(float, wilson_interval(num_valid, 20))
    assert pass_rate(outcomes) == pytest.approx((num_valid / 20, low, high))


def test_pass_rate_counts_equal_answers_to_a_board_once():
    repeated_outcomes = [(board, board < 7) for board in range(20) for _ in range(8)]
    assert pass_rate(repeated_outcomes) == pytest.approx(pass_rate(repeated_outcomes[::8]))
    rng = np.random.default_rng(0)
    outcomes = [(board, bool(rng.random() < 0.35)) for board in range(20) for _ in range(8)]
    _, low, high = pass_rate(outcomes)
    wilson_width = np.subtract(*wilson_interval(56, 160)[::-1])
    assert 0.7 * wilson_width < high - low < 1.4 * wilson_width


def test_pass_sizes_are_powers_of_two_and_the_count():
    assert [pass_sizes(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_check_samples_rejects_greedy_samples():
    check_samples(1, 0.0)
    check_samples(8, 0.5)
    with pytest.raises(UserError, match=r"--samples must be 1 with validation\.temp"):
        check_samples(8, 0.0)
