"""Parse plans from the answers of language models.

The parser accepts many formats (tags, JSON, tables, lists of steps, lines of actions) but never
guesses actions. See `parse_answer`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jaxlake.board.dynamics import Action
from jaxlake.language.plans import AgentPlan, Plan, find_plans
from jaxlake.language.thinking import after_thinking

_ANSWER = re.compile(r"<(/?)answer>", re.IGNORECASE)
# Text between tags that are only mentioned, as in "between <answer> and </answer>".
_MENTION = re.compile(r"[\s`'\".]*(?:and|to|your|final|plan|here|tags|\.)*[\s`'\".]*")

_WAIT = bytes([Action.WAIT])


@dataclass(frozen=True)
class Answer:
    """A parsed answer: either a plan, or the reason why there is none."""

    parsed: bool
    plan: Plan | None  # one tuple of `Action` values per agent, possibly of different lengths
    reason: str | None  # why the answer can't be parsed


class _AnswerError(Exception):
    """An answer can't be parsed; the message is the reason."""


def parse_answer(text: str, num_agents: int, *, max_steps: int) -> Answer:
    """Parse the plan in a model's answer, without checking it against a board.

    Only the text after the last thinking block counts (see `jaxlake.language.thinking`), and if it
    holds complete `<answer>` blocks, only the last block. In this text, the parser uses the last
    complete set of plans, one per agent. It ignores drafts, restated tasks, prose, step-by-step
    checks and explanations that repeat parts of the plan.

    A plan is a line (`Agent 0: RIGHT DOWN`), a heading with a list, a table, a list of time steps
    or JSON. Positions and remarks in parentheses may follow an action.

    Parsing fails if the thinking or the answer block is never closed, an agent is missing or
    unknown, the plan holds a word that is not an action, or an agent has more than `max_steps`
    actions.

    Args:
        text: the whole answer. If the prompt ends with a mark that begins thinking, the text must
            start with this mark.
        num_agents: number of agents, at least 1.
        max_steps: maximum number of actions per agent, at least 1.

    Returns:
        The `Answer`, with `parsed` False and a `reason` if parsing fails.

    Raises:
        ValueError: `num_agents` or `max_steps` is below 1.
    """
    if num_agents < 1 or max_steps < 1:
        raise ValueError(f"num_agents {num_agents}, max_steps {max_steps}: both must be at least 1")
    try:
        body = _answer_block(_after_thinking(text))
        plan = _last_complete(find_plans(body, num_agents), num_agents, max_steps)
        return Answer(parsed=True, plan=plan, reason=None)
    except _AnswerError as error:
        return Answer(parsed=False, plan=None, reason=str(error))


def _after_thinking(text: str) -> str:
    answer, unfinished = after_thinking(text)
    if unfinished:
        raise _AnswerError("the thinking block is never closed")
    return answer


def _answer_block(text: str) -> str:
    """Return the last complete `<answer>` block, or the whole text if it only mentions the tags."""
    opened: int | None = 0  # the prompt may have opened the block
    closed, mentioned, block = False, False, None
    for tag in _ANSWER.finditer(text):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            closed = True
            body = text[opened : tag.start()]
            if _MENTION.fullmatch(body):
                mentioned = mentioned or bool(body.strip())
            else:
                block = body
            opened = None
    if block is not None:
        return block
    if opened and not closed:
        raise _AnswerError("the answer block is never closed")
    return text if mentioned or not closed else ""


def _last_complete(found: Sequence[AgentPlan], num_agents: int, max_steps: int) -> Plan:
    """Return the last consecutive plans with each agent once, preferably in agent order."""
    plans = _without_repeats(plan for plan in found if not plan.remark)
    plans = _without_quotes(plans, max_steps)
    end = _end_in_order(plans, num_agents) or _end_in_any_order(plans, num_agents)
    if end is None:
        raise _AnswerError(_missing(plans, found, num_agents))
    if end < len(plans) and plans[end].agent >= num_agents:
        raise _AnswerError(_unknown_agent(plans[end].agent, num_agents))
    chosen = sorted(plans[end - num_agents : end], key=lambda plan: plan.agent)
    for plan in chosen:
        if plan.error is not None:
            raise _AnswerError(plan.error)
        if len(plan.actions) > max_steps:
            raise _AnswerError(f"agent {plan.agent} has more than {max_steps} actions")
    _check_block(plans, end - num_agents, end)
    if end < len(plans) and plans[-1].cut_off:
        raise _AnswerError(f"the last set of plans is cut off at agent {plans[-1].agent}")
    return tuple(tuple(plan.actions) for plan in chosen)


def _without_repeats(found: Iterable[AgentPlan]) -> list[AgentPlan]:
    plans: list[AgentPlan] = []
    for plan in found:
        last = plans[-1] if plans else None
        same = last and (last.block, last.agent, last.actions) == (
            plan.block,
            plan.agent,
            plan.actions,
        )
        if not same:
            plans.append(plan)
    return plans


def _without_quotes(plans: Iterable[AgentPlan], max_steps: int) -> list[AgentPlan]:
    """Drop checks and explanations that only repeat parts of earlier plans."""
    runs: list[dict[int, AgentPlan]] = []  # one plan, or consecutive loose plans of several agents
    for plan in plans:
        last = next(reversed(runs[-1].values())) if runs else None
        if not (last and last.loose and plan.loose and plan.agent not in runs[-1]):
            runs.append({})
        runs[-1][plan.agent] = plan
    kept: list[AgentPlan] = []
    earlier: dict[int, bytes] = {}
    for run in runs:
        told = {agent: bytes(plan.actions) for agent, plan in run.items()}
        loose = all(plan.loose and agent in earlier for agent, plan in run.items())
        if loose and _quote([(told[agent], earlier[agent]) for agent in run]):
            continue
        for agent, plan in run.items():
            kept.append(plan)
            usable = plan.error is None and len(plan.actions) <= max_steps
            earlier[agent] = told[agent] if usable else b""
    return kept


def _quote(pairs: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether actions are prefixes or shorter parts of the earlier plans."""
    parts = [(told.rstrip(_WAIT), plan) for told, plan in pairs]  # quotes may end with waits
    moves = [[len(actions.replace(_WAIT, b"")) for actions in pair] for pair in parts]
    return all(told in plan for told, plan in parts) and (
        any(some < every for some, every in moves)
        or all(plan.startswith(told) for told, plan in parts)
    )


def _check_block(plans: Sequence[AgentPlan], start: int, end: int) -> None:
    """Reject plans whose block holds another plan of the same agent."""
    before = start
    while before and plans[before - 1].block == plans[start].block:
        before -= 1
    after = end
    while after < len(plans) and plans[after].block == plans[end - 1].block:
        after += 1
    if (start - before) % (end - start):
        raise _AnswerError(f"agent {plans[start - 1].agent} is named twice, with different actions")
    if after > end:
        raise _AnswerError(f"agent {plans[end].agent} is named twice, with different actions")


def _end_in_order(plans: Sequence[AgentPlan], num_agents: int) -> int | None:
    """Return the end index of the last run of agents 0, 1, 2, ..."""
    row = 0
    end: int | None = None
    for index, plan in enumerate(plans):
        row = row + 1 if plan.agent == row else int(plan.agent == 0)
        if row == num_agents:
            row, end = 0, index + 1
    return end


def _end_in_any_order(plans: Sequence[AgentPlan], num_agents: int) -> int | None:
    seen = set[int]()
    end: int | None = None
    for index, plan in enumerate(plans):
        seen = {plan.agent} if plan.agent in seen else seen | {plan.agent}
        if seen == set(range(num_agents)):
            seen, end = set(), index + 1
    return end


def _missing(plans: Sequence[AgentPlan], found: Sequence[AgentPlan], num_agents: int) -> str:
    named = {plan.agent for plan in plans}
    if unknown := [agent for agent in named if agent >= num_agents]:
        return _unknown_agent(min(unknown), num_agents)
    if len(named) == num_agents:
        return "no set of plans is complete: one for each agent is needed"
    agent = min(set(range(num_agents)) - named)
    remarks = [plan.error for plan in found if plan.remark and plan.agent == agent]
    why = remarks[-1] if remarks else f"no 'Agent {agent}:' with actions was found"
    return f"agent {agent} is missing: {why}"


def _unknown_agent(agent: int, num_agents: int) -> str:
    return f"agent {agent} is unknown: allowed are 0 to {num_agents - 1}"
