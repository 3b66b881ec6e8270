"""Extraction of plans from JSON and Python literals in free text."""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from jaxlake.files import check_nesting

MAX_LITERAL_LENGTH = 20_000
"""Maximum length of a Python literal in characters, which limits the memory for parsing."""

NamedActions = list[tuple[str, list[object]]]
"""Pairs of an agent's number, as in the text, and the items of its actions."""

_BRACKET = re.compile(r"[{}\[\]]")
_KEY = re.compile(r"\s{0,8}(?:agent[\s_#-]{0,3})?([0-9]{1,9})\s{0,8}", re.IGNORECASE)
_AGENT_FIELDS = ("agent", "agent_id", "id", "name")
_ACTION_FIELDS = ("actions", "plan", "moves", "action", "move", "sequence", "path")
_MAX_LEVELS = 4


def find_json_values(text: str) -> Iterator[tuple[int, int, Any]]:
    """Yield (start, end, value) for each outermost bracket pair in a text that holds JSON."""
    open_brackets: dict[str, list[int]] = {"{": [], "[": []}
    pairs: list[tuple[int, int]] = []
    for bracket in _BRACKET.finditer(text):
        if bracket[0] in open_brackets:
            open_brackets[bracket[0]].append(bracket.start())
        elif starts := open_brackets["{" if bracket[0] == "}" else "["]:
            start = starts.pop()
            while pairs and pairs[-1][0] > start:
                pairs.pop()
            pairs.append((start, bracket.end()))
    end = 0
    for start, value_end in pairs:
        if start >= end and (value := _parse_literal(text[start:value_end])) is not None:
            end = value_end
            yield start, value_end, value


def _parse_literal(source: str) -> Any:
    """Parse an object as a tuple of pairs and an array as a list; return None on failure."""
    try:
        check_nesting(source)
        return json.loads(source, object_pairs_hook=tuple, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        pass
    if len(source) > MAX_LITERAL_LENGTH:
        return None
    try:
        return _convert_objects(ast.literal_eval(source))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return None


def _convert_objects(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((str(key), _convert_objects(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [_convert_objects(item) for item in value]
    return value


def extract_plans(value: Any, levels: int = _MAX_LEVELS) -> NamedActions:
    """Return the agents and their actions in a JSON value, in order.

    A plan is an object that maps agents to actions, or an array. The elements of the array are one
    list or line of actions per agent, one object per agent, or one object per step that maps each
    agent to an action.
    """
    if levels == 0 or not isinstance(value, tuple | list):
        return []
    lists: NamedActions = []
    if isinstance(value, tuple):
        keys = [(_KEY.fullmatch(name), field_value) for name, field_value in value]
        lists = [(key[1], _get_actions(field_value)) for key, field_value in keys if key]
        fields = {name.lower(): field_value for name, field_value in value}
        agent = next(
            (_KEY.fullmatch(str(fields[name])) for name in _AGENT_FIELDS if name in fields), None
        )
        actions = next((fields[name] for name in _ACTION_FIELDS if name in fields), None)
        if agent and actions is not None:
            return [(agent[1], _get_actions(actions))]
        value = [field_value for _, field_value in value]
    elif all(isinstance(item, list) for item in value) or _are_lines(value):
        lists = [(str(number), _get_actions(item)) for number, item in enumerate(value)]
    if any(isinstance(item, str) for _, items in lists for item in items):
        return lists
    inner_plans = [plans for item in value if (plans := extract_plans(item, levels - 1))]
    if len(inner_plans) > 1 and all(len(plans) > 1 and _is_step(plans) for plans in inner_plans):
        actions_by_agent: dict[str, list[object]] = {}
        for step in inner_plans:
            for number, items in step:
                actions_by_agent.setdefault(number, []).extend(items)
        return list(actions_by_agent.items())
    return [named_actions for plans in inner_plans for named_actions in plans]


def _are_lines(items: list[Any]) -> bool:
    """Return whether items are lines such as `RIGHT DOWN`, and not single actions."""
    return all(isinstance(item, str) and item.isupper() for item in items) and any(
        re.search(r"\w\W+\w", item) for item in items
    )


def _is_step(plans: NamedActions) -> bool:
    return all(len(items) == 1 and str(items[0]).isalpha() for _, items in plans)


def _get_actions(value: Any) -> list[object]:
    """Return the actions of an agent, which are strings or objects with a field for the action."""
    if isinstance(value, tuple):
        fields = {name.lower(): field_value for name, field_value in value}
        actions = next((fields[name] for name in _ACTION_FIELDS if name in fields), None)
        return [value] if actions is None else _get_actions(actions)
    if not isinstance(value, list):
        return [value]
    lists = [_get_actions(item) if isinstance(item, tuple) else [item] for item in value]
    return [item for items in lists for item in items]
