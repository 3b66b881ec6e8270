"""Read a plan from a model's answer.

Formatting is forgiven: case, bullets, bold, fences, quotes, brackets, arrows and commas between the
actions, JSON, thinking before the answer. Actions are never guessed: anything among the actions
that isn't plainly an action makes the whole answer unparsed, with a reason that names it.

The grammar of an answer that isn't JSON:

- `Agent 0:` is a header (`agent_0 ->`, `**Agent 0's moves**:`, `Agent 0 - ` and the like are too).
  Text before the first header isn't read.
- An agent's actions run from its header to the next header, the first blank line or closing fence
  after an action, or the end. Everything there must be an action or a separator.
- After that only further headers are read, but a line of nothing but actions is refused, since it
  is plainly meant to be carried out and belongs to no agent.

Every pass over the text is linear: a megabyte of junk is answered within a second.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlake.board.dynamics import Action

Plan = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Answer:
    """What was read from an answer: either a plan, or the reason why there is none."""

    parsed: bool
    plan: Plan | None  # one tuple of `Action` values per agent, of unequal lengths
    reason: str | None  # why it wasn't parsed


ACTION_WORDS: dict[str, int] = {
    **{action.name: int(action) for action in Action},
    **{action.name[0]: int(action) for action in Action},
    "STAY": int(Action.WAIT),
    "NOOP": int(Action.WAIT),
}
"""Every word, in capitals, that is read as an action. `W` is WAIT; compass directions are not."""

_THINK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_ANSWER = re.compile(r"<(/?)answer>", re.IGNORECASE)
_FENCE = r"```(?:json|text|txt|plaintext|markdown|md)?(?![A-Za-z])"

_NAME = r"(?<![A-Za-z])agent[\s_#-]{0,3}(?P<agent>[0-9]+)(?![0-9A-Za-z])"
_LABEL = r"(?:['\u2019]s)?(?:\s{1,3}(?:moves?|actions?|plan|path))?"
_POINTER = r"[\s*_`\"'\u201d)\]]{0,8}(?:[-=]{1,2}>|[:|=\u2192\u21d2\u2013\u2014-])"
# Bullets, brackets, quotes, dashes, arrows to the right: none of them says which way to go.
_PUNCTUATION = (
    r",;.|>=*_'\"()\[\]{}:\#\u2022\u00b7\u2192\u21d2\u201c\u201d\u2018\u2019\u2013\u2014-"
)

# In free text a name needs a pointer to be a header; where actions are due the name is enough.
_HEADER = re.compile(_NAME + _LABEL + _POINTER, re.IGNORECASE)
_TOKEN = re.compile(
    rf"""
      (?P<header>    {_NAME} (?: {_LABEL} {_POINTER} )? )
    | (?P<boundary>  {_FENCE} | \n [^\S\n]*+ (?=\n) )
    | (?P<separator> (?: [^\S\n] | [{_PUNCTUATION}] )++ | [\n`] )
    | (?P<word>      no[-_]op (?![^\W\d_]) | [^\W\d_]++ )
    | (?P<other>     [0-9]++ | . )
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_JSON_KEY = re.compile(r"\s{0,8}(?:agent[\s_#-]{0,3})?([0-9]+)\s{0,8}", re.IGNORECASE)
_JSON_WRAPPERS = ("plan", "plans", "paths", "moves", "actions", "answer", "solution")


class _AnswerError(Exception):
    """The reason for which an answer isn't parsed."""


def parse_answer(text: str, num_agents: int, *, max_steps: int) -> Answer:
    """Read a plan from a model's whole answer.

    Only what follows the last `</think>` counts, and of that the last `<answer>` block if there is
    one. JSON may map agents to their actions (`{"agent_0": ["RIGHT"]}`) or list the agents' lists
    in order. The plan isn't checked against any board.

    An answer isn't parsed if a word, number or symbol among the actions is unknown, one of the
    agents is missing, unknown, or named twice with different actions, an agent has more than
    `max_steps` actions, or thinking never ends.

    Raises:
        ValueError: `num_agents` or `max_steps` is below 1.
    """
    if num_agents < 1 or max_steps < 1:
        raise ValueError(f"num_agents {num_agents}, max_steps {max_steps}: both must be at least 1")
    try:
        body = _answer_block(_after_thinking(text))
        from_json = _read_json(body)
        named = _read_lines(body, max_steps) if from_json is None else from_json
        return Answer(parsed=True, plan=_one_each(named, num_agents, max_steps), reason=None)
    except _AnswerError as error:
        return Answer(parsed=False, plan=None, reason=str(error))


def _after_thinking(text: str) -> str:
    tags = deque(_THINK.finditer(text), maxlen=1)
    if not tags:
        return text
    (last,) = tags
    if not last[1]:
        raise _AnswerError("the thinking block is never closed")
    return text[last.end() :]


def _answer_block(text: str) -> str:
    """The last `<answer>` block; it may lack its closing tag, which is often the stop string."""
    tags = deque(_ANSWER.finditer(text), maxlen=2)
    if not tags:
        return text
    last = tags.pop()
    if not last[1]:
        return text[last.end() :]
    return text[tags[0].end() if tags else 0 : last.start()]


def _one_each(named: Iterable[tuple[str, Sequence[int]]], num_agents: int, max_steps: int) -> Plan:
    """One tuple of actions for each agent, from (number as written, actions) pairs."""
    plan: dict[int, tuple[int, ...]] = {}
    for number, actions in named:
        # Python refuses to convert thousands of digits, and no agent has so many.
        agent = int(number) if len(number) <= 9 else num_agents
        if agent >= num_agents:
            raise _AnswerError(f"agent {number[:9]} is unknown: allowed are 0 to {num_agents - 1}")
        if len(actions) > max_steps:
            raise _AnswerError(f"agent {agent} has more than {max_steps} actions")
        if plan.setdefault(agent, tuple(actions)) != tuple(actions):
            raise _AnswerError(f"agent {agent} is named twice, with different actions")
    for agent in range(num_agents):
        if agent not in plan:
            raise _AnswerError(f"agent {agent} is missing: no 'Agent {agent}:' was found")
    return tuple(plan[agent] for agent in range(num_agents))


def _read_lines(text: str, max_steps: int) -> Iterator[tuple[str, list[int]]]:
    header = _HEADER.search(text)
    while header is not None:
        actions, stop = _read_block(text, header, max_steps)
        yield header["agent"], actions
        if stop is None:
            return
        if stop.lastgroup == "header":
            header = stop
            continue
        header = _HEADER.search(text, stop.end())
        _refuse_stray_actions(text[stop.end() : header.start() if header else len(text)])


def _read_block(
    text: str, header: re.Match[str], max_steps: int
) -> tuple[list[int], re.Match[str] | None]:
    """The actions behind one header, and the token that ends them (None: the end of the text).

    Stops early, with one action too many, where there are more than `max_steps`.
    """
    agent = header["agent"]
    actions: list[int] = []
    stop = None
    for token in _TOKEN.finditer(text, header.end()):
        kind = token.lastgroup
        if kind == "header" or (kind == "boundary" and actions):
            stop = token
            break
        if kind == "word":
            actions.append(_action(token[0], agent))
            if len(actions) > max_steps:
                break
        elif kind == "other":
            raise _unknown(token[0], agent)
    if not actions:
        raise _AnswerError(f"agent {agent[:9]} has no actions (WAIT says that it stays)")
    return actions, stop


def _refuse_stray_actions(text: str) -> None:
    for line in text.splitlines():
        words = [word.strip("_").upper() for word in re.findall(r"\w+", line)]
        if words and all(word in ACTION_WORDS for word in words):
            raise _AnswerError(f"{_clip(line.strip())} stands apart and belongs to no agent")


def _read_json(text: str) -> list[tuple[str, list[int]]] | None:
    """The agents of the first JSON value that has the shape of a plan; None if there is none."""
    for source in _json_sources(text):
        value = _load(source)
        while isinstance(value, tuple):
            named = ((_JSON_KEY.fullmatch(name), actions) for name, actions in value)
            agents = [(key[1], actions) for key, actions in named if key is not None]
            if agents:
                return [(number, _json_actions(number, actions)) for number, actions in agents]
            value = next((inner for name, inner in value if name.lower() in _JSON_WRAPPERS), None)
        if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
            return [(str(i), _json_actions(str(i), actions)) for i, actions in enumerate(value)]
    return None


def _json_sources(text: str) -> Iterator[str]:
    """Where in an answer JSON may be: fenced or amid free text, but not beside written headers."""
    for opening, closing in ("{}", "[]"):
        start, end = text.find(opening), text.rfind(closing) + 1
        if 0 <= start < end and not any(map(_HEADER.search, (text[:start], text[end:]))):
            yield text[start:end]


def _load(source: str) -> Any:
    """An object as a tuple of pairs, an array as a list, a number as text; None if not JSON."""
    for candidate in (source, source.replace("'", '"')):
        try:
            return json.loads(candidate, object_pairs_hook=tuple, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            continue
    return None


def _json_actions(agent: str, value: Any) -> list[int]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise _unknown(value, agent)
    actions: list[int] = []
    for item in items:
        found = _TOKEN.finditer(item) if isinstance(item, str) else ()
        tokens = [one for one in found if one.lastgroup not in ("separator", "boundary")]
        if not tokens:
            raise _unknown(item, agent)
        for token in tokens:
            if token.lastgroup != "word":
                raise _unknown(token[0], agent)
            actions.append(_action(token[0], agent))
    return actions


def _action(word: str, agent: str) -> int:
    # Only ASCII: other letters may turn into an action's letters when they are upper-cased.
    name = word.upper().replace("-", "").replace("_", "") if word.isascii() else ""
    if name not in ACTION_WORDS:
        raise _unknown(word, agent)
    return ACTION_WORDS[name]


def _unknown(what: object, agent: str) -> _AnswerError:
    return _AnswerError(
        f"{_clip(what)} among the actions of agent {agent[:9]}: "
        f"allowed are {', '.join(action.name for action in Action)}"
    )


def _clip(what: object) -> str:
    text = what if isinstance(what, str) else str(what)
    return repr(text if len(text) <= 40 else text[:40] + "...")
