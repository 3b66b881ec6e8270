import math
from dataclasses import replace

import pytest
from hypothesis import given, settings

from engineer import GroupEvidence, StageEvidence, StageHistory, StageView
from engineer.lake import Bounds, LakeConfiguration, SizeKnobs, lake_domain
from engineer.scoring.behaviours import (
    causality,
    granularity,
    grid_moves,
    salience,
    score_behaviours,
    self_correction,
    task_modelling,
)
from tests.engineer.random_views import views_and_proposals

DOMAIN = lake_domain(Bounds(sizes=(3, 4, 5)))
STEP = 0.05


def lake(**changes: dict[str, float]) -> LakeConfiguration:
    """Shares 0.4, 0.3, 0.3, holes 0.2 and waits 0.2, changed by such as s3={"hole_ratio": 0}."""
    sizes = {}
    for size, share in ((3, 0.4), (4, 0.3), (5, 0.3)):
        knobs = {"data_ratio": share, "hole_ratio": 0.2, "wait_ratio": 0.2}
        sizes[size] = SizeKnobs(**knobs | changes.get(f"s{size}", {}))
    return LakeConfiguration(sizes=sizes)


def holes(steps: int) -> dict[str, float]:
    return {"hole_ratio": round(0.2 + STEP * steps, 2)}


def waits(steps: int) -> dict[str, float]:
    return {"wait_ratio": round(0.2 + STEP * steps, 2)}


def failed(**failures: int) -> GroupEvidence:
    """A hundred answers, those that aren't named valid."""
    return GroupEvidence(count=100, valid=100 - sum(failures.values()), failures=failures)


def view_of(*groups: GroupEvidence, history: tuple[StageHistory, ...] = (), **more) -> StageView:
    names = DOMAIN.space.groups
    evidence = StageEvidence(
        stage=len(history) + 1, validation=dict(zip(names, groups, strict=True))
    )
    return StageView(DOMAIN, evidence, more.pop("current", lake()), history, **more)


EASY_HALF_HARD = (failed(hole=10), failed(hole=50), failed(hole=90))
RAISE_ALL = {f"s{size}": {**holes(1), **waits(1)} for size in (3, 4, 5)}


def test_a_step_of_data_from_one_group_to_another_is_one_move():
    made = grid_moves(
        view_of(*EASY_HALF_HARD),
        lake(s3={"data_ratio": 0.35}, s4={"data_ratio": 0.35, **holes(-2)}, s5=waits(3)),
    )
    assert made == {
        "3": {"data_ratio": -0.5, "hole_ratio": 0.0, "wait_ratio": 0.0},
        "4": {"data_ratio": 0.5, "hole_ratio": -2.0, "wait_ratio": 0.0},
        "5": {"data_ratio": 0.0, "hole_ratio": 0.0, "wait_ratio": 3.0},
    }


def sure_of(failures: int, count: int = 100) -> float:
    """Lower end of Wilson's interval, from its formula."""
    p, z = failures / count, 1.959963984540054
    middle = p + z * z / (2 * count)
    width = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count**2))
    return (middle - width) / (1 + z * z / count)


def test_salience_is_one_where_most_fails_a_half_anywhere_and_zero_where_least_does():
    view = view_of(*EASY_HALF_HARD)
    assert salience(view, lake(s5=holes(-1))) == pytest.approx(1.0)
    assert salience(view, lake(s3={**holes(4), **waits(-1)})) == pytest.approx(0.0)
    assert salience(view, lake(**RAISE_ALL)) == pytest.approx(0.5)


def test_salience_in_between_is_linear_in_where_the_moves_fall():
    view = view_of(*EASY_HALF_HARD)
    low, middle, high = (sure_of(failures) for failures in (10, 50, 90))
    mean = (low + middle + high) / 3
    # Three moves in the hard group, one in the one between.
    above = salience(view, lake(s5=holes(-3), s4=holes(-1)))
    where = 0.75 * high + 0.25 * middle
    assert above == pytest.approx(0.5 + (where - mean) / (2 * (high - mean)))
    # A step of data from the middle to the easy group: half a move each.
    below = salience(view, lake(s3={"data_ratio": 0.45}, s4={"data_ratio": 0.25}))
    assert below == pytest.approx(0.5 - (mean - (low + middle) / 2) / (2 * (mean - low)))


def test_salience_says_nothing_where_nothing_changes_or_groups_fail_alike():
    assert salience(view_of(*EASY_HALF_HARD), lake()) is None
    alike = view_of(failed(hole=50), failed(hole=52), failed(hole=55))
    assert salience(alike, lake(s5=holes(1))) is None
    one_answer = GroupEvidence(count=1, valid=0, failures={"hole": 1})
    few = view_of(one_answer, one_answer, GroupEvidence(count=1, valid=1))
    assert salience(few, lake(s5=holes(1))) is None


def test_raising_everything_has_no_granularity_and_moves_of_their_own_have_all():
    view = view_of(*EASY_HALF_HARD)
    assert granularity(view, lake(**RAISE_ALL)) == 0.0
    assert granularity(view, lake(s3=holes(1), s5=holes(-1))) == 1.0
    assert granularity(view, lake(s4=waits(2))) == 1.0


def test_granularity_is_the_part_of_the_moves_in_which_differing_groups_differ():
    view = view_of(*EASY_HALF_HARD)
    # Pairs: (1, 1) differ by 0 of 2, (1, 2) twice by 1 of 3.
    assert granularity(view, lake(s3=holes(1), s4=holes(1), s5=holes(2))) == pytest.approx(2 / 8)


def test_granularity_looks_only_at_groups_whose_evidence_differs():
    view = view_of(failed(hole=50), failed(hole=52), failed(hole=95))
    # 3 and 4 may be treated alike, since they are; both differ from 5.
    assert granularity(view, lake(s3=holes(1), s4=holes(1))) == 1.0
    alike = view_of(*(failed(hole=50) for _ in range(3)))
    assert granularity(alike, lake(s3=holes(1))) is None
    assert granularity(view_of(*EASY_HALF_HARD), lake()) is None


def test_groups_with_the_same_rate_differ_if_they_fail_for_different_causes():
    same_rate = (failed(hole=50), failed(hole=30, off_board=20), failed(vertex_conflict=50))
    view = view_of(*same_rate)
    # 3 and 4 both fail for the holes, in one way or another.
    assert granularity(view, lake(s3=holes(-1), s4=holes(-1), s5=waits(-1))) == 1.0
    assert granularity(view, lake(s3=holes(-1), s4=holes(-1), s5=holes(-1))) == 0.0


def test_lowering_a_knob_is_as_causal_as_its_part_in_the_failures():
    view = view_of(failed(), failed(hole=50), failed(hole=60, vertex_conflict=20, parse_error=10))
    assert causality(view, lake(s5=holes(-1))) == pytest.approx(1.0)
    assert causality(view, lake(s5=waits(-1))) == pytest.approx(20 / 60)
    both = lake(s5={**holes(-2), **waits(-1)})
    assert causality(view, both) == pytest.approx((2 * 60 + 20) / (3 * 60))
    assert causality(view, lake(s5=holes(1))) == 0.0
    assert causality(view, lake(s5={**holes(-1), **waits(1)})) == pytest.approx(1 / 2)


def test_harder_and_less_is_causal_for_what_is_mastered():
    view = view_of(failed(hole=2), failed(hole=50), failed(hole=50))
    harder_and_less = lake(s3={**holes(1), "data_ratio": 0.35}, s4={"data_ratio": 0.35})
    assert causality(view, harder_and_less) == pytest.approx(1.0)
    # One move for it, half a move against it.
    harder_and_more = lake(s3={**holes(1), "data_ratio": 0.45}, s4={"data_ratio": 0.25})
    assert causality(view, harder_and_more) == pytest.approx(1.0 / 1.5)
    assert causality(view, lake(s3=holes(-1))) == 0.0


def test_causality_weighs_groups_by_their_evidence():
    view = view_of(failed(hole=2), failed(hole=50), failed(vertex_conflict=90))
    # Right where nine in ten fail, wrong where 98 in 100 are valid.
    assert causality(view, lake(s5=waits(-1), s3=waits(-1))) == pytest.approx(0.9 / (0.9 + 0.98))


def test_causality_says_nothing_of_groups_between_and_of_failures_without_a_cause():
    view = view_of(failed(hole=40), failed(hole=50), failed(parse_error=60, goal_not_reached=35))
    assert causality(view, lake(s3=holes(1), s4=waits(-1), s5=holes(-1))) is None
    nowhere = replace(view_of(*EASY_HALF_HARD), domain=replace(DOMAIN, causes={}))
    assert causality(nowhere, lake(s5=holes(-1))) is None


def stage(
    number: int,
    configuration: LakeConfiguration,
    before: float,
    after: float,
    decision: str = "accepted",
) -> StageHistory:
    """A stage over which the valid rate of group 5 went from one to another."""
    steady = {"3": 0.5, "4": 0.5}
    return StageHistory(
        stage=number,
        configuration=configuration,
        decision=decision,
        valid_before={**steady, "5": before},
        valid_after={**steady, "5": after},
    )


def ended(failures: int, current: LakeConfiguration, *history: StageHistory) -> StageView:
    """A view in which so many of group 5's hundred answers failed, and half of the others'."""
    half = failed(hole=50)
    return view_of(half, half, failed(hole=failures), current=current, history=history)


def after_a_change(fell: bool, change: int = 2, rate: float = 0.5) -> StageView:
    """Group 5's holes went up by some steps in the last stage, after which its rate had changed."""
    first = stage(1, lake(), 0.4, rate, "initial")
    return ended(70 if fell else 30, lake(s5=holes(change)), first)


@pytest.mark.parametrize(
    ("steps", "credit"), [(0, 1.0), (1, 0.5), (2, 0.0), (3, 0.0), (-1, 1.0)], ids=str
)
def test_a_harmful_change_is_corrected_as_far_as_it_is_taken_back(steps, credit):
    proposal = lake(s5=holes(steps))
    assert self_correction(after_a_change(fell=True), proposal) == pytest.approx(credit)
    assert self_correction(after_a_change(fell=False), proposal) == pytest.approx(1.0 - credit)


def test_shares_are_corrected_as_knobs_are():
    less = lake(s5={"data_ratio": 0.1}, s4={"data_ratio": 0.5})
    view = replace(after_a_change(fell=True), current=less)
    assert self_correction(view, lake()) == pytest.approx(1.0)
    assert self_correction(view, less) == 0.0


def test_events_weigh_as_much_as_the_rate_changed():
    history = (stage(1, lake(), 0.1, 0.2, "initial"), stage(2, lake(s5=waits(1)), 0.2, 0.6))
    current = lake(s5={**waits(1), **holes(1)})
    view = ended(70, current, *history)
    # Waits came with a rise of 0.4, holes with a fall of 0.3.
    assert self_correction(view, lake(s5=waits(1))) == pytest.approx(1.0)
    assert self_correction(view, current) == pytest.approx(0.4 / 0.7)
    assert self_correction(view, lake()) == pytest.approx(0.3 / 0.7)


def test_the_latest_event_of_a_knob_counts():
    history = (
        stage(1, lake(), 0.2, 0.2, "initial"),
        stage(2, lake(s5=holes(2)), 0.2, 0.8),
        stage(3, lake(s5=holes(4)), 0.8, 0.3),
    )
    view = ended(70, lake(s5=holes(4)), *history)
    assert self_correction(view, lake(s5=holes(2))) == pytest.approx(1.0)
    assert self_correction(view, lake(s5=holes(4))) == 0.0


def test_what_was_rolled_back_is_not_to_be_tried_again():
    history = (
        stage(1, lake(), 0.5, 0.6, "initial"),
        stage(2, lake(s5=holes(3)), 0.6, 0.2, "rolled_back"),
    )
    view = ended(40, lake(s5=waits(1)), *history)
    assert self_correction(view, lake(s5=holes(3))) == 0.0
    assert self_correction(view, lake(s5=holes(0))) == pytest.approx(1.0)
    # Stage 3 is compared with stage 1, whose configuration was restored.
    later = replace(
        view,
        history=(*history, stage(3, lake(s5=holes(1)), 0.2, 0.6)),
        current=lake(s5=holes(1)),
        notice="Rolled back.",
    )
    assert self_correction(later, lake(s5=holes(1))) == pytest.approx(1.0)
    assert self_correction(later, lake(s5=holes(0))) == 0.0


@pytest.mark.parametrize("restored", ["configuration", "checkpoint"])
def test_a_change_that_was_just_rolled_back_is_not_to_be_tried_again(restored):
    """The view says what the stage trained on, and what the weights that it made answered."""
    fell = after_a_change(fell=True)
    view = replace(
        fell,
        current=lake(),
        notice="Rolled back.",
        trained=fell.current,
        designed_from=lake(),
        valid_before={"3": 0.5, "4": 0.5, "5": 0.5},
    )
    if restored == "checkpoint":  # the evidence is that of the weights in force
        made = dict(view.evidence.validation)
        validation = made | {"5": failed(hole=50)}
        evidence = view.evidence.model_copy(update={"validation": validation})
        view = replace(view, evidence=evidence, taken_back=made)
    assert self_correction(view, lake()) == pytest.approx(1.0)
    assert self_correction(view, lake(s5=holes(1))) == pytest.approx(0.5)
    assert self_correction(view, lake(s5=holes(2))) == 0.0


def test_a_stage_after_a_rollback_is_compared_with_the_configuration_that_was_restored():
    history = (
        stage(1, lake(), 0.4, 0.5, "initial"),
        stage(2, lake(s5=holes(3)), 0.5, 0.2, "rolled_back"),
    )
    current = lake(s5=waits(1))
    view = replace(
        ended(70, current, *history),
        trained=current,
        designed_from=lake(),
        valid_before={"3": 0.5, "4": 0.5, "5": 0.6},
    )
    # The holes of stage 2 did harm, and so did the waits of stage 3.
    assert self_correction(view, lake()) == pytest.approx(1.0)
    assert self_correction(view, lake(s5={**holes(3), **waits(1)})) == 0.0
    assert 0.0 < self_correction(view, lake(s5=waits(1))) < 1.0


def test_a_first_stage_that_fell_stays_in_force():
    first = stage(1, lake(), 0.6, 0.3, "rolled_back")
    second = stage(2, lake(s5=holes(-2)), 0.3, 0.7)
    view = ended(30, lake(s5=holes(-2)), first, second)
    assert self_correction(view, lake(s5=holes(-2))) == pytest.approx(1.0)
    assert self_correction(view, lake()) == 0.0


def test_self_correction_says_nothing_without_history_noise_or_with_a_rollback_just_now():
    fell = after_a_change(fell=True)
    assert self_correction(replace(fell, history=()), lake()) is None
    assert self_correction(replace(fell, current=lake()), lake(s5=holes(1))) is None
    assert self_correction(replace(fell, notice="Rolled back."), lake()) is None
    # From 0.40 to 0.30 with a hundred answers each is noise, from 0.50 is not.
    assert self_correction(after_a_change(fell=True, rate=0.4), lake()) is None
    assert self_correction(after_a_change(fell=True, rate=0.5), lake()) is not None


def test_task_modelling_is_highest_for_all_data_where_half_is_solved():
    # Rates without slices hold at the current knobs: 0.5 for group 4.
    view = view_of(failed(hole=4), failed(hole=50), failed(hole=97))
    proposals = [
        lake(s3={"data_ratio": 1 - share}, s4={"data_ratio": share}, s5={"data_ratio": 0.0})
        for share in (0.0, 0.5, 1.0)
    ]
    scores = [task_modelling(view, proposal) for proposal in proposals]
    assert scores == sorted(scores)
    assert scores[-1] == pytest.approx(1.0)
    # Of group 3, (96 + 1) / (100 + 2) is valid.
    assert scores[0] == pytest.approx((97 / 102) * (5 / 102) / 0.25)


@settings(max_examples=300)
@given(views_and_proposals)
def test_all_scores_lie_in_range_or_say_nothing(drawn):
    view, proposal = drawn
    scores = score_behaviours(view, proposal).model_dump()
    assert all(score is None or 0.0 <= score <= 1.0 for score in scores.values())
    kept = score_behaviours(view, view.current)
    assert (kept.salience, kept.granularity, kept.causality) == (None, None, None)
