"""Separation of a model's thinking from its answer, by tags in upper or lower case."""

import re

THINKING_TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",
    "[THINK]": "[/THINK]",
}
"""Opening tags of thinking blocks, with their closing tags."""

THINKING_PREFIX = "<think>\n"
"""The end of a prompt whose answer begins within a thinking block."""

_OPENING = re.compile("|".join(map(re.escape, THINKING_TAGS)), re.IGNORECASE)
_CLOSING = re.compile("|".join(map(re.escape, THINKING_TAGS.values())), re.IGNORECASE)


def split_thinking(text: str) -> tuple[str, str]:
    """Return the answer after a model's thinking, and any unfinished thinking after the answer.

    The answer is the text between the last closing tag and the next opening tag. The unfinished
    thinking starts with its opening tag, and is empty if there is none.
    """
    start = 0
    for tag in _CLOSING.finditer(text):
        start = tag.end()
    opening = _OPENING.search(text, start)
    end = len(text) if opening is None else opening.start()
    return text[start:end], text[end:]


def closing_tag(text: str) -> str:
    """Return the closing tag of a thinking block that is still open at the end, or ""."""
    unfinished_text = split_thinking(text)[1].lower()
    for opening, closing in THINKING_TAGS.items():
        if unfinished_text.startswith(opening.lower()):
            return closing
    return ""


def opening_tag(prompt: str) -> str:
    """Return the end of a prompt from its final opening tag, or "".

    Some chat templates end prompts with an opening tag. Prepend the returned text to the answer
    before parsing it.
    """
    stripped_prompt = prompt.rstrip()
    for tag in THINKING_TAGS:
        if stripped_prompt.lower().endswith(tag.lower()):
            return prompt[len(stripped_prompt) - len(tag) :]
    return ""
