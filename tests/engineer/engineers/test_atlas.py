"""The atlas engineer: the best of what was measured, paid for once and within the budget."""

from dataclasses import replace

import numpy as np
import pytest

from engineer import (
    AtlasEngineer,
    AtlasSource,
    Budget,
    DesignAtlas,
    DesignSettings,
    EngineerError,
    Guard,
    OracleEngineer,
    ProbeResult,
    answer_text,
    run_design,
)
from engineer.engineers.plans import CopyPreviousEngineer
from engineer.lake import Bounds, lake_domain
from tests.engineer.builders import CURRENT
from tests.engineer.engineers.tasks import task_of, view_of
from tests.engineer.scoring.test_atlas import random_atlas

DOMAIN = lake_domain(Bounds(sizes=(3, 4, 5), min_share=0.1))
ATLAS = random_atlas(np.random.default_rng(4), DOMAIN)
VIEW = view_of({"3": 50, "4": 50, "5": 50}, domain=DOMAIN)
EMPTY = DesignAtlas(cells=tuple(one.model_copy(update={"boards": (0,) * 9}) for one in ATLAS.cells))


def source(atlas: DesignAtlas = ATLAS, calls: list[int] | None = None) -> AtlasSource:
    def measure() -> DesignAtlas:
        if calls is not None:
            calls.append(1)
        return atlas

    return AtlasSource(measure, ATLAS.rollouts)


def test_the_answer_is_the_best_of_the_atlas_and_its_answers_are_paid_for():
    design = run_design(AtlasEngineer(source()), VIEW, DesignSettings())
    assert (design.engineer, design.kind, design.repairs) == ("atlas", "accepted", ())
    assert design.configuration == ATLAS.best(DOMAIN)
    assert design.spent.probe_rollouts == ATLAS.rollouts
    assert (design.spent.probe_instances, design.spent.engineer_tokens) == (0, 0)


@pytest.mark.parametrize(("most", "refused"), [(ATLAS.rollouts - 1, True), (ATLAS.rollouts, False)])
def test_a_budget_without_room_for_a_whole_atlas_is_kept_and_nothing_is_measured(most, refused):
    calls: list[int] = []
    task = replace(task_of(VIEW), budget=Budget(probe_rollouts=most))
    engineer = AtlasEngineer(source(calls=calls))
    if refused:
        told = rf"atlas: a whole atlas takes up to {most + 1} answers, .*has {most} left"
        with pytest.raises(EngineerError, match=told):
            engineer.propose(task)
        assert calls == []
        settings = DesignSettings(budget=Budget(probe_rollouts=most))
        design = run_design(engineer, VIEW, settings)
        assert (design.kind, design.configuration) == ("kept", CURRENT)
        assert design.spent.probe_rollouts == 0
    else:
        assert engineer.propose(task).probe_rollouts == most


def test_an_atlas_is_measured_and_paid_for_once_whoever_asks():
    calls: list[int] = []
    shared = source(calls=calls)
    proposals = [AtlasEngineer(shared).propose(task_of(VIEW)) for _ in range(3)]
    assert calls == [1]
    assert [one.probe_rollouts for one in proposals] == [ATLAS.rollouts, 0, 0]
    assert len({one.text for one in proposals}) == 1
    nothing_left = replace(task_of(VIEW), budget=Budget(probe_rollouts=0))
    assert AtlasEngineer(shared).propose(nothing_left).text == proposals[0].text


def test_an_atlas_without_instances_costs_what_it_took_and_keeps_the_configuration():
    engineer = AtlasEngineer(source(EMPTY))
    with pytest.raises(EngineerError, match="map size 3: no instances were measured"):
        engineer.propose(task_of(VIEW))
    one = EMPTY.cells[0].model_copy(update={"boards": (3, *(0,) * 8)})
    few = DesignAtlas(cells=(one, *EMPTY.cells[1:]))
    design = run_design(AtlasEngineer(source(few)), VIEW, DesignSettings(attempts=2))
    assert (design.kind, design.configuration) == ("kept", CURRENT)
    assert design.spent.probe_rollouts == 3 * 8


def test_the_configuration_in_force_stays_where_nothing_can_be_learned():
    unsolved = DesignAtlas(
        cells=tuple(one.model_copy(update={"boards": (16, *(0,) * 8)}) for one in ATLAS.cells)
    )
    design = run_design(AtlasEngineer(source(unsolved)), VIEW, DesignSettings())
    assert (design.kind, design.configuration) == ("accepted", CURRENT)
    assert unsolved.best(DOMAIN) != CURRENT


def test_the_review_bounds_how_far_the_atlas_may_go():
    guard = Guard(max_step=0.05)
    design = run_design(AtlasEngineer(source()), VIEW, DesignSettings(guard=guard))
    assert {repair.name for repair in design.repairs} >= {"bounded_step"}
    moved = [abs(change.new - change.old) for change in design.diff]
    assert max(moved) <= 0.05 + 1e-9


def test_an_oracle_tries_the_atlas_out_and_pays_for_both():
    best = answer_text(ATLAS.best(DOMAIN))

    def probe(configuration):
        won = answer_text(configuration) == best
        return ProbeResult(score=float(won), instances=10, rollouts=40)

    candidates = (CopyPreviousEngineer(), AtlasEngineer(source()))
    proposal = OracleEngineer(candidates, probe, probe_rollouts=40).propose(task_of(VIEW))
    assert proposal.text == best
    assert proposal.probe_rollouts == ATLAS.rollouts + 2 * 40
    assert [one.engineer for one in proposal.candidates] == ["copy_previous", "atlas"]
