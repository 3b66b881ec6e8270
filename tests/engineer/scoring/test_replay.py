import json
import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings

import engineer
from engineer.lake import Bounds, lake_domain
from engineer.scoring.replay import ScoredDesign, format_scores, replay_engineers, score_design
from tests.engineer.builders import answer, lake
from tests.engineer.random_views import views_and_proposals

ONCE = engineer.DesignSettings(attempts=1)


@dataclass(frozen=True)
class Scripted:
    """Says one text after the other, None for no answer."""

    texts: tuple[str | None, ...]
    name: str = "scripted"

    def propose(self, task: engineer.Task) -> engineer.Proposal:
        text = self.texts[task.attempt]
        if text is None:
            raise engineer.EngineerError("no answer")
        return engineer.Proposal(text, 0.5, tokens=len(text))


def said(view: engineer.StageView, *texts: str | None) -> ScoredDesign:
    settings = engineer.DesignSettings(attempts=len(texts))
    return score_design(view, engineer.run_design(Scripted(texts), view, settings))


def test_keeping_the_configuration_changes_nothing(view):
    row = said(view, engineer.answer_text(view.current))
    assert (row.kind, row.schema_valid, row.repairs) == ("accepted", True, {})
    assert (row.edit_distance, row.preserved) == (0.0, 1.0)
    assert row.expected_learnability.gain == 0.0
    assert row.behaviours.salience is None
    assert row.configuration == view.current


def test_the_edit_distance_is_in_steps_and_data_that_moved_counts_once(view):
    # Two steps of data from 3 to 4, three of holes up, one of waits down.
    text = answer(s3_data_ratio=0.4, s4_data_ratio=0.4, s4_hole_ratio=0.25, s5_wait_ratio=0.95)
    row = said(view, text)
    assert row.edit_distance == pytest.approx(2 + 3 + 1)
    assert row.preserved == pytest.approx(5 / 9)


def test_a_useless_first_answer_is_told_from_one_that_only_needed_repairs(view):
    good = engineer.answer_text(view.current)
    assert not said(view, "let me think", good).schema_valid
    assert said(view, "let me think", good).kind == "retried"
    assert not said(view, None, good).schema_valid
    assert not said(view, '{"3": {"data_ratio": 1}}').schema_valid
    assert said(view, good, "never asked for").schema_valid
    text = answer(s3_hole_ratio=7.0, s4_wait_ratio=-1.0)
    repaired = said(view, text)
    assert (repaired.kind, repaired.schema_valid) == ("repaired", True)
    assert repaired.repairs["clamp"] == 2
    record = engineer.run_design(Scripted((text,)), view, ONCE)
    assert sum(repaired.repairs.values()) == len(record.repairs)


def test_an_answer_is_well_formed_whether_or_not_its_instances_can_be_made(view):
    crowded = lake_domain(Bounds(sizes=(2, 4, 5)), num_agents=3)
    current = lake((0, 0, 0), (0.5, 0, 0), (0.5, 0, 0), sizes=(2, 4, 5))
    asked = answer(current, s2_data_ratio=0.5, s4_data_ratio=0.0)
    row = said(replace(view, domain=crowded, current=current), asked)
    assert (row.kind, row.schema_valid) == ("kept", True)
    nothing = answer(s3_data_ratio=0.0, s4_data_ratio=0.0, s5_data_ratio=0.0)
    assert not said(view, nothing).schema_valid


def test_an_engineer_without_a_usable_answer_is_scored_as_keeping(view):
    row = said(view, "no", None)
    assert (row.kind, row.schema_valid, row.edit_distance) == ("kept", False, 0.0)
    assert row.configuration == view.current
    assert "no answer" in row.reason
    assert row.tokens == len("no")


def test_no_answer_at_all_is_no_valid_one(view):
    spent = engineer.DesignSettings.model_validate({"budget": {"engineer_tokens": 0}})
    row = score_design(view, engineer.run_design(Scripted(("never asked",)), view, spent))
    assert (row.kind, row.schema_valid, row.tokens) == ("kept", False, 0)


def test_data_moved_to_learnable_groups_is_a_gain(view):
    # Of the answers 82%, 50% and 8% are valid.
    better = said(view, answer(s3_data_ratio=0.3, s4_data_ratio=0.5))
    worse = said(view, answer(s4_data_ratio=0.1, s5_data_ratio=0.4))
    assert better.expected_learnability.gain > 0 > worse.expected_learnability.gain
    assert better.expected_learnability.current == worse.expected_learnability.current
    assert better.behaviours.task_modelling > worse.behaviours.task_modelling


def test_all_engineers_are_asked_the_same(view):
    asked: list[tuple[str, int]] = []

    def generate(
        prompt: str, schema: object, seed: int, most: int | None
    ) -> engineer.GeneratedText:
        asked.append((prompt, seed))
        return engineer.GeneratedText(engineer.answer_text(view.current), 77)

    settings = engineer.DesignSettings(style="compact", attempts=2)
    engineers = [
        engineer.LanguageModelEngineer(generate, "first"),
        engineer.RuleEngineer(),
        engineer.LanguageModelEngineer(generate, "second"),
    ]
    rows = replay_engineers(view, engineers, settings, seed=lambda attempt: 40 + attempt)
    assert [row.engineer for row in rows] == ["first", "rule", "second"]
    assert len(asked) == 2
    assert asked[0] == asked[1]
    assert asked[0][1] == 40
    assert (rows[0].tokens, rows[1].tokens, rows[2].tokens) == (77, 0, 77)
    assert rows[0].configuration == rows[2].configuration == view.current
    assert rows[1].edit_distance > 0


def test_what_was_scored_is_read_back_from_json(view):
    row = said(view, answer(s3_hole_ratio=0.25))
    text = row.model_dump_json()
    assert json.loads(text)["configuration"] == row.configuration.model_dump(mode="json")
    assert json.loads(text)["behaviours"].keys() == row.behaviours.model_dump().keys()


def test_format_scores_aligns_its_columns(view):
    long_named = engineer.RuleEngineer("a name\nthat is long")
    rows = replay_engineers(view, [engineer.RuleEngineer(), long_named], ONCE)
    long = rows[1].model_copy(update={"tokens": 123_456, "seconds": 1234.5})
    lines = format_scores([rows[0], long]).split("\n")
    scores = {}
    for heading, first, second in (lines[:3], lines[4:7]):
        assert len(heading) == len(first) == len(second)
        assert second.startswith("a name that is")
        # One cell under each heading, None as a dash.
        scores |= dict(zip(heading.split(), first.split(), strict=True))
    assert list(scores)[:4] == ["engineer", "kind", "json", "fixes"]
    assert list(scores.values())[:4] == ["rule", "accepted", "yes", "0"]
    assert len(scores) == 15
    assert scores["edit"] == f"{rows[0].edit_distance:g}"
    assert scores["task"] == f"{rows[0].behaviours.task_modelling:.2f}"
    assert rows[0].behaviours.self_correction is None
    assert scores["corr"] == "-"


def test_a_table_of_nothing_is_its_heading(view):
    assert format_scores([]).split("\n")[0].split()[0] == "engineer"


@settings(max_examples=150)
@given(views_and_proposals)
def test_any_proposal_is_scored_and_the_current_one_is_no_edit(drawn):
    view, proposal = drawn
    one = said(view, engineer.answer_text(view.current))
    other = said(view, engineer.answer_text(proposal))
    kept = said(view, None)
    assert (kept.edit_distance, kept.preserved) == (0.0, 1.0)
    assert one.schema_valid
    assert other.schema_valid
    assert 0.0 <= other.preserved <= 1.0
    # By values and names, without the package's moves.
    space, steps, same = view.domain.space, [], []
    before, after = view.current.values(), other.configuration.values()
    for group in space.groups:
        for knob in space.knobs:
            apart = abs(space.to_units(after[group][knob]) - space.to_units(before[group][knob]))
            steps.append(apart / 2 if knob == space.share else apart)
            same.append(apart == 0)
    assert other.edit_distance == pytest.approx(math.fsum(steps))
    assert other.preserved == pytest.approx(sum(same) / len(same))
