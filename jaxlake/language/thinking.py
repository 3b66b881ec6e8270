"""Separate a model's thinking from its answer, by marks in upper or lower case."""

import re

MARKS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",
    "[THINK]": "[/THINK]",
}
"""Opening marks of thinking blocks, with their closing marks."""

THINKING = "<think>\n"
"""The end of a prompt whose answer begins inside a thinking block."""

_OPENING = re.compile("|".join(map(re.escape, MARKS)), re.IGNORECASE)
_CLOSING = re.compile("|".join(map(re.escape, MARKS.values())), re.IGNORECASE)


def after_thinking(text: str) -> tuple[str, str]:
    """Return the answer after a model's thinking, and any unfinished thinking after the answer.

    The answer lies between the last closing mark and the next opening mark. The unfinished
    thinking starts with its opening mark; it is empty if there is none.
    """
    start = 0
    for mark in _CLOSING.finditer(text):
        start = mark.end()
    opening = _OPENING.search(text, start)
    end = len(text) if opening is None else opening.start()
    return text[start:end], text[end:]


def closing_mark(text: str) -> str:
    """Return the closing mark of a thinking block that is still open at the end, or ""."""
    unfinished = after_thinking(text)[1].lower()
    closing = [mark for opening, mark in MARKS.items() if unfinished.startswith(opening.lower())]
    return closing[0] if closing else ""


def opening_mark(prompt: str) -> str:
    """Return the end of a prompt from its final opening mark, or "".

    Some chat templates end prompts with an opening mark. Prepend the returned text to the answer
    before parsing it.
    """
    stripped = prompt.rstrip()
    for mark in MARKS:
        if stripped.lower().endswith(mark.lower()):
            return prompt[len(stripped) - len(mark) :]
    return ""
