from hypothesis import given, settings
from hypothesis import strategies as st

from engineer.configuration import Bounds, LakeConfiguration, SizeKnobs, answer_schema
from engineer.engineers import RuleEngineer
from engineer.evidence import SizeEvidence, StageEvidence
from engineer.pipeline import review
from engineer.rule import next_configuration
from jaxlake import infeasibility

BOUNDS = Bounds(sizes=(3, 4, 5))


def with_rates(valid: dict[int, int], count: int = 100) -> StageEvidence:
    return StageEvidence(
        stage=1,
        validation={
            size: SizeEvidence(
                count=count,
                valid=v,
                optimal_sum_of_costs=0,
                optimal_makespan=0,
                failures={"hole": count - v},
            )
            for size, v in valid.items()
        },
    )


def flat(hole_ratio: float, wait_ratio: float) -> LakeConfiguration:
    shares = {3: 0.35, 4: 0.35, 5: 0.3}
    return LakeConfiguration(
        sizes={
            size: SizeKnobs(data_ratio=share, hole_ratio=hole_ratio, wait_ratio=wait_ratio)
            for size, share in shares.items()
        }
    )


def rule(evidence: StageEvidence, current: LakeConfiguration, **options: object):
    settings = {"bounds": BOUNDS, "num_agents": 2, "feasibility": infeasibility} | options
    return next_configuration(evidence, current, **settings).sizes


def test_what_is_learnable_gets_most_data_and_nothing_is_dropped():
    new = rule(with_rates({3: 95, 4: 50, 5: 2}), flat(0.2, 0.2))
    assert new[4].data_ratio > new[3].data_ratio > 0
    assert new[4].data_ratio > new[5].data_ratio > 0


def shares_after(
    valid: dict[int, int], before: tuple[float, float, float], **options: object
) -> list[float]:
    knobs = {"hole_ratio": 0.2, "wait_ratio": 0.2}
    current = LakeConfiguration(
        sizes={
            size: SizeKnobs(data_ratio=share, **knobs)
            for size, share in zip((3, 4, 5), before, strict=True)
        }
    )
    return [knobs.data_ratio for knobs in rule(with_rates(valid), current, **options).values()]


def test_one_step_of_data_moves_from_the_least_to_the_most_learnable_size():
    before = (0.35, 0.35, 0.3)
    assert shares_after({3: 80, 4: 79, 5: 19}, before) == [0.35, 0.4, 0.25]
    assert shares_after({3: 0, 4: 90, 5: 55}, before) == [0.3, 0.35, 0.35]
    assert shares_after({3: 49, 4: 98, 5: 3}, before) == [0.4, 0.3, 0.3]


def test_among_equally_learnable_sizes_the_smallest_takes_and_the_largest_gives():
    before = (0.35, 0.35, 0.3)
    assert shares_after({3: 45, 4: 55, 5: 0}, before) == [0.4, 0.35, 0.25]
    assert shares_after({3: 0, 4: 100, 5: 50}, before) == [0.35, 0.3, 0.35]
    assert shares_after({3: 30, 4: 70, 5: 30}, before) == list(before)


def test_a_size_at_its_least_share_gives_nothing():
    valid = {3: 50, 4: 80, 5: 0}
    assert shares_after(valid, (0.05, 0.9, 0.05)) == [0.1, 0.85, 0.05]
    assert shares_after(valid, (0.9, 0.05, 0.05)) == [0.9, 0.05, 0.05]
    assert shares_after(valid, (0.9, 0.1, 0.0)) == [0.9, 0.05, 0.05]
    tight = Bounds(sizes=(3, 4, 5), min_share=0.3)
    assert shares_after(valid, (0.35, 0.35, 0.3), bounds=tight) == [0.4, 0.3, 0.3]
    assert shares_after(valid, (0.4, 0.3, 0.3), bounds=tight) == [0.4, 0.3, 0.3]


@given(
    valid=st.tuples(*[st.integers(0, 100)] * 3),
    cuts=st.lists(st.integers(1, 19), min_size=2, max_size=2, unique=True).map(sorted),
)
def test_applied_again_and_again_the_rule_gathers_data_where_most_is_learned(valid, cuts):
    rates = dict(zip((3, 4, 5), valid, strict=True))
    steps = (cuts[0], cuts[1] - cuts[0], 20 - cuts[1])
    before = tuple(5 * share / 100 for share in steps)
    after = shares_after(rates, before)
    moved = sorted(round(20 * (new - old)) for new, old in zip(after, before, strict=True))
    assert moved in ([-1, 0, 1], [0, 0, 0])
    for _ in range(20):
        after = shares_after(rates, tuple(after))
    assert round(20 * sum(after)) == 20
    values = [p * (100 - p) for p in valid]
    for value, share in zip(values, after, strict=True):
        assert share >= 0.05
        assert share == 0.05 or value == max(values)


def test_holes_and_waits_go_up_where_easy_down_where_hard_and_stay_between():
    new = rule(with_rates({3: 60, 4: 59, 5: 19}), flat(0.2, 0.4))
    assert [new[s].hole_ratio for s in (3, 4, 5)] == [0.25, 0.2, 0.15]
    assert [new[s].wait_ratio for s in (3, 4, 5)] == [0.45, 0.4, 0.35]
    assert rule(with_rates({3: 20, 4: 20, 5: 20}), flat(0.2, 0.4))[3].hole_ratio == 0.2


def test_the_rule_stays_within_the_bounds():
    bounds = Bounds(sizes=(3, 4, 5), max_hole_ratio=0.3, max_wait_ratio=0.5)
    top = rule(with_rates({3: 100, 4: 100, 5: 100}), flat(0.3, 0.5), bounds=bounds)
    assert {(k.hole_ratio, k.wait_ratio) for k in top.values()} == {(0.3, 0.5)}
    bottom = rule(with_rates({3: 0, 4: 0, 5: 0}), flat(0.0, 0.0), bounds=bounds)
    assert {(k.hole_ratio, k.wait_ratio) for k in bottom.values()} == {(0.0, 0.0)}


def test_a_size_that_was_not_validated_keeps_its_knobs():
    new = rule(with_rates({3: 100, 4: 50}), flat(0.2, 0.2))
    assert (new[5].hole_ratio, new[5].wait_ratio) == (0.2, 0.2)
    assert [new[s].data_ratio for s in (3, 4, 5)] == [0.3, 0.4, 0.3]


@settings(max_examples=300)
@given(
    data=st.data(),
    sizes=st.lists(st.integers(3, 10), min_size=1, max_size=8, unique=True),
    step=st.sampled_from([0.01, 0.05, 0.1]),
    num_agents=st.integers(1, 4),
)
def test_the_rules_proposals_are_always_accepted_as_written(data, sizes, step, num_agents):
    bounds = Bounds(
        sizes=tuple(sizes), step=step, max_hole_ratio=data.draw(st.sampled_from([0.2, 0.5]))
    )
    ratio = st.floats(0, 1)
    current = LakeConfiguration(
        sizes={
            size: SizeKnobs(
                data_ratio=1.0 if size == sizes[0] else 0.0,
                hole_ratio=data.draw(ratio) / 2,
                wait_ratio=data.draw(ratio),
            )
            for size in sizes
        }
    )
    evidence = with_rates({size: data.draw(st.integers(0, 60)) for size in sizes}, count=60)
    proposal = RuleEngineer(bounds, num_agents).propose(
        "", schema=answer_schema(bounds), attempt=0, evidence=evidence, current=current
    )
    decision = review(
        proposal.text, current, bounds=bounds, num_agents=num_agents, feasibility=infeasibility
    )
    fits = all(infeasibility(size, 0.0, num_agents) is None for size in sizes)
    assert decision.kind == ("accepted" if fits else "rejected")
    assert decision.repairs == ()
