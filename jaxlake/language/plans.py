"""Reader of agents' plans in answers, from lines, lists, tables, time steps and JSON."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile

from jaxlake.board.dynamics import Action
from jaxlake.language.json_plans import NamedActions, extract_plans, find_json_values

Plan = tuple[tuple[int, ...], ...]

ACTION_WORDS: dict[str, int] = {
    **{action.name: int(action) for action in Action},
    **{action.name[0]: int(action) for action in Action},
    "STAY": int(Action.WAIT),
    "NOOP": int(Action.WAIT),
}
"""Actions by word in capitals. Single letters must be capitals in an answer, too."""


@dataclass
class AgentPlan:
    """The actions of one agent in one part of an answer."""

    agent: int
    actions: list[int] = field(default_factory=list)
    error: str | None = None  # why the actions can't be used
    is_remark: bool = False  # a remark about the agent, not a plan
    may_be_quote: bool = False  # the text (a sentence, a column or steps) may quote a plan
    is_cut_off: bool = False  # the text ends within the plan
    block: int = 0  # shared by plans on consecutive lines


# Regular expressions for names of agents, steps, and the text around actions.
_AGENT_NAME_PATTERN = r"(?<![A-Za-z])(?:agent|robot)[\s_#-]{0,3}(?P<agent>[0-9]+)(?![0-9A-Za-z])"
_OPTIONAL_PARENTHESES = r"(?:\s?\((?:[^()\n]|\([^()\n]{0,40}\)){0,80}\))?"
_LABEL = r"(?:['\u2019]s)?(?:\s{1,3}(?:final|optimal|moves?|actions?|plan|path|sequence|is)){0,3}"
_SEPARATOR = r"[\s*_`\"'\u201d)\]}]{0,8}(?:[-=]{1,2}>|[:\uff1a|=\u2192\u21d2\u2013\u2014-])"
_AGENT_NAME = re.compile(_AGENT_NAME_PATTERN, re.IGNORECASE)
_LABELLED_NAME = _AGENT_NAME_PATTERN + _LABEL + _OPTIONAL_PARENTHESES
_HEADER = re.compile(_LABELLED_NAME + _SEPARATOR, re.IGNORECASE)
_BARE_HEADER = re.compile(f"{_LABELLED_NAME}(?:{_SEPARATOR})?", re.IGNORECASE)
_HEADING = re.compile(
    rf"[^\w\n]{{0,20}}(?:[0-9]{{1,2}}[.)]\s[^\w\n]{{0,10}})?{_LABELLED_NAME}[\s*_`:]*",
    re.IGNORECASE,
)
_NUMBERED_AGENT = re.compile(r"\s*(?P<agent>[0-9]{1,2})\s*:")

_STEP_PATTERN = (
    r"[^\w\n]{0,20}(?:(?:at|in)\s)?(?:(?:time\s?)?step|time|t)\s{0,3}[=#]?\s{0,3}"
    r"(?P<step>[0-9]{1,3})\b[\s*_]*[:.,)|-]?"
)
_STEP_MARKER = re.compile(rf"{_STEP_PATTERN}|\s*\(?(?P<number>[0-9]{{1,3}})[.):]\s", re.IGNORECASE)
# "Actions:" repeats the actions that the text above describes. "Move:" may label one action.
_ACTION_LABEL = (
    r"[\s*_`]*(?:(?P<restates>moves|actions|plan|path|sequence|answer)|move|action)[\s*_`]*[:=]"
)
_LINE_MARKER = re.compile(
    rf"(?:\s*(?:[-*+\u2022]\s+|[0-9]{{1,3}}[.)]\s+))?(?:{_STEP_PATTERN}|{_ACTION_LABEL})?",
    re.IGNORECASE,
)
# Numbers in front of the actions of a line: "1. RIGHT 2. DOWN", "t=1: RIGHT, t=2: DOWN".
_ACTION_NUMBER = re.compile(
    r"\b(?:(?:step|time|t)\s?[=#]?\s?)?([0-9]{1,3})\s?[.):]\s", re.IGNORECASE
)

_POSITION = re.compile(
    r"(?:\b(?:at|from|in|into|on|to)\s{1,3})?[(\[]\s*[0-9]{1,3}\s*,\s*[0-9]{1,3}\s*[)\]]",
    re.IGNORECASE,
)
_PARENTHESES = re.compile(r"\(([^()]*)\)")
_STEP_NOUNS = frozenset({"step", "steps", "move", "moves", "action", "actions"})
_REPETITION = re.compile(
    r"\s*(?:[x\u00d7*]\s?[0-9]+|[0-9]+\s?(?:[x\u00d7]|times|steps?|moves?|actions?)?|twice|thrice|again|until|or|\u2026)\s*",
    re.IGNORECASE,
)
_ELLIPSIS = "\u2026"
_ELLIPSES = re.compile(r"\.\.\.|\band\s(?:so\s(?:on|forth)|repeat)\b|\betc\b", re.IGNORECASE)
_TRUNCATION_MARK = "\ufffe"
# A truncated action or LaTeX command at the end of the text, and a truncated name.
_TRUNCATED_ACTION = re.compile(r"(?:\b(?:U|DO?W?|LE?F?|RI?G?H?|WA?I?)|\\[A-Za-z]*)\Z")
_TRUNCATED_NAME = re.compile(r"\n\W*(?:A|Ag|Age|Agen|Agent)\s*\Z", re.IGNORECASE)
_ALLOWED_ACTIONS = ", ".join(action.name for action in Action)
_FULL_ACTION_NAME = re.compile(rf"\b(?:{'|'.join(action.name for action in Action)})\b")
_STRUCK_OUT = re.compile(r"~~[^~\n]+~~")
_MARKUP = re.compile(r"<[/A-Za-z|\uff5c][^<>\n]{0,60}>")
_SENTENCE = re.compile(r"[.!;]\s+(?=[A-Z][a-z])")
_REJECTED = re.compile(
    r"\W*(?:(?:i|we)\s)?(?:also\s(?:considered|tried)|(?:rejected|discarded)(?:\s\w+)?\W*\Z)",
    re.IGNORECASE,
)
_LATEX = re.compile(r"\\(?:begin|end)\s?\{[a-z*]{1,20}\}|\\[A-Za-z]+|\\[]\[(),;:! ]|[$&]")
# Bullets, brackets, quotes, dashes, right arrows and emoji, which do not denote actions.
_PUNCTUATION = (
    r"\s,;.!|>=*_'\"()\[\]{}:\#`\u2022\u00b7\u2192\u21d2\u201c\u201d\u2018\u2019\u2013\u2014"
    r"\u2713\u2714\u2705\u2794\u279c\u27a1\u27f6\uff0c\uff1b\u3001\u3002\u200b-\u200d\u2060\ufe0f\ufeff"
    r"\U0001f300-\U0001f445\U0001f44a-\U0001f4ff-"
)
_TOKEN = re.compile(
    rf"""[{_PUNCTUATION}]++ | (?P<other>[0-9]++)
    | (?P<word> no[-_]op(?![^\W\d_]) | (?<!-)[^\W\d_]++-[^\W\d_]++(?!-) | [^\W\d_]++)
    | (?P<symbol>.)""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
FILLERS = frozenset("and for go goes move moves move take takes then to".split())  # noqa: SIM905
"""Words between actions that the parser ignores."""


def find_plans(text: str, num_agents: int, *, tagged: bool = False) -> list[AgentPlan]:
    """Return the plans of agents and the remarks about agents, in the order of the text.

    A text from an `<answer>` block (`tagged`) may also be one line of actions per agent, without
    names.
    """
    tail = text[-40:]
    if _FULL_ACTION_NAME.search(text):
        if _TRUNCATED_ACTION.search(tail):
            text += _TRUNCATION_MARK
        elif name := _TRUNCATED_NAME.search(tail):
            text = text[: len(text) - len(tail) + name.start()]
    reader = _Reader(text, num_agents, in_fence=not tagged and text.count("```") % 2 == 1)
    end = 0
    for start, stop, value in find_json_values(text):
        if named_actions := extract_plans(value):
            reader.read(text[end:start])
            reader.read_json(named_actions)
            end = stop
    reader.read(text[end:])
    return _read_unnamed_lines(text, num_agents) if tagged and not reader.plans else reader.plans


def _read_unnamed_lines(text: str, num_agents: int) -> list[AgentPlan]:
    """Read one line of actions per agent. A single agent may use several lines."""
    lines = [line for line in _clean_lines(text) if re.search(r"\w", line)]
    if num_agents == 1:
        lines = [" ".join(_LINE_MARKER.sub("", line, count=1) for line in lines)]
    plans = [_read_actions(line, agent) for agent, line in enumerate(lines)]
    is_complete = len(plans) == num_agents and all(
        plan.actions and not plan.error for plan in plans
    )
    return plans if is_complete else []


def _clean_lines(text: str) -> list[str]:
    text = _STRUCK_OUT.sub(" ", text)
    if "\\" in text:
        for end_of_line in ("\\\\", "\\n", "\\\n"):
            text = text.replace(end_of_line, "\n")
        text = _LATEX.sub(" ", text)
    return _MARKUP.sub("\n", text).splitlines()


def _parse_number(digits: str) -> int:
    # Python raises an error for thousands of digits, and agent numbers are short.
    return int(digits[:9])


class _Reader:
    """Reads a text line by line and collects plans."""

    def __init__(self, text: str, num_agents: int, *, in_fence: bool) -> None:
        self.plans: list[AgentPlan] = []
        self._block = 0
        self._num_agents = num_agents
        self._in_fence = in_fence  # the text ends in a code block
        self._names_agents = _AGENT_NAME.search(text) is not None
        self._open_plan: AgentPlan | None = None  # the plan that the next lines may continue
        # Properties of the open plan: its actions follow below the agent's name; the name ends
        # its line; a blank line follows the last action.
        self._has_action_list = False
        self._has_bare_name = False
        self._after_blank_line = False
        self._is_rejected = False  # the last line of prose introduces rejected plans
        self._steps: list[dict[int, AgentPlan]] = []  # the agents' actions by time step
        self._first_step = 0

    def read(self, text: str) -> None:
        """Read a part of the text that has no JSON."""
        self._block += 1
        rows: list[str] = []
        for line in _clean_lines(text):
            if line.count("|") >= 2:
                rows.append(line)
                continue
            self._read_table(rows)
            rows = []
            self._read_line(line)
        self._read_table(rows)
        self._finish_steps()
        if plan := self._open_plan:
            plan.is_cut_off = not plan.may_be_quote
            last_plan = _AGENT_NAME.split(text)[-1].lstrip("]}")
            is_open = sum(map(last_plan.count, "[{")) > sum(map(last_plan.count, "]}"))
            if plan.error is None and (is_open or self._in_fence):
                plan.error = f"the list of agent {plan.agent} is never closed"
        self._close()

    def read_json(self, named_actions: NamedActions) -> None:
        """Read the lists of actions of a JSON value."""
        self._block += 1
        for agent, items in named_actions:
            plan = AgentPlan(_parse_number(agent))
            for item in items:
                part_plan = _read_actions(item, plan.agent) if isinstance(item, str) else None
                if part_plan is None or part_plan.error or not part_plan.actions:
                    plan.error = plan.error or _describe_unknown(str(item), plan.agent)
                else:
                    plan.actions += part_plan.actions
            # A number, as in {"agent_0": 3}, is a cost or a cell.
            plan.is_remark = bool(items) and all(str(item).isdecimal() for item in items)
            self._record(plan)

    def _read_table(self, rows: Sequence[str]) -> None:
        """Read the lines of a table with one row or one column per agent."""
        if not rows:
            return
        self._block += 1
        table = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
        columns = {
            index: _parse_number(name["agent"])
            for index, cell in enumerate(table[0])
            if (name := _AGENT_NAME.search(cell))
        }
        if len(columns) > 1 or (self._num_agents == 1 and columns and 0 not in columns):
            self._close()
            self._finish_steps()
            for step, row in enumerate(table[1:]):
                self._begin_step(step)
                self._add_moves(
                    _read_actions(row[index], agent)
                    if index < len(row)
                    else AgentPlan(agent, error="the table is cut off")
                    for index, agent in columns.items()
                )
            self._finish_steps()
            return
        for label, *row in table:
            cells_with_words = [cell for cell in row if re.search(r"[^\W\d]", cell)]
            if len(cells_with_words) == 1:  # other cells hold the length or cost of the plan
                row = cells_with_words
            if label.isdecimal() and "agent" in table[0][0].lower():
                label = f"Agent {label}"
            self._read_line("|".join(["", label, *row]))

    def _read_line(self, line: str) -> None:
        if not line.strip():
            self._after_blank_line = True
            self._block += 1
            return
        if self._read_step(line):
            return
        headers = list(_HEADER.finditer(line))
        if not headers and (heading := _HEADING.fullmatch(line)):
            headers = [heading]
        if not headers and not self._names_agents and (heading := _NUMBERED_AGENT.match(line)):
            headers = [heading]
        if headers:
            self._read_named(line, headers)
        else:
            self._read_unnamed(line)
        self._after_blank_line = False

    def _read_step(self, line: str) -> bool:
        """Read a line with the actions of one time step, and return whether it is such a line."""
        marker = _STEP_MARKER.match(line)
        body = line[marker.end() :] if marker else line
        names = list(_BARE_HEADER.finditer(body))
        if marker and not body.strip(" *_:"):
            self._close()
            self._begin_step(int(marker["step"] or marker["number"]))
            return True
        min_names = min(2, self._num_agents) if marker and marker["number"] else 1
        if len(names) >= min_names and (marker or self._steps):
            moves = list(_read_between(body, names))
            if all(len(move.actions) <= 1 for move in moves):
                self._close()
                if marker:
                    self._begin_step(int(marker["step"] or marker["number"]))
                return self._add_moves(moves)
        if names:
            self._finish_steps()
        return False

    def _begin_step(self, step: int) -> None:
        """Begin a step, in a new list if its number does not follow the last one."""
        if step != self._first_step + len(self._steps):
            self._steps, self._first_step = [], step
        self._steps.append({})

    def _add_moves(self, moves: Iterable[AgentPlan]) -> bool:
        """Add moves to the current step; return False if an agent already has one."""
        for move in moves:
            if move.is_remark or not (move.actions or move.error):
                continue
            if move.agent in self._steps[-1]:
                self._steps = []
                return False
            self._steps[-1][move.agent] = move
        return True

    def _finish_steps(self) -> None:
        """Record the plans of all agents if the steps hold all of them without a gap."""
        # Empty steps at the start list positions.
        steps = list(dropwhile(lambda step: not step, self._steps))
        first_step, self._steps = self._first_step, []
        if first_step > 1 or not steps or set(steps[0]) != set(range(self._num_agents)):
            return
        moves_by_agent = {
            agent: [step[agent] for step in steps if agent in step] for agent in steps[0]
        }
        for agent, moves in moves_by_agent.items():
            if moves[-1] is not steps[len(moves) - 1].get(agent):
                return
        self._block += 1
        for agent, moves in moves_by_agent.items():
            actions = [action for move in moves for action in move.actions]
            error = next((move.error for move in moves if move.error), None)
            self._record(AgentPlan(agent, actions, error, may_be_quote=True))

    def _read_named(self, line: str, headers: Sequence[re.Match[str]]) -> None:
        is_rejected = self._is_rejected or bool(_REJECTED.match(line[: headers[0].start()]))
        for plan in _read_between(line, headers):
            self._close()
            self._open_plan = plan
            plan.is_remark |= is_rejected
            # "Agent 0: DOWN to (1, 1)" may quote one step of the plan.
            plan.may_be_quote |= len(plan.actions) == 1 and (len(headers) > 1 or "(" in line)
            self._has_action_list = not plan.actions
            self._has_bare_name = not re.search(r"\w", line[headers[-1].end() :])
            self._record(plan)
            if plan.is_remark:
                self._open_plan = None

    def _read_unnamed(self, line: str) -> None:
        """Read a line without an agent's name, with more actions of the open plan or prose."""
        plan, last_plan = self._open_plan, self.plans[-1] if self.plans else None
        marker = _LINE_MARKER.match(line)
        assert marker is not None  # all parts are optional
        body, is_listed = line[marker.end() :], marker.end() > 0 and self._has_action_list
        part_plan = _read_actions(body, plan.agent if plan else last_plan.agent if last_plan else 0)
        self._has_bare_name = False
        # "Wait, they collide." or "Right, let's check." below a plan
        is_exclamation = part_plan.may_be_quote and not is_listed
        is_prose = part_plan.is_remark or is_exclamation or not re.search(r"\w", body)
        if is_prose or not (part_plan.actions or part_plan.error):
            self._block += 1
            self._is_rejected = _REJECTED.match(line) is not None
            words = _split_words(body)
            is_numbered = is_listed and re.search("[0-9]", marker[0])
            has_action = is_numbered and any(
                _parse_action(word) is not None for word in words if word[1:]
            )
            if plan and marker.end() and (has_action or len(re.findall(r"\w+", body)) == 1):
                plan.error = plan.error or _describe_unknown(body.strip(), plan.agent)
            elif plan and plan.actions:
                self._close()
            return
        if plan is None or (plan.actions and self._after_blank_line and not is_listed):
            if last_plan and not part_plan.error:
                last_plan.error = (
                    last_plan.error or f"{_clip(line.strip())} stands apart from any agent"
                )
            return
        if marker["restates"]:
            plan.actions = []
        plan.actions += part_plan.actions
        plan.error = plan.error or part_plan.error

    def _close(self) -> None:
        """Close the open plan, and set an error if it has no actions."""
        plan, self._open_plan, self._after_blank_line = self._open_plan, None, False
        if plan is not None and plan.actions and self._has_action_list:
            plan.may_be_quote = True
        if plan is not None and plan.error is None and not plan.actions:
            plan.error = f"agent {plan.agent} has no actions (WAIT says that it stays)"
            plan.is_remark = not self._has_bare_name

    def _record(self, plan: AgentPlan) -> None:
        plan.block = self._block
        self.plans.append(plan)


def _read_between(line: str, headers: Sequence[re.Match[str]]) -> Iterator[AgentPlan]:
    """Read the text after each name in a line, up to the next name."""
    for header, next_header in zip(headers, [*headers[1:], None], strict=True):
        body = line[header.end() : next_header.start() if next_header else len(line)]
        yield _read_actions(body, _parse_number(header["agent"]))


def _read_actions(text: str, agent: int) -> AgentPlan:
    """Parse the text after an agent's name into actions, an error or a remark."""
    plan = AgentPlan(agent)
    text = _drop_numbers(_POSITION.sub(" ", _ELLIPSES.sub(_ELLIPSIS, text)))
    text = _PARENTHESES.sub(_drop_parenthesised_remark, text)
    if sentence := _SENTENCE.search(text):
        next_words = _split_words(text[sentence.end() :])
        if next_words and _parse_action(next_words[0]) is None:
            text = text[: sentence.start()]
    words = _split_words(text)
    codes = [_parse_action(word) for word in words]
    plan.actions = [action for action in codes if action is not None]
    unknown_indices = [
        index
        for index, action in enumerate(codes)
        if action is None and words[index].lower() not in FILLERS
    ]
    if not unknown_indices:
        return plan
    first_unknown = unknown_indices[0]
    plan.error = _describe_unknown(words[first_unknown], agent)
    prose_words = [words[index] for index in unknown_indices if words[index].isalpha()]
    prose_words = [word for word in prose_words if word[1:] and not word.isupper()]
    only_symbols = not any(word.isalnum() for word in words)
    names = [word for word in words[:first_unknown] if _parse_action(word) is not None]
    if len(names) == len(plan.actions) > 0 and len(words) - first_unknown > 1:
        plan.may_be_quote = True
        if _REPETITION.fullmatch(words[first_unknown]):
            # "3 steps" after three actions is their number.
            next_word = words[first_unknown + 1].lower()
            is_comment = words[first_unknown] == str(len(names)) and next_word in _STEP_NOUNS
        else:
            is_comment = any(map(str.islower, prose_words)) and not any(map(str.islower, names))
        if is_comment:
            plan.error = None
    elif len(prose_words) > 1 or not (
        plan.actions or words[-1] == _TRUNCATION_MARK or only_symbols
    ):
        plan.actions, plan.is_remark = [], True
    return plan


def _drop_numbers(text: str) -> str:
    """Remove consecutive numbers in front of the actions."""
    numbers = list(_ACTION_NUMBER.finditer(text))
    if not numbers or re.search(r"\w", text[: numbers[0].start()]):
        return text
    start = _parse_number(numbers[0][1])
    if start > 1 or [int(number[1]) for number in numbers] != [*range(start, start + len(numbers))]:
        return text
    return _ACTION_NUMBER.sub(" ", text)


def _drop_parenthesised_remark(match: re.Match[str]) -> str:
    """Return text in parentheses if it may consist of actions, and a space otherwise."""
    words = _split_words(match[1])
    may_be_actions = words and all(
        _parse_action(word) is not None or word.isupper() for word in words
    )
    if may_be_actions or _REPETITION.fullmatch(match[1]):
        return f" {match[1]} "
    return " "


def _split_words(text: str) -> list[str]:
    """Return the words, numbers and symbols of a text, without punctuation."""
    return [token[0] for token in _TOKEN.finditer(text) if token.lastgroup]


def _parse_action(word: str) -> int | None:
    # Upper-casing letters outside ASCII may produce the letters of an action.
    name = word.upper() if word[1:] and word.isascii() else word
    return ACTION_WORDS.get(name.replace("-", "").replace("_", ""))


def _describe_unknown(word: str, agent: int) -> str:
    return f"{_clip(word)} among the actions of agent {agent}: allowed are {_ALLOWED_ACTIONS}"


def _clip(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
