"""Reviews of arbitrary text never raise, leave the space or exceed the step limit."""

import itertools
import json
import math
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from engineer import (
    DesignSettings,
    Domain,
    GeneratedText,
    GroupEvidence,
    LanguageModelEngineer,
    Review,
    StageEvidence,
    StageView,
    StepLimit,
    TextRequest,
    run_design,
)
from engineer.lake import Bounds, LakeConfiguration, NearestFeasible, lake_domain
from engineer.lake.feasibility import MIN_ACCEPTANCE
from engineer.review import Repair, review_answer
from engineer.space import answer_text
from jaxlake import infeasibility
from tests.engineer.builders import CURRENT, SIZES, bounds_strategy, make_lake, on_grid

KNOBS = Bounds.knobs
REPAIR_ORDER = ("clamp", "normalise", "minimum_share", "round", "bounded_step", "feasibility")
VALID_ANSWER = answer_text(CURRENT)


def review_and_check(
    text: str,
    domain: Domain,
    current: LakeConfiguration = CURRENT,
    step_limit: StepLimit | None = None,
) -> Review:
    """Review a text and check the properties that every decision has."""
    decision = review_answer(text, current, domain, step_limit)
    record = json.loads(decision.model_dump_json())
    assert 0 < len(decision.reason) < 1000
    assert decision.reason.isascii()
    assert decision.reason.isprintable()
    for repair in decision.repairs:
        assert math.isfinite(repair.old)
        assert repair.old != repair.new
    if decision.kind == "rejected":
        assert decision.configuration is None
        assert decision.diff == ()
        return decision
    assert isinstance(decision.configuration, LakeConfiguration)
    assert LakeConfiguration.model_validate(record["configuration"]) == decision.configuration
    assert domain.space.violation(decision.configuration) is None
    assert_feasible(record["configuration"]["sizes"], domain)
    assert_within_step_limit(decision, domain, current, step_limit or StepLimit())
    assert_explained(decision, current)
    assert_stable(decision, domain, current, step_limit or StepLimit())
    return decision


def assert_feasible(sizes: dict[str, dict[str, float]], domain: Domain) -> None:
    """Check independently that the knobs are in bounds, on the grid and feasible."""
    bounds, nearest = domain.space, domain.nearest
    assert isinstance(bounds, Bounds)
    assert isinstance(nearest, NearestFeasible)
    assert list(sizes) == [str(size) for size in bounds.sizes]
    assert math.isclose(sum(k["data_ratio"] for k in sizes.values()), 1.0, abs_tol=1e-9)
    for size, knobs in sizes.items():
        assert bounds.min_share <= knobs["data_ratio"] <= 1
        assert 0 <= knobs["hole_ratio"] <= bounds.max_hole_ratio
        assert 0 <= knobs["wait_ratio"] <= bounds.max_wait_ratio
        for value in knobs.values():
            assert value == round(round(value / bounds.step) * bounds.step, 2)
        if knobs["data_ratio"] > 0:
            holes, waits = knobs["hole_ratio"], knobs["wait_ratio"]
            assert infeasibility(int(size), holes, nearest.num_agents) is None
            if nearest.acceptance is not None:
                rate = nearest.acceptance(int(size), holes, waits, nearest.num_agents)
                assert rate is None or rate >= MIN_ACCEPTANCE


def assert_within_step_limit(
    decision: Review, domain: Domain, current: LakeConfiguration, step_limit: StepLimit
) -> None:
    """Check the step limit, except for infeasible cells."""
    assert decision.configuration is not None
    if step_limit.max_step is None:
        return
    new_values, old_values = decision.configuration.values(), current.values()
    max_step = max(step_limit.max_step, domain.space.step) + 1e-9
    exempt_fields = {repair.field for repair in decision.repairs if repair.name == "feasibility"}
    for group, knobs in new_values.items():
        for knob, value in knobs.items():
            if f"{group}.{knob}" not in exempt_fields:
                assert abs(value - old_values[group][knob]) <= max_step


def assert_explained(decision: Review, current: LakeConfiguration) -> None:
    """Check that the repairs lead to the final values in order, and that the diff is complete."""
    assert decision.configuration is not None
    new_values, old_values = decision.configuration.values(), current.values()
    repairs_by_field: dict[str, list[Repair]] = defaultdict(list)
    for repair in decision.repairs:
        repairs_by_field[repair.field].append(repair)
    for field, repairs in repairs_by_field.items():
        group, knob = field.split(".")
        positions = [REPAIR_ORDER.index(repair.name) for repair in repairs]
        assert positions == sorted(set(positions))
        for repair, next_repair in itertools.pairwise(repairs):
            assert abs(repair.new - next_repair.old) < 1e-8
        assert repairs[-1].new == new_values[group][knob]
    only_rounded = {repair.name for repair in decision.repairs} <= {"round"}
    expected_kind = "accepted" if only_rounded else "repaired"
    assert decision.kind == (expected_kind if decision.diff else "unchanged")
    expected_changes = {
        f"{group}.{knob}": (old_values[group][knob], value)
        for group, knobs in new_values.items()
        for knob, value in knobs.items()
        if abs(old_values[group][knob] - value) > 1e-9
    }
    assert {change.field: (change.old, change.new) for change in decision.diff} == expected_changes


def assert_stable(
    decision: Review, domain: Domain, current: LakeConfiguration, step_limit: StepLimit
) -> None:
    """Check that a second review accepts the configuration unchanged."""
    assert decision.configuration is not None
    if any(repair.name == "feasibility" for repair in decision.repairs):
        # Feasibility repairs may exceed the bounded step.
        step_limit = StepLimit()
    second_decision = review_answer(
        answer_text(decision.configuration), current, domain, step_limit
    )
    assert second_decision.kind == ("accepted" if second_decision.diff else "unchanged")
    assert second_decision.repairs == ()
    assert second_decision.configuration == decision.configuration
    assert second_decision.diff == decision.diff


ODD_NUMBERS = (
    *("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e308", "-1e-400", "9" * 400),
    *("0", "1", "-0.0", "-3", "50", "5e-324", "0.333", "1.0000001", "2", "100", "0.025"),
    *('"0.5"', '"50%"', "null", "true", "[]", "[0.5]", "{}", '{"is":0.5}', "1/2", ".5", "+1"),
    *("00.5", "0x1", "0.5.5", "", "  0.5\n", "50%", "\ud800"),
)
ratios = st.floats(0, 1).map(repr) | st.integers(0, 20).map(lambda n: f"{n / 20:g}")
number_texts = ratios | st.floats(allow_nan=True).map(json.dumps) | st.sampled_from(ODD_NUMBERS)


def format_object(members: list[tuple[str, str]]) -> str:
    """Return a JSON object as text, with duplicate keys if `members` has them."""
    return "{" + ",".join(f'"{key}":{value}' for key, value in members) + "}"


def json_objects(keys: list[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return objects with exactly these keys in any order, or with missing and unknown keys."""
    complete_objects = st.permutations(keys).flatmap(
        lambda order: st.tuples(*[values] * len(order)).map(
            lambda members: format_object(list(zip(order, members, strict=True)))
        )
    )
    odd_keys = st.sampled_from([*keys, "6", "03", " 3", "holes", "", "\\u0033", "\ud800", "x" * 99])
    return complete_objects | st.lists(st.tuples(odd_keys, values), max_size=5).map(format_object)


groups = list(map(str, SIZES))
knob_objects = json_objects(list(KNOBS), ratios) | json_objects(list(KNOBS), number_texts)
designs = json_objects(groups, knob_objects) | json_objects(groups, knob_objects | number_texts)
json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
mutations = st.tuples(
    st.integers(0, len(VALID_ANSWER)),
    st.integers(0, 6),
    st.text(alphabet='{}[]":,.0123456789eE-+ntNaI\\<>\n\ud800', max_size=6),
).map(lambda change: VALID_ANSWER[: change[0]] + change[2] + VALID_ANSWER[change[0] + change[1] :])
prefixes = st.sampled_from(
    ["", "{", '"', "[", "<think>", "x</think>", "```json\n", f"{VALID_ANSWER} or "]
)
suffixes = st.sampled_from(
    ["", "}", '"', "]", "\n```", "<think>", "</think>", f" not {VALID_ANSWER[:-1]}"]
)
signs = st.lists(st.sampled_from("-=+"), min_size=3, max_size=3) | st.lists(
    st.sampled_from(["-", "=", "+", "?", "--", "\t", "\r", "\u2212"]), max_size=5
)
row_names = st.sampled_from([*(f"n{group}" for group in groups), *groups, "n6", "n", "", "\ud800"])
rows = st.tuples(row_names, signs).map(lambda row: " ".join([row[0], *row[1]]))
edit_rows = st.tuples(signs, signs, signs).map(
    lambda drawn: "\n".join(
        " ".join([f"n{group}", *row]) for group, row in zip(groups, drawn, strict=True)
    )
) | st.lists(rows, max_size=6).map("\n".join)
texts = (
    st.text(st.characters(), max_size=300)
    | json_values.map(json.dumps)
    | mutations
    | st.tuples(prefixes, designs, suffixes).map("".join)
    | st.tuples(prefixes, edit_rows, suffixes).map("\n".join)
)

step_limits = st.none() | st.builds(
    StepLimit, max_step=st.none() | st.sampled_from([0.0, 0.05, 0.1, 0.25, 1.0])
)


@st.composite
def review_inputs(draw: st.DrawFn) -> tuple[Domain, LakeConfiguration]:
    """Draw a domain and a valid configuration."""
    bounds = draw(bounds_strategy)
    build_domain = draw(st.sampled_from([lake_domain, make_lake]))
    return build_domain(bounds, draw(st.integers(2, 5))), draw(on_grid(bounds))


@settings(max_examples=600)
@given(text=texts, situation=review_inputs(), step_limit=step_limits)
def test_review_answer_decides_any_text(text, situation, step_limit):
    domain, current = situation
    review_and_check(text, domain, current, step_limit)


@settings(max_examples=200)
@given(
    answers=st.lists(texts, min_size=1, max_size=4),
    situation=review_inputs(),
    step_limit=step_limits,
)
def test_any_texts_complete_a_design_phase(answers, situation, step_limit):
    domain, current = situation

    def generate(request: TextRequest) -> GeneratedText:
        return GeneratedText(answers[request.seed], len(answers[request.seed]))

    settings = DesignSettings(attempts=len(answers), step_limit=step_limit or StepLimit())
    evidence = StageEvidence(stage=1, validation={"3": GroupEvidence(count=1, valid=1)})
    record = run_design(
        LanguageModelEngineer(generate), StageView(domain, evidence, current), settings
    )
    assert domain.space.violation(record.configuration) is None
    assert record.kind in ("accepted", "repaired", "unchanged", "retried", "kept")
    for value in (record, *record.attempts):
        json.loads(value.model_dump_json())
    if record.kind == "kept":
        assert record.configuration == current
