"""All validation answers of a run as JSON inside the page, where report.js lists and plays them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxlake.board.grids import HOLE_SYMBOL, GridError, parse_grid
from jaxlake.render.palette import AGENT_COLOURS
from jaxlake.render.playback import Fault, actions_of_agents, board_of_instance, play
from training.analysis.report.reading import ReportedRun, ReportedStage
from training.analysis.report.solver_plans import known_plans, solver_plans
from training.rollout.instances import InstanceSet
from training.run.records import EpisodeRecord, LakeAnswer

MOST_CHARACTERS = 3_500_000
"""Of the JSON, unless a page says how much room it has."""

TEXT_LIMITS = (4000, 1000, 250)
"""Characters kept of an answer's text: the first limit with which all answers fit."""

LETTERS = {"LEFT": "L", "DOWN": "D", "RIGHT": "R", "UP": "U", "WAIT": "W"}

BoardKey = tuple[int, tuple[str, ...]]
PlansByBoard = Mapping[tuple[str, ...], Sequence[Sequence[str]] | None]


@dataclass(frozen=True)
class EmbeddedAnswers:
    """The JSON that report.js reads, and what was left out of it for its size."""

    text: str  # "": no answers
    validations_left_out: int = 0  # the oldest ones
    one_in: int = 1  # of the answers of the last validation, one in so many is there

    @property
    def left_out(self) -> str:
        """Say in a sentence what is left out; nothing if nothing is."""
        if self.one_in > 1:
            return f"Only one in {self.one_in} answers of the last validation is listed"
        if self.validations_left_out > 1:
            return f"The answers of the first {self.validations_left_out} validations are left out"
        if self.validations_left_out:
            return "The answers of the first validation are left out"
        return ""


NO_ANSWERS = EmbeddedAnswers("")


def answers_json(
    run: ReportedRun, validation: Any = None, most_characters: int = MOST_CHARACTERS
) -> EmbeddedAnswers:
    """Return all answers of a run for report.js, or as many as `most_characters` of ASCII hold.

    The text can stand inside of an element `<script>`: nothing in it can end that, or begin a
    comment. If the answers are too many, texts are cut; if they still are, the oldest validations
    are left out, and then every other answer of the last one, as often as it takes. For the
    solver's plans see `build_report`.
    """
    stages = [stage for stage in run.stages if stage.episodes]
    plans = _plans_by_board(stages, validation)
    for left_out in range(len(stages)):
        for limit in TEXT_LIMITS if left_out == 0 else TEXT_LIMITS[-1:]:
            text = escaped_json(answers(run, stages[left_out:], plans, limit))
            if len(text) <= most_characters:
                return EmbeddedAnswers(text, left_out)
    if not stages:
        return NO_ANSWERS
    last, one_in = stages[-1], 2
    while one_in < 2 * len(last.episodes):
        some = [replace(last, episodes=last.episodes[::one_in])]
        text = escaped_json(answers(run, some, plans, TEXT_LIMITS[-1]))
        if len(text) <= most_characters:
            return EmbeddedAnswers(text, len(stages) - 1, one_in)
        one_in *= 2
    return NO_ANSWERS


def escaped_json(value: object) -> str:
    """Write JSON in ASCII that an element of a page can hold: `<`, `>` and `&` are escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def answers(
    run: ReportedRun, stages: Sequence[ReportedStage], plans: PlansByBoard, text_limit: int
) -> dict[str, Any]:
    """Return the answers of some validations, and the boards they answer.

    Boards are `[id, group, rows, holes, needs_wait, optimum, solver's plan]`. A group is its place
    in `"groups"`, and rows are one string of cells without spaces per row, or null for a grid that
    is no board. Instances of other environments are `[id, group, lines]`.

    Answers are `[board, result, plan, time, agents, text, cut, about]`: the board and the result
    by their places in `"boards"` and `"results"`; `time` is the step of the first failure, counted
    from 0, and `agents` all who fail in it. Plans are one string per agent, one letter per action.
    A text is null where it is what the plan says, in the usual words, and `cut` counts characters
    left out. `about` is the reason of an unreadable answer, or a reward in other environments.
    """
    boards: dict[BoardKey, tuple[int, EpisodeRecord]] = {}
    for stage in stages:
        for one in stage.episodes:
            boards.setdefault((one.id, one.lines), (len(boards), one))
    groups = list(dict.fromkeys([*run.groups, *(one.group for _, one in boards.values())]))
    results = {name: place for place, name in enumerate(_results(run, stages))}
    return {
        "lake": run.on_the_lake,
        "label": run.words.label,
        "instance": run.words.instance,
        "colours": AGENT_COLOURS,
        "groups": [run.called(group) for group in groups],
        "results": [_result_words(run, name) for name in results],
        "valid_results": sum(name in _VALID for name in results),
        "boards": [_board(one, groups, plans) for _, one in boards.values()],
        "stages": [
            {
                "name": run.stage_name(stage.number),
                "number": stage.number,
                "answers": [
                    [boards[one.id, one.lines][0], *_answer(one, results, text_limit)]
                    for one in stage.episodes
                ],
            }
            for stage in stages
        ],
    }


_VALID = ("best", "valid")


def _results(run: ReportedRun, stages: Sequence[ReportedStage]) -> list[str]:
    """How answers may turn out: the valid ones first, then kinds of failure in their order."""
    kinds = dict.fromkeys([*_VALID, *run.words.failures])
    for stage in stages:
        kinds |= dict.fromkeys(_result(one) for one in stage.episodes)
    return list(kinds)


def _result(episode: EpisodeRecord) -> str:
    if episode.valid:
        return "best" if episode.best else "valid"
    return episode.failure or "failed"


def _result_words(run: ReportedRun, result: str) -> str:
    best = "optimal" if run.on_the_lake else "best possible"
    known = {"best": "valid", "valid": "valid"}
    if run.tells_best:
        known = {"best": best, "valid": f"valid, not {best}"}
    return known.get(result, result.replace("_", " "))


def _plans_by_board(stages: Sequence[ReportedStage], validation: Any) -> PlansByBoard:
    """Take the plans of a solved set of boards, and solve every other one that was answered."""
    grids = {one.lines: None for stage in stages for one in stage.episodes if one.lake is not None}
    known = known_plans(validation) if isinstance(validation, InstanceSet) else {}
    others = [grid for grid in grids if grid not in known]
    return known | dict(zip(others, solver_plans(others), strict=True))


def _board(episode: EpisodeRecord, groups: Sequence[str], plans: PlansByBoard) -> list[Any]:
    row: list[Any] = [episode.id, groups.index(episode.group)]
    if (lake := episode.lake) is None:
        return [*row, "\n".join(episode.lines)]
    holes = sum(line.split().count(HOLE_SYMBOL) for line in episode.lines)
    facts = [holes, int(lake.needs_wait), lake.optimum]
    return [*row, _cells(episode), *facts, _letters(plans[episode.lines])]


def _cells(episode: EpisodeRecord) -> list[str] | None:
    """Return the rows of a grid without spaces; None if it is no board."""
    try:
        parse_grid(episode.lines)
    except GridError:
        return None
    return ["".join(row.split()) for row in episode.lines]


def _letters(plan: Sequence[Sequence[str]] | None) -> list[str] | None:
    """Write a plan as one string per agent; None if there is none, or an action is unknown."""
    if plan is None or not all(name in LETTERS for moves in plan for name in moves):
        return None
    return ["".join(LETTERS[name] for name in moves) for moves in plan]


def _answer(episode: EpisodeRecord, results: Mapping[str, int], text_limit: int) -> list[Any]:
    """Return an answer without its board, its last fields left out if they are null or empty."""
    plan: list[str] | None = None
    agents: list[int] = []
    text: str | None = episode.text[:text_limit]
    cut, about = len(episode.text) - text_limit, episode.reason
    if (lake := episode.lake) is not None:
        fault = _fault(episode, lake)
        plan, agents = _letters(lake.plan), list(fault.agents) if fault else []
        if lake.agent is not None and _cells(episode) is None:
            agents = [lake.agent]  # which no board can be asked for
        if lake.plan is not None and episode.text == _usual_words(lake.plan):
            text, cut = None, 0
    elif about is None:
        about = f"reward {episode.reward:g}"
    row = [results[_result(episode)], plan, episode.time, agents, text, max(cut, 0) or None, about]
    while row[-1] is None or row[-1] == []:
        row.pop()
    return row


def _usual_words(plan: Sequence[Sequence[str]]) -> str:
    """Write a plan as policies are taught to write it; report.js does the same."""
    return "\n".join(f"Agent {k}: {' '.join(moves)}" for k, moves in enumerate(plan))


def _fault(episode: EpisodeRecord, lake: LakeAnswer) -> Fault | None:
    """Return the first failure with all its agents; None where the record makes no sense."""
    if episode.failure is None:
        return None
    try:
        board = board_of_instance(parse_grid(episode.lines))
        actions = None
        if lake.plan is not None:
            actions = actions_of_agents(lake.plan, len(board.starts))
        return play(
            board, actions, failure=episode.failure, agent=lake.agent, time=episode.time
        ).fault
    except ValueError:
        return None
