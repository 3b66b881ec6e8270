"""Parser of plans in the answers of language models.

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

_ANSWER_TAG = re.compile(r"<(/?)answer\b[^<>]{0,60}>", re.IGNORECASE)
# Text between two tags that a sentence mentions, as in "between <answer> and </answer>".
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

    The parser reads the text after the last thinking block (see `jaxlake.language.thinking`). If
    this text has complete `<answer>` blocks, it reads only the last block. It returns the last
    complete set of plans, one per agent. It ignores drafts, rejected options, restated tasks,
    prose, step-by-step checks and explanations that repeat parts of the plan. It also ignores a
    later revision of only some agents, but fails if the text ends with such a revision.

    A plan is a line (`Agent 0: RIGHT DOWN`), a heading with a list, a table, a list of time steps
    or JSON. Positions and remarks in parentheses may follow an action. In an `<answer>` block,
    names may be missing if the block holds one line of actions per agent and nothing else.
    XML elements per agent, arrows as actions and letters as names are not supported.

    Parsing fails if the thinking or the answer block is never closed, an agent is missing or
    unknown, the plan is cut off or holds a word that is not an action, or an agent has more than
    `max_steps` actions.

    Args:
        text: the complete answer. If the prompt ends with an opening thinking tag, the text must
            start with this tag.
        num_agents: number of agents, at least 1.
        max_steps: maximum number of actions per agent, at least 1.

    Returns:
        The `Answer`, with `parsed` False and a `reason` if parsing fails.

    Raises:
        ValueError: `num_agents` or `max_steps` is below 1.
    """
    if num_agents < 1 or max_steps < 1:
        raise ValueError(
            f"num_agents and max_steps must be at least 1, got {num_agents} and {max_steps}"
        )
    try:
        body, tagged = _find_answer_block(text)
        plans = find_plans(body, num_agents, tagged=tagged)
        plan = _select_last_set(plans, num_agents, max_steps)
        return Answer(parsed=True, plan=plan, reason=None)
    except _AnswerError as error:
        return Answer(parsed=False, plan=None, reason=str(error))


def _find_answer_block(text: str) -> tuple[str, bool]:
    """Return the last complete `<answer>` block and True, or the complete answer and False."""
    text, unfinished_thinking = split_thinking(text)
    if unfinished_thinking:
        raise _AnswerError("the thinking block is never closed")
    start: int | None = 0  # the prompt may have opened the block
    is_closed, is_mention, block = False, False, None
    for tag in _ANSWER_TAG.finditer(text):
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            is_closed = True
            body = text[start : tag.start()]
            if _MENTION.fullmatch(body):
                is_mention = is_mention or bool(body.strip())
            else:
                block = body
            start = None
    if block is not None:
        return block, True
    if start and not is_closed:
        raise _AnswerError("the answer block is never closed")
    return (text if is_mention or not is_closed else ""), False


def _select_last_set(candidates: Sequence[AgentPlan], num_agents: int, max_steps: int) -> Plan:
    """Return the last consecutive plans that contain each agent once.

    A later revision of only some agents does not replace their plans. If the text ends with it,
    parsing fails.
    """
    own_plans = (plan for plan in candidates if not plan.is_remark)
    groups = groupby(own_plans, key=lambda plan: (plan.block, plan.agent, plan.actions))
    plans = _drop_quotes([next(equal_plans) for _, equal_plans in groups], max_steps)
    end = _find_end_of_set(plans, num_agents)
    if end is None:
        raise _AnswerError(_describe_missing(plans, candidates, num_agents))
    start = end - num_agents
    if end < len(plans) and plans[end].agent >= num_agents:
        raise _AnswerError(_describe_unknown(plans[end].agent, num_agents))
    selected_plans = sorted(plans[start:end], key=lambda plan: plan.agent)
    for plan in selected_plans:
        if plan.error is not None:
            raise _AnswerError(plan.error)
        if len(plan.actions) > max_steps:
            raise _AnswerError(f"agent {plan.agent} has more than {max_steps} actions")
    # A block must consist of complete sets.
    preceding = takewhile(lambda plan: plan.block == plans[start].block, reversed(plans[:start]))
    num_extra = len(list(preceding)) % num_agents
    if num_extra or (end < len(plans) and plans[end].block == plans[end - 1].block):
        agent = plans[start - 1 if num_extra else end].agent
        raise _AnswerError(f"agent {agent} is named twice, with different actions")
    if end < len(plans) and plans[-1].is_cut_off:
        raise _AnswerError(f"the last set of plans is cut off at agent {plans[-1].agent}")
    return tuple(tuple(plan.actions) for plan in selected_plans)


def _drop_quotes(plans: Iterable[AgentPlan], max_steps: int) -> list[AgentPlan]:
    """Drop checks and explanations that only repeat parts of earlier plans."""
    kept_plans: list[AgentPlan] = []
    earlier_actions: dict[int, bytes] = {}
    for group in _group_quote_candidates(plans):
        actions = {agent: bytes(plan.actions) for agent, plan in group.items()}
        may_be_quote = all(
            plan.may_be_quote and agent in earlier_actions for agent, plan in group.items()
        )
        if may_be_quote and _is_quote([(actions[k], earlier_actions[k]) for k in group]):
            continue
        for agent, plan in group.items():
            kept_plans.append(plan)
            is_usable = plan.error is None and len(plan.actions) <= max_steps
            earlier_actions[agent] = actions[agent] if is_usable else b""
    return kept_plans


def _group_quote_candidates(plans: Iterable[AgentPlan]) -> list[dict[int, AgentPlan]]:
    """Group consecutive plans of different agents that may be quotes; keep other plans apart."""
    groups: list[dict[int, AgentPlan]] = []
    for plan in plans:
        last = next(reversed(groups[-1].values())) if groups else None
        if not (last and last.may_be_quote and plan.may_be_quote and plan.agent not in groups[-1]):
            groups.append({})
        groups[-1][plan.agent] = plan
    return groups


def _is_quote(pairs: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether all pairs (actions, earlier plan) are quotes: prefixes or shorter parts."""
    quotes = [(quote.rstrip(_WAIT), plan) for quote, plan in pairs]  # quotes may end with waits
    if not all(quote in plan for quote, plan in quotes):
        return False
    is_shorter = any(_count_moves(quote) < _count_moves(plan) for quote, plan in quotes)
    return is_shorter or all(plan.startswith(quote) for quote, plan in quotes)


def _count_moves(actions: bytes) -> int:
    return len(actions) - actions.count(_WAIT)


def _find_end_of_set(plans: Sequence[AgentPlan], num_agents: int) -> int | None:
    """Return the end index of the last complete set of plans.

    A set counts if its agents are in order or it lies in one block. Without such a set, the only
    complete set counts.
    """
    ends = []
    for end in range(len(plans), num_agents - 1, -1):
        window = plans[end - num_agents : end]
        agents = [plan.agent for plan in window]
        if sorted(agents) == list(range(num_agents)):
            if agents == sorted(agents) or window[0].block == window[-1].block:
                return end
            ends.append(end)
    return ends[0] if len(ends) == 1 else None


def _describe_missing(
    plans: Sequence[AgentPlan], candidates: Sequence[AgentPlan], num_agents: int
) -> str:
    agents = {plan.agent for plan in plans}
    missing_agents = set(range(num_agents)) - agents
    if max(agents, default=0) >= num_agents:
        return _describe_unknown(min(agent for agent in agents if agent >= num_agents), num_agents)
    if not missing_agents:
        return "no set of plans is complete: one for each agent is needed"
    agent = min(missing_agents)
    remarks = [plan.error for plan in candidates if plan.is_remark and plan.agent == agent]
    reason = remarks[-1] if remarks else f"no 'Agent {agent}:' with actions was found"
    return f"agent {agent} is missing: {reason}"


def _describe_unknown(agent: int, num_agents: int) -> str:
    return f"agent {agent} is unknown: allowed are 0 to {num_agents - 1}"
