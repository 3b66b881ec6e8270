"""Parse plans from the answers of language models.

The parser accepts many formats (tags, JSON, tables, lists of steps, lines of actions) but never
guesses actions. See `parse_answer`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from jaxlake.board.dynamics import Action
from jaxlake.language.plans import AgentPlan, Plan, find_plans
from jaxlake.language.thinking import split_thinking

_ANSWER = re.compile(r"<(/?)answer\b[^<>]{0,60}>", re.IGNORECASE)
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
    complete set of plans, one per agent. It ignores drafts, rejected options, restated tasks,
    prose, step-by-step checks and explanations that repeat parts of the plan. A later revision of
    some agents alone is ignored too, or makes parsing fail if it ends the text.

    A plan is a line (`Agent 0: RIGHT DOWN`), a heading with a list, a table, a list of time steps
    or JSON. Positions and remarks in parentheses may follow an action. In an `<answer>` block,
    names may be missing if the block holds one line of actions per agent and nothing else.
    XML elements per agent, arrows as actions and letters as names are not supported.

    Parsing fails if the thinking or the answer block is never closed, an agent is missing or
    unknown, the plan is cut off or holds a word that is not an action, or an agent has more than
    `max_steps` actions.

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
        body, tagged = _answer_block(text)
        plans = find_plans(body, num_agents, tagged=tagged)
        plan = _last_complete(plans, num_agents, max_steps)
        return Answer(parsed=True, plan=plan, reason=None)
    except _AnswerError as error:
        return Answer(parsed=False, plan=None, reason=str(error))


def _answer_block(text: str) -> tuple[str, bool]:
    """Return the last complete `<answer>` block and True, or the whole answer and False."""
    text, unfinished = split_thinking(text)
    if unfinished:
        raise _AnswerError("the thinking block is never closed")
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
        return block, True
    if opened and not closed:
        raise _AnswerError("the answer block is never closed")
    return (text if mentioned or not closed else ""), False


def _last_complete(candidates: Sequence[AgentPlan], num_agents: int, max_steps: int) -> Plan:
    """Return the last consecutive plans with each agent once.

    A revision of some agents never replaces their plans. If the text ends with it, parsing fails.
    """
    given = (plan for plan in candidates if not plan.remark)
    same = groupby(given, key=lambda plan: (plan.block, plan.agent, plan.actions))
    plans = _without_quotes([next(repeats) for _, repeats in same], max_steps)
    end = _end_of_set(plans, num_agents)
    if end is None:
        raise _AnswerError(_missing(plans, candidates, num_agents))
    start = end - num_agents
    if end < len(plans) and plans[end].agent >= num_agents:
        raise _AnswerError(_unknown_agent(plans[end].agent, num_agents))
    chosen = sorted(plans[start:end], key=lambda plan: plan.agent)
    for plan in chosen:
        if plan.error is not None:
            raise _AnswerError(plan.error)
        if len(plan.actions) > max_steps:
            raise _AnswerError(f"agent {plan.agent} has more than {max_steps} actions")
    before = takewhile(lambda plan: plan.block == plans[start].block, reversed(plans[:start]))
    extra = len(list(before)) % num_agents
    if extra or (end < len(plans) and plans[end].block == plans[end - 1].block):
        agent = plans[start - 1 if extra else end].agent
        raise _AnswerError(f"agent {agent} is named twice, with different actions")
    if end < len(plans) and plans[-1].cut_off:
        raise _AnswerError(f"the last set of plans is cut off at agent {plans[-1].agent}")
    return tuple(tuple(plan.actions) for plan in chosen)


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
        quoted = {agent: bytes(plan.actions) for agent, plan in run.items()}
        loose = all(plan.loose and agent in earlier for agent, plan in run.items())
        if loose and _quote([(quoted[agent], earlier[agent]) for agent in run]):
            continue
        for agent, plan in run.items():
            kept.append(plan)
            usable = plan.error is None and len(plan.actions) <= max_steps
            earlier[agent] = quoted[agent] if usable else b""
    return kept


def _quote(pairs: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether actions are prefixes or shorter parts of the earlier plans."""
    parts = [(quoted.rstrip(_WAIT), plan) for quoted, plan in pairs]  # quotes may end with waits
    moves = [[len(actions.replace(_WAIT, b"")) for actions in pair] for pair in parts]
    return all(quoted in plan for quoted, plan in parts) and (
        any(some < every for some, every in moves)
        or all(plan.startswith(quoted) for quoted, plan in parts)
    )


def _end_of_set(plans: Sequence[AgentPlan], num_agents: int) -> int | None:
    """Return the end index of the last set that is in order or in one block, or of the only set."""
    ends = []
    for end in range(len(plans), num_agents - 1, -1):
        window = plans[end - num_agents : end]
        agents = [plan.agent for plan in window]
        if sorted(agents) == list(range(num_agents)):
            if agents == sorted(agents) or window[0].block == window[-1].block:
                return end
            ends.append(end)
    return ends[0] if len(ends) == 1 else None


def _missing(plans: Sequence[AgentPlan], candidates: Sequence[AgentPlan], num_agents: int) -> str:
    named = {plan.agent for plan in plans}
    missing = set(range(num_agents)) - named
    if max(named, default=0) >= num_agents:
        return _unknown_agent(min(agent for agent in named if agent >= num_agents), num_agents)
    if not missing:
        return "no set of plans is complete: one for each agent is needed"
    agent = min(missing)
    remarks = [plan.error for plan in candidates if plan.remark and plan.agent == agent]
    why = remarks[-1] if remarks else f"no 'Agent {agent}:' with actions was found"
    return f"agent {agent} is missing: {why}"


def _unknown_agent(agent: int, num_agents: int) -> str:
    return f"agent {agent} is unknown: allowed are 0 to {num_agents - 1}"
