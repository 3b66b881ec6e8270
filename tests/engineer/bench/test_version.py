"""The frozen benchmark: its learners and their results must never change."""

import hashlib

import numpy as np
import pytest

from engineer import scripted_engineer
from engineer.bench import train_learners
from engineer.bench.version import SIZES, STAGES, get_track


def hash_arrays(*arrays: np.ndarray, decimals: int) -> str:
    """Hash rounded numbers, so that last bits of other processors don't matter."""
    content = b"".join((np.round(array, decimals) + 0.0).tobytes() for array in arrays)
    return hashlib.sha256(content).hexdigest()[:16]


LEARNER_DIGESTS = {2: "817a44fa6c9b3f8f", 4: "01807222029093c4", 8: "de7ef6206c28310d"}
RATE_DIGESTS = {2: "1df45a9112db17e7", 4: "7ff658635d9fae9f", 8: "6299d2b9f2555903"}


@pytest.mark.parametrize("groups", SIZES)
def test_track_has_the_frozen_learners(groups):
    learners = get_track(groups).learners(5)
    assert learners.skill.shape == (5, groups)
    assert learners.drift.shape == (5, STAGES, groups)
    assert hash_arrays(*learners, decimals=9) == LEARNER_DIGESTS[groups]


@pytest.mark.parametrize("groups", SIZES)
def test_play_gives_the_frozen_rates_of_the_rule(groups):
    bench_track = get_track(groups)
    result = train_learners(
        lambda run: scripted_engineer("rule", run), bench_track.learners(5), bench_track.domain
    )
    assert hash_arrays(result.rates, decimals=6) == RATE_DIGESTS[groups]


def test_track_rejects_other_numbers_of_groups():
    with pytest.raises(ValueError, match="groups must be one of 2, 4, 8, got 3"):
        get_track(3)
