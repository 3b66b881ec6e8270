"""Find the plans of agents in an answer: lines, lists, tables, time steps and JSON."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from jaxlake.board.dynamics import Action
from jaxlake.language.json_plans import json_values, plans_of

Plan = tuple[tuple[int, ...], ...]

ACTION_WORDS: dict[str, int] = {
    **{action.name: int(action) for action in Action},
    **{action.name[0]: int(action) for action in Action},
    "STAY": int(Action.WAIT),
    "NOOP": int(Action.WAIT),
}
"""The accepted action words, in capitals. `W` is WAIT; compass directions are not accepted."""


@dataclass
class AgentPlan:
    """The actions of one agent at one place of an answer."""

    agent: int
    actions: list[int] = field(default_factory=list)
    error: str | None = None  # why the actions can't be used
    remark: bool = False  # a remark about the agent, not a plan
    loose: bool = False  # in a sentence, by step or in columns: may quote another plan
    cut_off: bool = False  # the text ends within the plan
    block: int = 0  # shared by plans on consecutive lines


_NAME = r"(?<![A-Za-z])agent[\s_#-]{0,3}(?P<agent>[0-9]+)(?![0-9A-Za-z])"
_ASIDE = r"(?:\s?\((?:[^()\n]|\([^()\n]{0,40}\)){0,80}\))?"
_LABEL = r"(?:['\u2019]s)?(?:\s{1,3}(?:moves?|actions?|plan|path|sequence))?"
_POINTER = r"[\s*_`\"'\u201d)\]}]{0,8}(?:[-=]{1,2}>|[:\uff1a|=\u2192\u21d2\u2013\u2014-])"
_HEADER = re.compile(_NAME + _LABEL + _ASIDE + _POINTER, re.IGNORECASE)
_BARE_HEADER = re.compile(_NAME + _LABEL + _ASIDE + f"(?:{_POINTER})?", re.IGNORECASE)
_HEADING = re.compile(rf"[^\w\n]{{0,20}}{_NAME}{_LABEL}{_ASIDE}[\s*_`:]*", re.IGNORECASE)
_LABELLED = re.compile(
    r"[\s*_`]*(?:moves?|actions?|plan|path|sequence|answer)[\s*_`]*[:=]", re.IGNORECASE
)
# "Actions:" restates the actions described above it; "Move:" may label a single action.
_RESTATES = re.compile(r"(?:moves|actions|plan|path|sequence|answer)[\s*_`]*[:=]$", re.IGNORECASE)
_NUMBERED_AGENT = re.compile(r"\s*(?P<agent>[0-9]{1,2})\s*:")

_ITEM = re.compile(r"\s*(?:[-*+\u2022]\s+|[0-9]{1,3}[.)]\s+)")
_STEP = re.compile(
    r"[\s*_#>+\u2022(-]*(?:(?:at|in)\s)?(?:(?:time\s?)?step|time|t)\s*[=#]?\s*"
    r"(?P<step>[0-9]{1,3})\b[\s*_]*[:.,)|-]?",
    re.IGNORECASE,
)
_NUMBERED_STEP = re.compile(r"\s*\(?(?P<step>[0-9]{1,3})[.):]\s")
_MARKER = re.compile(
    rf"(?:{_ITEM.pattern})?(?:{_STEP.pattern.replace('?P<step>', '')}|{_LABELLED.pattern})?",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\s*(?:```|~~~)[A-Za-z]*\s*")
_RULE = re.compile(r"[\s|:+-]+")

_POSITION = re.compile(
    r"(?:\b(?:at|from|in|into|on|to)\s{1,3})?[(\[]\s*[0-9]{1,3}\s*,\s*[0-9]{1,3}\s*[)\]]",
    re.IGNORECASE,
)
_ASIDES = re.compile(r"\(([^()]*)\)")
_UNITS = frozenset("step steps move moves action actions".split())  # noqa: SIM905
_REPEATS = re.compile(
    r"\s*(?:[x\u00d7*]\s?[0-9]+|[0-9]+\s?(?:[x\u00d7]|times|steps?|moves?|actions?)?|twice|thrice)\s*",
    re.IGNORECASE,
)
_ELLIPSIS = "\u2026"
# A truncated action or LaTeX command at the end of the text.
_CUT = re.compile(r"(?:\b[UDLRW]|\\[A-Z]*)\Z", re.IGNORECASE)
_NAMED_IN_FULL = re.compile(rf"\b(?:{'|'.join(action.name for action in Action)})\b")
_MARKUP = re.compile(r"<[/A-Za-z|\uff5c][^<>\n]{0,60}>")
_SENTENCE = re.compile(r"[.!;]\s+(?=[A-Z][a-z])")
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
_FILLERS = frozenset("and go goes move moves take takes then to".split())  # noqa: SIM905
# Words of sentences: text after an agent's name that holds one of them is a remark, not a plan.
_SENTENCE_WORDS = frozenset(
    """a after again agent agents all already also always are arrive arrives at avoid avoids away
    be because before blocked blocks both but by can cannot cell cells clear collide collides
    collision conflict conflicts cost costs does done each ends enters finish finishes first for
    free from gets goal goals going has have he her his hole holes i if in into is it its just last
    leave leaves left-hand makes may must my need needs next no not now of off on once one only or
    other our out over pass passes path plan position reach reached reaches same second she should
    since so start starting starts step steps still stops that the their there they this through
    time times total travels twice two until using via wait-free wants was we when where which
    while will with without would yes you""".split()  # noqa: SIM905
)


def find_plans(text: str, num_agents: int) -> list[AgentPlan]:
    """Return the plans of agents in the order of the text, remarks included."""
    found: list[AgentPlan] = []
    end = 0
    blocks = count()
    for start, stop, value in json_values(text):
        named = plans_of(value)
        if named is None:
            continue
        found += _Lines(text[end:start], num_agents, blocks, last=False).read()
        block = next(blocks)
        found += [_from_json(agent, items, block) for agent, items in named]
        end = stop
    return found + _Lines(text[end:], num_agents, blocks, last=True).read()


def _from_json(agent: str, items: Sequence[object], block: int) -> AgentPlan:
    plan = AgentPlan(_number(agent), block=block)
    for item in items:
        read = _read_actions(item, plan.agent) if isinstance(item, str) else None
        if read is None or read.error or not read.actions:
            plan.error = plan.error or _unknown(str(item), plan.agent)
        else:
            plan.actions += read.actions
    # {"agent_0": 3} gives a cost or a cell.
    plan.remark = bool(items) and all(str(item).isdecimal() for item in items)
    return plan


def _number(digits: str) -> int:
    # Python raises an error for thousands of digits; agent numbers are short.
    return int(digits[:9])


class _Lines:
    """Reads a part of the text line by line."""

    def __init__(self, text: str, num_agents: int, blocks: Iterator[int], *, last: bool) -> None:
        if last and _CUT.search(text[-40:]) and _NAMED_IN_FULL.search(text):
            text += _ELLIPSIS
        if "\\" in text:
            for end_of_line in ("\\\\", "\\n", "\\\n"):
                text = text.replace(end_of_line, "\n")
            text = _LATEX.sub(" ", text)
        self._lines = _MARKUP.sub("\n", text).splitlines()
        self._last = last
        self._ends_in_word = text[-1:].isalnum() or text[-1:] == _ELLIPSIS
        self._blocks = blocks
        self._block = next(blocks)
        self._num_agents = num_agents
        self._names_agents = re.search(_NAME, text, re.IGNORECASE) is not None
        self._found: list[AgentPlan] = []
        self._open: AgentPlan | None = None  # the plan that the next lines may continue
        self._as_list = False  # the actions of the open plan follow below its name
        self._bare = False  # no text has followed the name of the open plan yet
        self._blank = False  # a blank line has followed its last action
        self._brackets = 0  # number of brackets opened since its name
        self._steps = _Steps(num_agents)

    def read(self) -> list[AgentPlan]:
        rows: list[str] = []
        for line in self._lines:
            if line.count("|") >= 2:
                rows.append(line)
                continue
            self._table(rows)
            rows = []
            self._line(line)
        self._table(rows)
        self._found += self._steps.finish()
        if self._last and (plan := self._open) is not None:
            plan.cut_off = not plan.loose if plan.error is None else self._ends_in_word
            if self._brackets > 0 and plan.error is None:
                plan.error = f"the list of agent {plan.agent} is never closed"
        self._close()
        return self._found

    def _table(self, rows: Sequence[str]) -> None:
        """Read the lines of a table with one row or one column per agent."""
        if not rows:
            return
        self._block = next(self._blocks)
        cells = [[cell.strip() for cell in row.strip().strip("|").split("|")] for row in rows]
        head, body = cells[0], [row for row in cells[1:] if not _RULE.fullmatch("|".join(row))]
        columns = {
            index: _number(name["agent"])
            for index, cell in enumerate(head)
            if (name := re.search(_NAME, cell, re.IGNORECASE)) and "pos" not in cell.lower()
        }
        if len(columns) > 1 and len(set(columns.values())) == len(columns):
            self._close()
            for index, agent in columns.items():
                texts = [row[index] if index < len(row) else "" for row in body]
                self._found.append(_column(agent, texts))
            return
        for label, *row in cells:
            worded = [cell for cell in row if re.search(r"[^\W\d]", cell)]
            if len(worded) == 1:  # numbers in the row of a plan are its length or cost
                row = worded
            named = f"Agent {label}" if "agent" in head[0].lower() and label.isdecimal() else label
            line = "|".join(["", named, *row])
            if not _RULE.fullmatch(line):
                self._line(line)

    def _line(self, line: str) -> None:
        if _FENCE.fullmatch(line):
            if self._open and self._open.actions:
                self._close()
            return
        if not line.strip():
            self._blank = True
            self._block = next(self._blocks)
            return
        if self._step(line):
            return
        headers = list(_HEADER.finditer(line))
        if not headers and (heading := _HEADING.fullmatch(line)):
            headers = [heading]
        if not headers and not self._names_agents and (heading := _NUMBERED_AGENT.match(line)):
            headers = [heading]
        if headers:
            self._headers(line, headers)
        else:
            self._continued(line)
        self._blank = False

    def _step(self, line: str) -> bool:
        """Read a line with the agents' actions in a time step; return whether it is one."""
        marker = _STEP.match(line)
        numbered = None if marker else _NUMBERED_STEP.match(line)
        found = marker or numbered
        if found and self._open is not None and not re.search(_NAME, line, re.IGNORECASE):
            return False  # an item of the open agent's list
        rest = line[found.end() :] if found else line
        names = list(_BARE_HEADER.finditer(rest))
        if found and not rest.strip(" *_:"):
            self._close()
            self._steps.begin(int(found["step"]))
            return True
        if found and len(names) >= (1 if marker else min(2, self._num_agents)):
            moves = list(_between(rest, names))
            if all(len(move.actions) <= 1 and not move.error for move in moves):
                self._close()
                self._steps.begin(int(found["step"]))
                return self._steps.add(moves)
        if not found and self._steps.running and names:
            moves = list(_between(rest, names))
            if all(len(move.actions) <= 1 and not move.error for move in moves):
                return self._steps.add(moves)
        if names and self._steps.running:
            self._found += self._steps.finish()
        return False

    def _headers(self, line: str, headers: Sequence[re.Match[str]]) -> None:
        self._brackets = _unclosed(line[headers[-1].end() :])
        for plan in _between(line, headers):
            self._close()
            self._open = plan
            plan.loose |= len(headers) > 1 and len(plan.actions) == 1
            self._as_list = not plan.actions
            self._bare = not re.search(r"\w", line[headers[-1].end() :])
            if plan.actions or plan.error or plan.remark:
                self._record(plan)
            if plan.remark:
                self._open = None

    def _continued(self, line: str) -> None:
        """Read a line without an agent's name: more actions of the open plan, or prose."""
        plan = self._open
        marker = _MARKER.match(line)
        marked = marker is not None and marker.end() > 0
        body = line[marker.end() :] if marker else line
        agent = plan.agent if plan else self._found[-1].agent if self._found else 0
        read = _read_actions(body, agent)
        self._bare = False
        self._brackets += _unclosed(line)
        words = _words(body)
        # "Wait, they collide." or "Right, let's check." below a plan
        said = read.loose and (read.error is None or words[0].istitle())
        said = said or not any(word.isalnum() for word in words)
        said = said and not (plan and (not plan.actions or (marked and self._as_list)))
        if read.remark or said or not (read.actions or read.error):
            self._block = next(self._blocks)
            numbered = marker is not None and re.search("[0-9]", marker[0])
            hidden = read.remark and any(_action(word) is not None for word in words if word[1:])
            if plan and marked and ((numbered and hidden) or len(re.findall(r"\w+", body)) == 1):
                self._record(plan)
                plan.error = plan.error or _unknown(body.strip(), agent)
            elif plan and plan.actions:
                self._close()
            return
        apart = plan is None or (plan.actions and self._blank and not (marked and self._as_list))
        if plan is None or apart:
            if self._found and not read.error:
                lost = self._found[-1]
                lost.error = lost.error or f"{_clip(line.strip())} stands apart from any agent"
            return
        self._record(plan)
        if marker and _RESTATES.search(marker[0]):
            plan.actions = []
        plan.actions += read.actions
        plan.error = plan.error or read.error

    def _close(self) -> None:
        """Close the open plan; without actions it is an error."""
        plan, self._open, self._blank = self._open, None, False
        if plan is not None and plan.actions and self._as_list:
            plan.loose = True
        if plan is not None and plan.error is None and not plan.actions:
            plan.error = f"agent {plan.agent} has no actions (WAIT says that it stays)"
            plan.remark = not self._bare
            self._record(plan)

    def _record(self, plan: AgentPlan) -> None:
        if not self._found or self._found[-1] is not plan:
            plan.block = self._block
            self._found.append(plan)


class _Steps:
    """Collects actions listed by time step, one per agent and step."""

    def __init__(self, num_agents: int) -> None:
        self._num_agents = num_agents
        self._reset()

    def _reset(self) -> None:
        self.running = False
        self._first = 0
        self._moves: list[dict[int, int]] = []

    def begin(self, step: int) -> None:
        """Begin a step; a number that does not follow the last one begins a new list."""
        if not self.running or step != self._first + len(self._moves):
            self._reset()
            self._first = step
        self.running = True
        self._moves.append({})

    def add(self, moves: Iterable[AgentPlan]) -> bool:
        """Add moves to the current step; return False if an agent already has one."""
        for move in moves:
            if move.remark or not move.actions:
                continue
            if not self._moves or move.agent in self._moves[-1]:
                self._reset()
                return False
            self._moves[-1][move.agent] = move.actions[0]
        return True

    def finish(self) -> list[AgentPlan]:
        """Return the plans of all agents if none has a gap, else an empty list."""
        moves, self._moves, self.running = self._moves, [], False
        if self._first > 1 or not moves or set(moves[0]) != set(range(self._num_agents)):
            return []
        plans = []
        for agent in range(self._num_agents):
            told = [step[agent] for step in moves if agent in step]
            if any(agent not in step for step in moves[: len(told)]):
                return []
            plans.append(AgentPlan(agent, told, loose=True))
        return plans


def _column(agent: int, cells: Iterable[str]) -> AgentPlan:
    """Read a column of a table: one action per row until the agent arrives."""
    plan = AgentPlan(agent, loose=True)
    ended = False
    for cell in cells:
        read = _read_actions(cell, agent)
        if read.remark or not (read.actions or read.error):
            ended = True
        elif ended:
            plan.error = plan.error or f"agent {agent} moves on after a row without an action"
        else:
            plan.actions += read.actions
            plan.error = plan.error or read.error
    plan.remark = not (plan.actions or plan.error)
    return plan


def _between(line: str, headers: Sequence[re.Match[str]]) -> Iterator[AgentPlan]:
    """Read the text after each name in a line, up to the next name."""
    for header, following in zip(headers, [*headers[1:], None], strict=True):
        body = line[header.end() : following.start() if following else len(line)]
        yield _read_actions(body, _number(header["agent"]))


def _read_actions(text: str, agent: int) -> AgentPlan:
    """Parse the text after an agent's name into actions, an error or a remark."""
    plan = AgentPlan(agent)
    kept = _ASIDES.sub(_without_remark, _POSITION.sub(" ", text.replace("...", _ELLIPSIS)))
    if sentence := _SENTENCE.search(kept):
        following = _words(kept[sentence.end() :])
        if following and _action(following[0]) is None:
            kept = kept[: sentence.start()]
    words = _words(kept)
    known = [_action(word) for word in words]
    plan.actions = [action for action in known if action is not None]
    unknown = [index for index, action in enumerate(known) if action is None]
    unknown = [index for index in unknown if words[index].lower() not in _FILLERS]
    if not unknown:
        return plan
    first = unknown[0]
    plan.error = _unknown(words[first], agent)
    sentence_words = any(word.lower() in _SENTENCE_WORDS for word in words)
    leading = [action for action in known[:first] if action is not None]
    trailing = [action for action in known[first:] if action is not None]
    if leading and not trailing and len(words) - first > 1:
        plan.loose = True
        if words[first].isdecimal():
            total = words[first] == str(len(leading))
            sentence_words = total and words[first + 1].lower() in _UNITS
        if sentence_words:
            plan.actions, plan.error = leading, None
    elif not any(word.isalnum() for word in words):
        plan.actions = []  # symbols only
    elif sentence_words or not (plan.actions or _spells_actions(words[first])):
        plan.actions, plan.remark = [], True
    return plan


def _without_remark(aside: re.Match[str]) -> str:
    """Keep text in parentheses if it may consist of actions."""
    words = _words(aside[1])
    actions = words and all(_action(word) is not None or word.isupper() for word in words)
    if actions or _REPEATS.fullmatch(aside[1]):
        return f" {aside[1]} "
    return " "


def _words(text: str) -> list[str]:
    """Return the words, numbers and symbols of a text, without punctuation."""
    return [token[0] for token in _TOKEN.finditer(text) if token.lastgroup]


def _action(word: str) -> int | None:
    # ASCII only: upper-casing other letters may produce the letters of an action.
    name = word.upper().replace("-", "").replace("_", "") if word.isascii() else ""
    return ACTION_WORDS.get(name)


def _spells_actions(word: str) -> bool:
    if len(word) < 2:
        return False
    return set(word) <= set("UDLRW") or any(name.startswith(word.upper()) for name in ACTION_WORDS)


def _unclosed(text: str) -> int:
    return sum(text.count(bracket) for bracket in "[{") - sum(text.count(end) for end in "]}")


def _unknown(what: str, agent: int) -> str:
    allowed = ", ".join(action.name for action in Action)
    return f"{_clip(what)} among the actions of agent {agent}: allowed are {allowed}"


def _clip(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
