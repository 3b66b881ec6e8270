"""The marks around a model's thinking, in any case: what follows them is its answer."""

import re

MARKS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",
    "[THINK]": "[/THINK]",
}
"""The marks that begin thinking, each with the one that ends it."""

THINKING = "<think>\n"
"""The end of a prompt whose answer begins inside a thinking block."""

_OPENING = re.compile("|".join(map(re.escape, MARKS)), re.IGNORECASE)
_CLOSING = re.compile("|".join(map(re.escape, MARKS.values())), re.IGNORECASE)


def after_thinking(text: str) -> tuple[str, str]:
    """Return the answer that follows a model's thinking, and the thinking that follows the answer.

    The answer stands between the last mark that ends thinking and the next one that begins it.
    Thinking that never ends begins with its mark; the text is empty if there is none.
    """
    start = 0
    for mark in _CLOSING.finditer(text):
        start = mark.end()
    opening = _OPENING.search(text, start)
    end = len(text) if opening is None else opening.start()
    return text[start:end], text[end:]


def closing_mark(text: str) -> str:
    """Return the mark that ends the thinking block in which a text ends, or an empty string."""
    unfinished = after_thinking(text)[1].lower()
    closing = [mark for opening, mark in MARKS.items() if unfinished.startswith(opening.lower())]
    return closing[0] if closing else ""


def opening_mark(prompt: str) -> str:
    """Return the end of a prompt from the mark that begins thinking, or an empty string.

    Chat templates of some models end a prompt this way. An answer to such a prompt is complete with
    this text before it.
    """
    stripped = prompt.rstrip()
    for mark in MARKS:
        if stripped.lower().endswith(mark.lower()):
            return prompt[len(stripped) - len(mark) :]
    return ""
