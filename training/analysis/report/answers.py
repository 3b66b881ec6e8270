"""The validation answers of a run as JSON for report.js, which lists and plays them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxlake.board.grids import HOLE_SYMBOL, GridError, parse_grid
from jaxlake.command_line.board_records import solve_lines
from jaxlake.language.prompts import action_names
from jaxlake.render.palette import AGENT_COLOURS
from jaxlake.render.playback import make_action_array, make_board, play
from jaxlake.solver import Status
from training.analysis.report.load_run import ReportedRun, ReportedStage
from training.rollout.instances import InstanceSet
from training.run.records import EpisodeRecord, LakeAnswer

MAX_CHARACTERS = 3_500_000
"""Maximum size of the JSON in characters."""

TEXT_LIMITS = (4000, 1000, 250)
"""Limits of an answer's text in characters; the first one with which all answers fit applies."""

LETTERS = {"LEFT": "L", "DOWN": "D", "RIGHT": "R", "UP": "U", "WAIT": "W"}

_VALID = ("best", "valid")

Grid = tuple[str, ...]
PlansByBoard = Mapping[Grid, Sequence[Sequence[str]] | None]


@dataclass(frozen=True)
class EmbeddedAnswers:
    """The JSON for report.js, and the amount of omitted answers."""

    text: str = ""  # empty without answers
    validations_left_out: int = 0  # oldest first
    one_in: int = 1  # only every n-th answer of the last validation is included


def answers_json(
    run: ReportedRun, validation: Any = None, max_characters: int = MAX_CHARACTERS
) -> EmbeddedAnswers:
    """Return the answers of a run as ASCII JSON that is safe inside a `<script>` element.

    To stay within the limit, the function first shortens texts, then omits the oldest validations,
    and finally omits answers of the last one. `validation` is explained in `build_report`.
    """
    stages = [stage for stage in run.stages if stage.episodes]
    plans = _plans_by_board(stages, validation)
    choices = [(limit, 0, 1) for limit in TEXT_LIMITS]
    choices += [(TEXT_LIMITS[-1], number, 1) for number in range(1, len(stages))]
    choices += [(TEXT_LIMITS[-1], len(stages) - 1, 2**power) for power in range(1, 20)]
    for limit, left_out, one_in in choices if stages else ():
        chosen = [replace(stage, episodes=stage.episodes[::one_in]) for stage in stages[left_out:]]
        text = escaped_json(answers(run, chosen, plans, limit))
        if len(text) <= max_characters:
            return EmbeddedAnswers(text, left_out, one_in)
    return EmbeddedAnswers()


def escaped_json(value: object) -> str:
    """Return ASCII JSON with `<`, `>` and `&` escaped, for use inside an HTML element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def answers(
    run: ReportedRun, stages: Sequence[ReportedStage], plans: PlansByBoard, text_limit: int
) -> dict[str, Any]:
    """Return the answers of several validations and their boards.

    A board is `[id, group, rows, holes, needs_wait, optimum, solver's plan]`. `group` is an index
    into `"groups"`. `rows` has one string of cells without spaces per row, or is null for an
    invalid grid. An instance of another environment is `[id, group, lines]`.

    An answer is `[board, result, plan, time, agents, text, cut, about]`. `board` and `result` are
    indices into `"boards"` and `"results"`. `time` is the step of the first failure, from 0, and
    `agents` lists the agents that fail in it. A plan has one string per agent with one letter per
    action. `text` is null if it equals the plan in the usual words, and `cut` is the number of
    omitted characters. `about` is the reason why an answer is unreadable, or its reward in other
    environments.
    """
    boards: dict[tuple[int, Grid], tuple[int, EpisodeRecord]] = {}
    for stage in stages:
        for episode in stage.episodes:
            boards.setdefault((episode.id, episode.lines), (len(boards), episode))
    groups = list(dict.fromkeys([*run.groups, *(board.group for _, board in boards.values())]))
    kinds = dict.fromkeys([*_VALID, *run.vocabulary.failures])
    kinds |= dict.fromkeys(_result_name(episode) for stage in stages for episode in stage.episodes)
    results = {name: place for place, name in enumerate(kinds)}
    return {
        "lake": run.is_lake,
        "label": run.vocabulary.label,
        "instance": run.vocabulary.instance,
        "colours": AGENT_COLOURS,
        "groups": [run.group_name(group) for group in groups],
        "results": [_result_label(run, name) for name in results],
        "valid_results": len(_VALID),
        "boards": [_board_json(board, groups, plans) for _, board in boards.values()],
        "stages": [
            {
                "name": run.stage_name(stage.number),
                "answers": [
                    [
                        boards[episode.id, episode.lines][0],
                        *_answer_json(episode, results, text_limit),
                    ]
                    for episode in stage.episodes
                ],
            }
            for stage in stages
        ],
    }


def _result_name(episode: EpisodeRecord) -> str:
    if episode.valid:
        return "best" if episode.best else "valid"
    return episode.failure or "failed"


def _result_label(run: ReportedRun, result: str) -> str:
    labels = {"best": "valid", "valid": "valid"}
    if run.tells_best:
        labels = {"best": run.vocabulary.best, "valid": f"valid, not {run.vocabulary.best}"}
    return labels.get(result, result.replace("_", " "))


def _plans_by_board(stages: Sequence[ReportedStage], validation: Any) -> PlansByBoard:
    """Return plans from a solved set of boards, and solve all other answered boards."""
    plans = solver_plans(validation) if isinstance(validation, InstanceSet) else {}
    others = {
        episode.lines: None
        for stage in stages
        for episode in stage.episodes
        if episode.lake is not None and episode.lines not in plans
    }
    lines = (json.dumps({"id": row, "grid": grid}).encode() for row, grid in enumerate(others))
    solved = (record.get("plan") for _, record in solve_lines(lines))
    return plans | dict(zip(others, solved, strict=True))


def solver_plans(boards: InstanceSet) -> dict[Grid, list[list[str]] | None]:
    """Return plans of solved boards with the minimum sum of costs, by the rows of the board."""
    status, moves = np.asarray(boards.solutions.status), np.asarray(boards.solutions.plan)
    plans: dict[Grid, list[list[str]] | None] = {}
    for row, board in enumerate(boards):
        agents = int(np.sum(board.agent_mask))
        solved = status[row] == Status.OPTIMAL
        plans[tuple(boards.grid(row))] = action_names(moves[row, :, :agents]) if solved else None
    return plans


def _board_json(episode: EpisodeRecord, groups: Sequence[str], plans: PlansByBoard) -> list[Any]:
    row: list[Any] = [episode.id, groups.index(episode.group)]
    if (lake := episode.lake) is None:
        return [*row, "\n".join(episode.lines)]
    holes = sum(line.split().count(HOLE_SYMBOL) for line in episode.lines)
    facts = [holes, int(lake.needs_wait), lake.optimum]
    return [*row, _compact_rows(episode.lines), *facts, _plan_letters(plans[episode.lines])]


def _compact_rows(grid: Grid) -> list[str] | None:
    """Return the rows of a grid without spaces, or None for an invalid grid."""
    try:
        parse_grid(grid)
    except GridError:
        return None
    return ["".join(row.split()) for row in grid]


def _plan_letters(plan: Sequence[Sequence[str]] | None) -> list[str] | None:
    """Return a plan as one string per agent, or None if it is missing or has unknown actions."""
    if plan is None or not all(name in LETTERS for moves in plan for name in moves):
        return None
    return ["".join(LETTERS[name] for name in moves) for moves in plan]


def _answer_json(episode: EpisodeRecord, results: Mapping[str, int], text_limit: int) -> list[Any]:
    """Return an answer without its board and without trailing null or empty fields."""
    plan: list[str] | None = None
    agents: Sequence[int] = ()
    text: str | None = episode.text[:text_limit]
    cut, about = len(episode.text) - text_limit, episode.reason
    if (lake := episode.lake) is not None:
        plan, agents = _plan_letters(lake.plan), _failing_agents(episode, lake)
        lines = (f"Agent {k}: {' '.join(moves)}" for k, moves in enumerate(lake.plan or ()))
        if lake.plan is not None and episode.text == "\n".join(lines):  # report.js writes it, too
            text, cut = None, 0
    elif about is None:
        about = f"reward {episode.reward:g}"
    row = [results[_result_name(episode)], plan, episode.time, [*agents], text, max(cut, 0) or None]
    row.append(about)
    while row[-1] is None or row[-1] == []:
        row.pop()
    return row


def _failing_agents(episode: EpisodeRecord, lake: LakeAnswer) -> Sequence[int]:
    """Return all agents of the first failure."""
    if episode.failure is None:
        return ()
    fallback = () if lake.agent is None else (lake.agent,)
    try:
        board = make_board(parse_grid(episode.lines))
        moves = None
        if lake.plan is not None:
            moves = make_action_array(lake.plan, len(board.starts))
        place = {"agent": lake.agent, "time": episode.time}
        fault = play(board, moves, failure=episode.failure, **place).fault
    except (ValueError, IndexError):  # the record is inconsistent
        return fallback
    return fallback if fault is None else fault.agents
