"""Which episodes the report shows, and how each is drawn."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from jaxlake.render import FAILURES, episode_svg
from training.report.reading import Record

FAILED_SHOWN = 6
SOLVED_SHOWN = 6
LONGEST_PLAN = 60
LONGEST_ANSWER = 1500


@dataclass(frozen=True)
class Episode:
    """One answer: the picture, or why there is none, and what was said about it."""

    name: str
    outcome: str
    facts: str
    picture: Markup | None
    problem: str
    text: str
    left_out: int
    """Characters of the answer that are not shown."""


def shown_episodes(episodes: Sequence[Record]) -> tuple[list[Episode], list[Episode]]:
    """Some failed and some solved episodes, chosen by rule and not by eye.

    Failed: kinds take turns in the verifier's order, each giving its first episode in the file,
    then its second. Solved: those that need a wait first, map sizes taking turns from the largest.
    """
    failed = [one for one in episodes if one.get("valid") is not True]
    solved = [one for one in episodes if one.get("valid") is True]
    kinds = {kind: rank for rank, kind in enumerate(FAILURES)}
    failed = _take_turns(failed, lambda one: kinds.get(str(one.get("failure")), len(kinds)))
    solved = _take_turns(solved, lambda one: -_whole(one.get("size"), 0))
    solved.sort(key=lambda one: one.get("needs_wait") is not True)
    return (
        [_draw(one) for one in failed[:FAILED_SHOWN]],
        [_draw(one) for one in solved[:SOLVED_SHOWN]],
    )


def _take_turns(episodes: Iterable[Record], turn: Callable[[Record], int]) -> list[Record]:
    groups: dict[int, list[Record]] = {}
    for one in episodes:
        groups.setdefault(turn(one), []).append(one)
    ranked = [(rank, key, one) for key, group in groups.items() for rank, one in enumerate(group)]
    return [one for _, _, one in sorted(ranked, key=lambda entry: entry[:2])]


def _draw(record: Record) -> Episode:
    size = record.get("size")
    text = record.get("text")
    text = text if isinstance(text, str) else ""
    picture, problem = _picture(record)
    return Episode(
        name=f"Board {record.get('id')} · {size} × {size}",  # noqa: RUF001
        outcome=_outcome(record),
        facts=_facts(record),
        picture=picture,
        problem=problem,
        text=text[:LONGEST_ANSWER],
        left_out=max(len(text) - LONGEST_ANSWER, 0),
    )


def _picture(record: Record) -> tuple[Markup | None, str]:
    plan, problem = record.get("plan"), ""
    if isinstance(plan, list) and max((len(moves) for moves in plan if moves), default=0) > (
        LONGEST_PLAN
    ):
        plan, problem = None, f"The plan has more than {LONGEST_PLAN} steps and isn't played."
    try:
        picture = episode_svg(
            record["grid"],
            plan,
            failure=record.get("failure"),
            failure_agent=record.get("agent"),
            failure_time=record.get("time"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return None, f"It can't be drawn: {error}"
    return Markup(picture), problem


def _outcome(record: Record) -> str:
    if record.get("valid") is True:
        return "optimal" if record.get("optimal_sum_of_costs") is True else "valid, not optimal"
    return str(record.get("failure") or "failed").replace("_", " ")


def _facts(record: Record) -> str:
    facts = []
    if (cost := _whole(record.get("sum_of_costs"), -1)) >= 0:
        facts.append(f"sum of costs {cost}")
    if (optimum := _whole(record.get("optimum"), -1)) >= 0:
        facts.append(f"optimum {optimum}")
    if record.get("needs_wait") is True:
        facts.append("needs a wait")
    reason = record.get("reason")
    if isinstance(reason, str) and reason:
        facts.append(reason if len(reason) <= 120 else reason[:119] + "…")
    return " · ".join(facts)


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
