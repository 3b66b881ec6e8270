"""Reading scores of engineers that read all facts, all but one, or none."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from engineer import Domain
from engineer.context.symbols import CompactContext, CompactRow
from engineer.edits import edits_text
from engineer.engineers.rule import compute_rule_edits
from engineer.lake import Bounds, lake_domain
from engineer.scoring.reading import ReadingReport, make_reading_set, measure_reading
from engineer.synthetic import FACTS

LAKE = lake_domain(Bounds(sizes=(3, 4, 5), max_hole_ratio=0.4, max_wait_ratio=0.5, min_share=0.1))
SIGNS = {"-": -1, "=": 0, "+": 1, "?": None}
NATS_PER_WRONG_EDIT = 3.0


def parse_context(context: str, domain: Domain) -> CompactContext:
    """Parse a compact context."""
    state_line, *rows, title, end = context.split("\n")
    assert (title, end) == ("edits", "")
    groups = {}
    for group, row in zip(domain.space.groups, rows, strict=True):
        _, valid, failure_1, failure_2, trend, learnability, *knobs = row.split(" ")
        levels = [int(re.sub(r"\D", "", word)) for word in knobs[::2]]
        signs = [SIGNS[word] for word in knobs[1::2]]
        last_edit = dict(zip(domain.space.knobs, signs, strict=True))
        groups[group] = CompactRow(
            valid=None if valid == "?" else int(valid.removeprefix("valid")),
            failures=None
            if failure_1 == "?"
            else tuple(w for w in (failure_1, failure_2) if w != "none"),
            trend=SIGNS[trend],
            learnability=None if learnability == "?" else int(learnability.removeprefix("learn")),
            levels=dict(zip(domain.space.knobs, levels, strict=True)),
            last_edit=None if None in signs else {k: int(v or 0) for k, v in last_edit.items()},
        )
    state = state_line.split(" ")[1]
    return CompactContext(None if state == "?" else state, "refused" in state_line, groups)  # type: ignore[arg-type]


BLANK_FACTS = {
    "valid": 5,
    "failures": (),
    "trend": 0,
    "learnability": 5,
    "levels": dict.fromkeys(LAKE.space.knobs, 5),
    "last_edit": dict.fromkeys(LAKE.space.knobs, 0),
}


@dataclass(frozen=True)
class RuleFollower:
    """Engineer that answers by the rule but ignores some facts."""

    ignored_facts: tuple[str, ...] = ()
    transform: Callable[[str], str] = str

    def _answer(self, context: str) -> str:
        compact_context = parse_context(context, LAKE)
        blanks = {fact: BLANK_FACTS[fact] for fact in self.ignored_facts}
        groups = {group: replace(row, **blanks) for group, row in compact_context.groups.items()}
        return edits_text(compute_rule_edits(replace(compact_context, groups=groups), LAKE), LAKE)

    def answers(self, contexts: Sequence[str]) -> list[str]:
        return [self.transform(self._answer(context)) for context in contexts]

    def answer_costs(self, contexts: Sequence[str], answers: Sequence[str]) -> list[float]:
        wrong_edit_counts = (
            sum(a != b for a, b in zip(self._answer(context), answer, strict=True))
            for context, answer in zip(contexts, answers, strict=True)
        )
        return [0.1 + NATS_PER_WRONG_EDIT * count for count in wrong_edit_counts]


class UneditedFollower(RuleFollower):
    """Engineer that never edits."""

    def _answer(self, context: str) -> str:
        return "\n".join(f"{LAKE.symbol(group)} = = =" for group in LAKE.space.groups)


CONTEXTS = make_reading_set(LAKE, 60, seed=1)


def get_flip_rates(reading: ReadingReport) -> dict[str, float | None]:
    return {fact.fact: fact.flip_rate for fact in reading.facts}


def test_rule_reads_every_fact():
    reading = measure_reading(CONTEXTS, RuleFollower())
    assert set(get_flip_rates(reading).values()) == {1.0}
    assert (reading.accuracy, reading.well_formed) == (1.0, 1.0)
    assert reading.answer_cost == pytest.approx(0.1)
    assert all(
        fact.rule_changes > 0 and fact.gap > 2 * fact.gap_error > 0 for fact in reading.facts
    )
    assert reading.sentence().startswith("It reads: for every fact at least ")
    record = reading.model_dump(mode="json")
    assert record["nats"] == reading.answer_cost
    assert record["facts"][0].keys() == {"fact", "gap", "gap_error", "turned", "flips"}
    assert ReadingReport.model_validate(record) == reading
    gaps = [fact.gap for fact in reading.facts]
    assert f" {min(gaps):.1f} to {max(gaps):.1f} nats less probable." in reading.sentence()


@pytest.mark.parametrize("fact", FACTS)
def test_reading_detects_an_ignored_fact(fact):
    reading = measure_reading(CONTEXTS, RuleFollower(ignored_facts=(fact,)))
    assert get_flip_rates(reading)[fact] == 0.0
    (score,) = [fact_score for fact_score in reading.facts if fact_score.fact == fact]
    assert (score.gap, score.gap_error) == (0.0, 0.0)
    assert fact in reading.unread
    read_part, ignored_part = reading.sentence().split(", but not ")
    assert f"{fact} (0.0%)" in ignored_part
    assert fact not in read_part
    assert reading.accuracy < 1.0


def test_unedited_answers_have_zero_flip_rates():
    reading = measure_reading(CONTEXTS, UneditedFollower())
    assert set(get_flip_rates(reading).values()) == {0.0}
    assert reading.accuracy == reading.unedited > 0.3
    assert reading.unread == FACTS
    assert reading.sentence().startswith("It doesn't read: ")
