"""Paired differences, verdicts and tables of DesignBench results."""

import math

import numpy as np
import pytest
from scipy import stats

from engineer import scripted_engineer
from engineer.bench import train_learners
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
from engineer.bench.version import get_track
from jaxlake.errors import UserError

RNG = np.random.default_rng(3)
RATES = RNG.uniform(0.3, 0.7, 20)


def make_entry(engineer: str, final: np.ndarray) -> Entry:
    costs = dict.fromkeys(("designs", "usable", "calls", "tokens"), 5)
    return Entry(engineer=engineer, groups=4, final=tuple(final.tolist()), seconds=1.5, **costs)


def test_difference_is_a_paired_t_interval():
    rule_rates, fixed_rates = RATES + RNG.normal(0.03, 0.02, 20), RATES
    difference = paired_difference(make_entry("rule", rule_rates), make_entry("fixed", fixed_rates))
    low, high = stats.ttest_rel(rule_rates, fixed_rates).confidence_interval(0.95)
    assert difference.mean == pytest.approx((low + high) / 2)
    assert difference.half_width == pytest.approx((high - low) / 2)


def test_difference_pairs_common_learners():
    difference = paired_difference(
        make_entry("rule", RATES[:12] + 0.01), make_entry("fixed", RATES)
    )
    assert difference.mean == pytest.approx(0.01)
    assert difference.half_width == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("gain", "expected"), [(0.05, "reads"), (0.0, NOT_READING)])
def test_verdict_compares_with_shuffled_control(gain, expected):
    noise = np.where(np.arange(20) % 2, 0.01, -0.01)
    rule_entry = make_entry("rule", RATES + gain + noise)
    results = Results(entries=(rule_entry, make_entry("shuffled:rule", RATES)))
    assert verdict(results, rule_entry) == expected
    assert expected in results_table(results)


def test_verdict_requires_a_control():
    rule_entry = make_entry("rule", RATES)
    assert verdict(Results(entries=(rule_entry,)), rule_entry) == "no control"
    assert verdict(Results(entries=(rule_entry,)), make_entry("random", RATES)) == "blind"


def test_comparison_table_pairs_two_files():
    file_results = [
        Results(entries=(make_entry("fixed", RATES), make_entry("rule", RATES + gain)))
        for gain in (0.02, 0.05)
    ]
    last_line = comparison_table(["a", "b"], file_results).splitlines()[-1]
    assert last_line.split() == ["rule", "4", "+2.0", "±0.0", "+5.0", "±0.0", "+3.0", "±0.0"]


def test_read_results_names_the_file_and_its_version(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(UserError, match=r"x\.json: can't be read \(No such file"):
        read_results(path)
    path.write_text("{}")
    with pytest.raises(UserError, match=r"x\.json: can't be read \(not a results file\)"):
        read_results(path)
    outdated_results = Results(version="v0", entries=(make_entry("rule", RATES),))
    path.write_text(outdated_results.model_dump_json())
    with pytest.raises(UserError, match="version must be v1, got v0"):
        read_results(path)
    current_results = outdated_results.model_copy(update={"version": "v1"})
    path.write_text(current_results.model_dump_json())
    assert read_results(path) == current_results


def test_paired_interval_of_50_learners_is_narrow():
    """The half width of a paired interval over 50 learners is below 1.5 points."""
    bench_track = get_track(4)
    learners = bench_track.learners(16)
    final_rates = [
        train_learners(
            lambda run, name=name: scripted_engineer(name, run), learners, bench_track.domain
        ).final_rates
        for name in ("rule", "shuffled:rule")
    ]
    difference_sd = np.std(final_rates[0] - final_rates[1], ddof=1)
    final_sd = np.std(final_rates[0], ddof=1)
    assert 2.0 * difference_sd / math.sqrt(50) < 0.015
    assert difference_sd < 0.3 * final_sd
