"""The engineer inside another trainer."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from engineer import (
    Designer,
    LearnabilityEngineer,
    Proposal,
    RowPool,
    RuleEngineer,
    Task,
    knob_domain,
    start_configuration,
)

DOMAIN = knob_domain(("sums", "products"), {"digits": "digits of each number"})


def test_design_follows_the_counts():
    designer = Designer(DOMAIN, LearnabilityEngineer())
    assert designer.configuration["sums"] == {"data_ratio": 0.5, "digits": 0.0}
    record = designer.design({"sums": (np.int64(64), 64), "products": (32, 64)})
    assert record.kind == "accepted"
    assert {change.field for change in record.diff} == {
        "sums.data_ratio",
        "sums.digits",
        "products.data_ratio",
    }
    assert designer.configuration == {
        "sums": {"data_ratio": 0.05, "digits": 0.1},
        "products": {"data_ratio": 0.95, "digits": 0.0},
    }
    assert "There was no training" not in record.context


def test_design_shows_the_engineer_earlier_stages():
    designer = Designer(DOMAIN, RuleEngineer(), start_configuration(DOMAIN, 0.5))
    designer.design({"sums": (60, 64), "products": (30, 64)})
    assert designer.configuration["sums"]["digits"] == 0.6
    record = designer.design({"sums": (20, 64), "products": (30, 64)})
    assert designer.configuration["sums"]["digits"] == 0.5  # taken back
    assert "| 1 | initial | sums | 0.5 | 0.5 | ? | 94% |" in record.context


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"sum": (1, 2)}, "groups of counts must be sums, products, got 'sum'"),
        ({"sums": (3, 2)}, "counts of sums must be 0 <= valid <= all, got 3, 2"),
        ({"sums": (0, 0)}, "counts must contain at least one answer, got none"),
    ],
)
def test_design_rejects_bad_counts(counts, message):
    with pytest.raises(ValueError, match=message):
        Designer(DOMAIN, RuleEngineer()).design(counts)


@dataclass(frozen=True)
class SilentEngineer:
    name: str = "silent"

    def propose(self, task: Task) -> Proposal:
        return Proposal("no idea", 0.0)


def test_design_without_answer_keeps_configuration():
    designer = Designer(DOMAIN, SilentEngineer())
    initial_configuration = designer.configuration
    record = designer.design({"sums": (1, 2)})
    assert record.kind == "kept"
    assert "no complete JSON object" in record.reason
    assert designer.configuration == initial_configuration


def test_load_state_dict_resumes_identically():
    designer, resumed_designer = Designer(DOMAIN, RuleEngineer()), Designer(DOMAIN, RuleEngineer())
    for valid in (60, 30):
        designer.design({"sums": (valid, 64), "products": (10, 64)})
    resumed_designer.load_state_dict(json.loads(json.dumps(designer.state_dict())))
    counts = {"sums": (40, 64), "products": (30, 64)}
    assert designer.design(counts).context == resumed_designer.design(counts).context
    assert designer.configuration == resumed_designer.configuration


@pytest.mark.parametrize(
    ("groups", "knobs", "message"),
    [
        (("a b",), {}, "groups must be names without blanks, got 'a b'"),
        ((), {}, "groups must be one or more different names, got none"),
        (("a", "a"), {}, "groups must be one or more different names, got a, a"),
        (("a",), {"data_ratio": "its share"}, "knobs must be one or more different names"),
    ],
)
def test_knob_domain_rejects_bad_names(groups, knobs, message):
    with pytest.raises(ValueError, match=message):
        knob_domain(groups, knobs)


def test_draw_follows_share_and_difficulty():
    pool = RowPool(["hard"] * 100 + ["easy"] * 100, [*range(100, 200), *range(100)])
    assert pool.groups == ("easy", "hard")
    configuration = {
        "easy": {"data_ratio": 0.25, "difficulty": 1.0},
        "hard": {"data_ratio": 0.75, "difficulty": 0.5},
    }
    rng = np.random.default_rng(0)
    rows = np.array([pool.draw(configuration, rng) for _ in range(400)])
    easy_rows = rows[rows >= 100] - 100
    assert len(easy_rows) == pytest.approx(100, abs=30)
    assert (easy_rows.min(), easy_rows.max()) == (89, 99)
    hard_rows = rows[rows < 100]
    assert (hard_rows.min(), hard_rows.max()) == (40, 59)
