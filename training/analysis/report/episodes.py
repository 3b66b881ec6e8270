"""Which episodes the report shows, and how each is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup

from jaxlake.render import FAILURES, episode_svg
from training.run.records import EpisodeRecord

EPISODES_SHOWN = 6
"""How many of the failed ones, and of the solved ones."""

LONGEST_PLAN = 60
LONGEST_ANSWER = 1500


def shown_episodes(
    episodes: Sequence[EpisodeRecord],
) -> tuple[list[EpisodeRecord], list[EpisodeRecord]]:
    """Choose some failed and some solved episodes, by rule and not by eye.

    Failed: the kinds of failure take turns in the verifier's order, each giving its first episode
    in the file, then its second. Solved: those that need a wait come first; map sizes take turns
    from the largest.
    """
    kinds = {kind: rank for rank, kind in enumerate(FAILURES)}
    failed = _take_turns(
        (one for one in episodes if not one.valid),
        lambda one: kinds.get(one.failure or "", len(kinds)),
    )
    solved = _take_turns((one for one in episodes if one.valid), lambda one: -one.size)
    solved.sort(key=lambda one: not one.needs_wait)
    return failed[:EPISODES_SHOWN], solved[:EPISODES_SHOWN]


def picture(episode: EpisodeRecord) -> tuple[Markup | None, str]:
    """Draw an episode; the second value says why it is not drawn or not played."""
    plan, problem = episode.plan, ""
    if plan is not None and max(map(len, plan), default=0) > LONGEST_PLAN:
        plan, problem = None, f"The plan has more than {LONGEST_PLAN} steps and is not played."
    try:
        svg = episode_svg(
            episode.grid,
            plan,
            failure=episode.failure,
            failure_agent=episode.agent,
            failure_time=episode.time,
        )
    except ValueError as error:
        return None, f"It can't be drawn: {error}"
    return Markup(svg), problem


def _take_turns(
    episodes: Iterable[EpisodeRecord], turn: Callable[[EpisodeRecord], int]
) -> list[EpisodeRecord]:
    """The first of each group in the order of their turns, then the second of each, and so on."""
    groups: dict[int, list[EpisodeRecord]] = {}
    for one in episodes:
        groups.setdefault(turn(one), []).append(one)
    ranked = [(rank, key, one) for key, group in groups.items() for rank, one in enumerate(group)]
    return [one for _, _, one in sorted(ranked, key=lambda entry: entry[:2])]
