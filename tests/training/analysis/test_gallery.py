"""Which answers a report shows, and in which order."""

from types import SimpleNamespace
from typing import Any

import pytest

from training.analysis.report import gallery
from training.analysis.report.figures import _with_a_colour_each
from training.run.answer_records import EpisodeRecord, LakeAnswer


def test_solved_boards_that_need_a_wait_come_first_and_sizes_take_turns_among_them(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(
        gallery, "example", lambda one: (int(one.group), one.lake.needs_wait, one.id)
    )
    kinds = [(size, wait) for size in (3, 4, 5) for wait in (False, False, False, True, True)]
    episodes: Any = [
        EpisodeRecord.model_construct(
            id=number,
            group=str(size),
            lake=LakeAnswer.model_construct(needs_wait=wait),
            valid=True,
            scores={},
        )
        for number, (size, wait) in enumerate(kinds)
    ]
    run: Any = SimpleNamespace(on_the_lake=True, groups=["3", "4", "5"])
    failed, solved = gallery.shown_episodes(run, episodes)
    assert failed == []
    assert solved == [
        (5, True, 13),
        (4, True, 8),
        (3, True, 3),
        (5, True, 14),
        (4, True, 9),
        (3, True, 4),
    ]


def test_phases_without_a_colour_of_their_own_are_added_up():
    few = {1: {"a": 1.0, "b": 2.0}}
    assert _with_a_colour_each(few) is few
    many = {1: {str(n): float(n) for n in range(1, 10)}, 2: {"1": 5.0, "9": 1.0}}
    assert _with_a_colour_each(many) == {
        1: {**{str(n): float(n) for n in (4, 5, 6, 7, 8, 9)}, "1": 1.0, "other": 5.0},
        2: {"1": 5.0, "9": 1.0},
    }
