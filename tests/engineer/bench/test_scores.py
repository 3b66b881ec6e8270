import math

import numpy as np
import pytest
from scipy import stats

from engineer import scripted_engineer
from engineer.bench import play
from engineer.bench.scores import (
    NOT_READING,
    Entry,
    Results,
    comparison_table,
    paired_difference,
    read_results,
    results_table,
    verdict,
)
from engineer.bench.version import track
from jaxlake.errors import UserError

RNG = np.random.default_rng(3)
RATES = RNG.uniform(0.3, 0.7, 20)


def entry(engineer: str, final: np.ndarray) -> Entry:
    costs = dict.fromkeys(("designs", "usable", "calls", "tokens"), 5)
    return Entry(engineer=engineer, groups=4, final=tuple(final.tolist()), seconds=1.5, **costs)


def test_difference_is_a_paired_t_interval():
    one, other = RATES + RNG.normal(0.03, 0.02, 20), RATES
    found = paired_difference(entry("rule", one), entry("fixed", other))
    low, high = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert found.mean == pytest.approx((low + high) / 2)
    assert found.half_width == pytest.approx((high - low) / 2)


def test_difference_pairs_common_learners():
    found = paired_difference(entry("rule", RATES[:12] + 0.01), entry("fixed", RATES))
    assert found.mean == pytest.approx(0.01)
    assert found.half_width == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("gain", "says"), [(0.05, "reads"), (0.0, NOT_READING)])
def test_verdict_compares_with_shuffled_control(gain, says):
    noise = np.where(np.arange(20) % 2, 0.01, -0.01)
    own = entry("rule", RATES + gain + noise)
    results = Results(entries=(own, entry("shuffled:rule", RATES)))
    assert verdict(results, own) == says
    assert says in results_table(results)


def test_verdict_requires_a_control():
    own = entry("rule", RATES)
    assert verdict(Results(entries=(own,)), own) == "no control"
    assert verdict(Results(entries=(own,)), entry("random", RATES)) == "blind"


def test_comparison_table_pairs_two_files():
    files = [
        Results(entries=(entry("fixed", RATES), entry("rule", RATES + gain)))
        for gain in (0.02, 0.05)
    ]
    line = comparison_table(["a", "b"], files).splitlines()[-1]
    assert line.split() == ["rule", "4", "+2.0", "±0.0", "+5.0", "±0.0", "+3.0", "±0.0"]


def test_read_results_names_the_file_and_its_version(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(UserError, match=r"x\.json: can't be read \(No such file"):
        read_results(path)
    path.write_text("{}")
    with pytest.raises(UserError, match=r"x\.json: can't be read \(not a results file\)"):
        read_results(path)
    old = Results(version="v0", entries=(entry("rule", RATES),))
    path.write_text(old.model_dump_json())
    with pytest.raises(UserError, match="version must be v1, got v0"):
        read_results(path)
    own = old.model_copy(update={"version": "v1"})
    path.write_text(own.model_dump_json())
    assert read_results(path) == own


def test_fifty_learners_tell_three_points():
    """The half width of a paired interval over 50 learners is below 1 point."""
    course = track(4)
    learners = course.learners(16)
    finals = [
        play(lambda run, name=name: scripted_engineer(name, run), learners, course.domain).final
        for name in ("rule", "shuffled:rule")
    ]
    apart = np.std(finals[0] - finals[1], ddof=1)
    alone = np.std(finals[0], ddof=1)
    assert 2.0 * apart / math.sqrt(50) < 0.015
    assert apart < 0.3 * alone
