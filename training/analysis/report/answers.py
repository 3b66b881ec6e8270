"""The validation answers of a run as JSON. The script `report.js` lists and plays them."""

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
"""Limits of an answer's text in characters. The first limit with which all answers fit is used."""

ACTION_LETTERS = {"LEFT": "L", "DOWN": "D", "RIGHT": "R", "UP": "U", "WAIT": "W"}

_VALID_RESULTS = ("best", "valid")

Grid = tuple[str, ...]
PlansByBoard = Mapping[Grid, Sequence[Sequence[str]] | None]


@dataclass(frozen=True)
class EmbeddedAnswers:
    """The JSON for report.js, and what it omits to stay within the limit."""

    text: str = ""  # empty without answers
    omitted_validations: int = 0  # number of the oldest validations that are omitted
    stride: int = 1  # only every `stride`-th answer of the last validation is included


def answers_json(
    run: ReportedRun, validation: Any = None, max_characters: int = MAX_CHARACTERS
) -> EmbeddedAnswers:
    """Return the answers of a run as ASCII JSON that is safe inside a `<script>` element.

    To stay within the limit, the function first shortens texts, then omits the oldest validations,
    and finally omits answers of the last one. `build_report` explains `validation`.
    """
    stages = [stage for stage in run.stages if stage.episodes]
    plans = _plans_by_board(stages, validation)
    reductions = [(text_limit, 0, 1) for text_limit in TEXT_LIMITS]
    reductions += [(TEXT_LIMITS[-1], skip, 1) for skip in range(1, len(stages))]
    reductions += [(TEXT_LIMITS[-1], len(stages) - 1, 2**power) for power in range(1, 20)]
    for text_limit, skip, stride in reductions if stages else ():
        subset = [replace(stage, episodes=stage.episodes[::stride]) for stage in stages[skip:]]
        text = escape_json(answer_tables(run, subset, plans, text_limit))
        if len(text) <= max_characters:
            return EmbeddedAnswers(text, skip, stride)
    return EmbeddedAnswers()


def escape_json(value: object) -> str:
    """Return ASCII JSON with `<`, `>` and `&` escaped, for use inside an HTML element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def answer_tables(
    run: ReportedRun, stages: Sequence[ReportedStage], plans: PlansByBoard, text_limit: int
) -> dict[str, Any]:
    """Return the answers of several validations and their boards.

    A board is `[id, group, rows, holes, needs_wait, optimum, solver's plan]`. `group` is an index
    into `"groups"`. `rows` has one string of cells without spaces per row, or is null for an
    invalid grid. An instance of another environment is `[id, group, lines]`.

    An answer is `[board, result, plan, time, agents, text, cut, note]`. `board` and `result` are
    indices into `"boards"` and `"results"`. `time` is the step of the first failure, from 0, and
    `agents` lists the agents that fail in it. A plan has one string per agent with one letter per
    action. `text` is null if it equals the plan in the default format, and `cut` is the number of
    omitted characters. `note` is the reason why an answer is unreadable, or its reward in other
    environments.
    """
    boards: dict[tuple[int, Grid], tuple[int, EpisodeRecord]] = {}
    for stage in stages:
        for episode in stage.episodes:
            boards.setdefault((episode.id, episode.lines), (len(boards), episode))
    groups = list(dict.fromkeys([*run.groups, *(board.group for _, board in boards.values())]))
    kinds = dict.fromkeys([*_VALID_RESULTS, *run.vocabulary.failures])
    kinds |= dict.fromkeys(_result_name(episode) for stage in stages for episode in stage.episodes)
    results = {name: index for index, name in enumerate(kinds)}
    return {
        "lake": run.is_lake,
        "label": run.vocabulary.label,
        "instance": run.vocabulary.instance,
        "colours": AGENT_COLOURS,
        "groups": [run.group_name(group) for group in groups],
        "results": [_result_label(run, name) for name in results],
        "valid_results": len(_VALID_RESULTS),
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
    if run.has_best_rate:
        labels = {"best": run.vocabulary.best, "valid": f"valid, not {run.vocabulary.best}"}
    return labels.get(result, result.replace("_", " "))


def _plans_by_board(stages: Sequence[ReportedStage], validation: Any) -> PlansByBoard:
    """Return optimal plans: from the solved set if available, otherwise from the solver."""
    plans = plans_of_solved_boards(validation) if isinstance(validation, InstanceSet) else {}
    unsolved_grids = {
        episode.lines: None
        for stage in stages
        for episode in stage.episodes
        if episode.lake is not None and episode.lines not in plans
    }
    lines = (json.dumps({"id": i, "grid": grid}).encode() for i, grid in enumerate(unsolved_grids))
    solver_plans = (record.get("plan") for _, record in solve_lines(lines))
    return plans | dict(zip(unsolved_grids, solver_plans, strict=True))


def plans_of_solved_boards(boards: InstanceSet) -> dict[Grid, list[list[str]] | None]:
    """Return plans with the minimum sum of costs by the rows of the board; None if unsolved."""
    status, moves = np.asarray(boards.solutions.status), np.asarray(boards.solutions.plan)
    plans: dict[Grid, list[list[str]] | None] = {}
    for index, board in enumerate(boards):
        num_agents = int(np.sum(board.agent_mask))
        is_solved = status[index] == Status.OPTIMAL
        plan = action_names(moves[index, :, :num_agents]) if is_solved else None
        plans[tuple(boards.grid(index))] = plan
    return plans


def _board_json(episode: EpisodeRecord, groups: Sequence[str], plans: PlansByBoard) -> list[Any]:
    identity: list[Any] = [episode.id, groups.index(episode.group)]
    if (lake := episode.lake) is None:
        return [*identity, "\n".join(episode.lines)]
    holes = sum(line.split().count(HOLE_SYMBOL) for line in episode.lines)
    properties = [holes, int(lake.needs_wait), lake.optimum]
    rows, plan = _compact_rows(episode.lines), _plan_letters(plans[episode.lines])
    return [*identity, rows, *properties, plan]


def _compact_rows(grid: Grid) -> list[str] | None:
    """Return the rows of a grid without spaces, or None for an invalid grid."""
    try:
        parse_grid(grid)
    except GridError:
        return None
    return ["".join(row.split()) for row in grid]


def _plan_letters(plan: Sequence[Sequence[str]] | None) -> list[str] | None:
    """Return a plan as one string per agent, or None if it is missing or has unknown actions."""
    if plan is None or not all(name in ACTION_LETTERS for actions in plan for name in actions):
        return None
    return ["".join(ACTION_LETTERS[name] for name in actions) for actions in plan]


def _answer_json(episode: EpisodeRecord, results: Mapping[str, int], text_limit: int) -> list[Any]:
    """Return an answer without its board and without trailing null or empty fields."""
    plan: list[str] | None = None
    agents: Sequence[int] = ()
    text: str | None = episode.text[:text_limit]
    cut, note = len(episode.text) - text_limit, episode.reason
    if (lake := episode.lake) is not None:
        plan, agents = _plan_letters(lake.plan), _failing_agents(episode, lake)
        lines = (f"Agent {k}: {' '.join(actions)}" for k, actions in enumerate(lake.plan or ()))
        if lake.plan is not None and episode.text == "\n".join(lines):  # report.js formats it
            text, cut = None, 0
    elif note is None:
        note = f"reward {episode.reward:g}"
    result = results[_result_name(episode)]
    fields = [result, plan, episode.time, [*agents], text, max(cut, 0) or None, note]
    while fields[-1] is None or fields[-1] == []:
        fields.pop()
    return fields


def _failing_agents(episode: EpisodeRecord, lake: LakeAnswer) -> Sequence[int]:
    """Return the agents that are part of the first failure."""
    if episode.failure is None:
        return ()
    recorded_agent = () if lake.agent is None else (lake.agent,)
    try:
        board = make_board(parse_grid(episode.lines))
        plan = None if lake.plan is None else make_action_array(lake.plan, len(board.starts))
        playback = play(board, plan, failure=episode.failure, agent=lake.agent, time=episode.time)
    except (ValueError, IndexError):  # the record is inconsistent
        return recorded_agent
    return recorded_agent if playback.fault is None else playback.fault.agents
