"""The examples of a report: which answers are shown, and their pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from jaxlake.render import FAILURES, episode_svg
from training.analysis.report.reading import ReportedRun
from training.run.records import EpisodeRecord

EPISODES_SHOWN = 6  # of the failed ones, and of the solved ones
GALLERY_CELL, GALLERY_BOARD = 44, 170  # least pixels: all text on a board has 11 or more
LONGEST_PLAN = 60


@dataclass(frozen=True)
class Example:
    """An answer with its picture, or the instance in its lines."""

    episode: EpisodeRecord
    picture: Markup | None
    problem: str = ""  # why it is not drawn or not played

    @property
    def styles(self) -> list[str]:
        """The texts of the picture's style sheets."""
        return re.findall(r"<style>(.*?)</style>", self.picture or "", flags=re.DOTALL)


def example(episode: EpisodeRecord) -> Example:
    """Draw an episode; instances of other environments than the lake are shown in their lines."""
    if (lake := episode.lake) is None:
        return Example(episode, Markup("<pre>{}</pre>").format("\n".join(episode.lines)))
    plan, problem = lake.plan, ""
    if plan is not None and max(map(len, plan), default=0) > LONGEST_PLAN:
        plan, problem = None, f"The plan has more than {LONGEST_PLAN} steps and is not played."
    try:
        svg = episode_svg(
            episode.lines,
            plan,
            failure=episode.failure,
            failure_agent=lake.agent,
            failure_time=episode.time,
            cell=max(GALLERY_CELL, GALLERY_BOARD / max(len(episode.lines), 1)),
        )
    except ValueError as error:
        return Example(episode, None, f"It can't be drawn: {error}")
    return Example(episode, Markup(svg), problem)


def shown_episodes(
    run: ReportedRun,
    episodes: Sequence[EpisodeRecord],
) -> tuple[list[Example], list[Example]]:
    """Choose some failed and some solved episodes, by rule and not by eye.

    Failed: the kinds of failure take turns in the verifier's order, each giving its first episode
    in the file, then its second. Solved: boards that need a wait come first; among them, and among
    the others, map sizes take turns from the largest, and groups of other environments from the
    last.
    """
    order = FAILURES if run.on_the_lake else tuple(run.words.failures)
    kinds = {kind: rank for rank, kind in enumerate(order)}
    groups = {group: rank for rank, group in enumerate(run.groups)}
    failed = _take_turns(
        (one for one in episodes if not one.valid),
        lambda one: kinds.get(one.failure or "", len(kinds)),
    )
    valid = [one for one in episodes if one.valid]
    waits = [one.lake is not None and one.lake.needs_wait for one in valid]
    solved = [
        one
        for needed in (True, False)
        for one in _take_turns(
            (one for one, wait in zip(valid, waits, strict=True) if wait == needed),
            lambda one: -groups.get(one.group, 0),
        )
    ]
    first, second = failed[:EPISODES_SHOWN], solved[:EPISODES_SHOWN]
    return [example(one) for one in first], [example(one) for one in second]


def _take_turns(
    episodes: Iterable[EpisodeRecord], turn: Callable[[EpisodeRecord], int]
) -> list[EpisodeRecord]:
    """The first of each group in the order of their turns, then the second of each, and so on."""
    groups: dict[int, list[EpisodeRecord]] = {}
    for one in episodes:
        groups.setdefault(turn(one), []).append(one)
    ranked = [(rank, key, one) for key, group in groups.items() for rank, one in enumerate(group)]
    return [one for _, _, one in sorted(ranked, key=lambda entry: entry[:2])]
