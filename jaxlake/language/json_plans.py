"""Find JSON and Python literals in free text, and extract the agents' actions from them."""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

DEEPEST = 32
"""Maximum nesting depth of brackets; plans are only a few levels deep."""

LONGEST_LITERAL = 20_000
"""Maximum length of a Python literal in characters; parsing longer ones takes much memory."""

Named = list[tuple[str, list[object]]]
"""Pairs of an agent's number, as written, and the items of its actions."""

_BRACKET = re.compile(r"[{}\[\]]")
_KEY = re.compile(r"\s{0,8}(?:agent[\s_#-]{0,3})?([0-9]{1,9})\s{0,8}", re.IGNORECASE)
_NAMES = ("agent", "agent_id", "id", "name")
_ACTIONS = ("actions", "plan", "path", "moves", "action", "move", "sequence")
_WRAPPERS = ("answer", "final_answer", "solution", "plans", "paths", "agents", "result", "steps")
_MOST_LEVELS = 4


def json_values(text: str) -> Iterator[tuple[int, int, Any]]:
    """Yield (start, end, value) for each outermost bracket pair in a text that holds JSON."""
    end = 0
    for start, stop in _outermost(text):
        if start >= end:
            value = _load(text[start:stop])
            if value is not None:
                end = stop
                yield start, stop, value


def _outermost(text: str) -> list[tuple[int, int]]:
    """Return the spans of outermost matching brackets, in order."""
    opened: dict[str, list[int]] = {"{": [], "[": []}
    pairs: list[tuple[int, int]] = []
    for bracket in _BRACKET.finditer(text):
        if bracket[0] in opened:
            opened[bracket[0]].append(bracket.start())
            continue
        waiting = opened["{" if bracket[0] == "}" else "["]
        if waiting:
            start = waiting.pop()
            while pairs and pairs[-1][0] > start:
                pairs.pop()
            pairs.append((start, bracket.end()))
    return pairs


def _load(source: str) -> Any:
    """Parse an object as a tuple of pairs and an array as a list; return None on failure."""
    if _is_deep(source):
        return None
    try:
        return json.loads(source, object_pairs_hook=tuple, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        pass
    if len(source) > LONGEST_LITERAL:
        return None
    try:
        return _pairs(ast.literal_eval(source))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _is_deep(source: str) -> bool:
    depth = 0
    for bracket in _BRACKET.finditer(source):
        depth += 1 if bracket[0] in "{[" else -1
        if depth > DEEPEST:
            return True
    return False


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((str(key), _pairs(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return [_pairs(inner) for inner in value]
    return value


def plans_of(value: Any, levels: int = _MOST_LEVELS) -> Named | None:
    """Return the agents and their actions if a JSON value is or contains a plan, else None.

    A plan maps agents to actions, lists one list of actions per agent in order, lists one object
    per agent, or lists one object per step that maps each agent to an action.
    """
    if levels == 0 or not isinstance(value, tuple | list) or not value:
        return None
    if isinstance(value, tuple):
        return _of_object(value, levels)
    if all(isinstance(item, list) for item in value):
        named = [(str(agent), item) for agent, item in enumerate(value)]
        return named if any(isinstance(item, str) for _, items in named for item in items) else None
    if all(isinstance(item, tuple) for item in value):
        parts = [_of_object(item, levels) for item in value]
        if parts and all(parts):
            return _merged([part for part in parts if part])
    return None


def _of_object(pairs: Sequence[tuple[str, Any]], levels: int) -> Named | None:
    keyed = [(_KEY.fullmatch(name), inner) for name, inner in pairs]
    named = [(key[1], _items(inner)) for key, inner in keyed if key is not None]
    if any(isinstance(item, str) for _, items in named for item in items):
        return named
    fields = {name.lower(): inner for name, inner in pairs}
    agent = next((str(fields[name]) for name in _NAMES if name in fields), "")
    actions = next((fields[name] for name in _ACTIONS if name in fields), None)
    if (key := _KEY.fullmatch(agent)) is not None and actions is not None:
        return [(key[1], _items(actions))]
    for name in (*_WRAPPERS, *_ACTIONS):
        inner = plans_of(fields.get(name), levels - 1)
        if inner is not None:
            return inner
    return None


def _items(value: Any) -> list[object]:
    """Return the actions of an agent; objects are replaced by their field `action`."""
    if isinstance(value, tuple):
        fields = {name.lower(): inner for name, inner in value}
        found = next((fields[name] for name in _ACTIONS if name in fields), None)
        return [value] if found is None else _items(found)
    if not isinstance(value, list):
        return [value]
    return [_items(item)[0] if isinstance(item, tuple) else item for item in value]


def _merged(parts: Sequence[Named]) -> Named:
    """Merge a list of objects that describe one agent each or one step each."""
    if len(parts) > 1 and all(len(part) > 1 for part in parts):
        steps: dict[str, list[object]] = {}
        for part in parts:
            for agent, items in part:
                steps.setdefault(agent, []).extend(items)
        return list(steps.items())
    return [named for part in parts for named in part]
