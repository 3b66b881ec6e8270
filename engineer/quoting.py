"""Escape model-written text, so that it is safe in contexts and files."""

import json
import re

# Characters of headings, chat-template tokens, code fences and thinking marks.
_STRUCTURAL = {ord(c): f"\\u{ord(c):04x}" for c in "#<>`"}
# Special tokens such as `[INST]` and `[gMASK]`; other brackets stay readable.
_BRACKETED = re.compile(r"\[(?=/?[A-Za-z_]\w*\])")


def quote(text: str, max_characters: int = 160, *, end: bool = False) -> str:
    """Return a text as a one-line JSON string of printable ASCII.

    Line breaks, control characters, Markdown headings and fences, and brackets of special tokens
    are escaped, so the text can't end its line, open a block or imitate a chat template.

    Args:
        text: The text.
        max_characters: Maximum number of characters; a note states how many were cut.
        end: Whether to keep the end of the text instead of the beginning.
    """
    if len(text) > max_characters:
        note = f"[{len(text) - max_characters} characters cut]"
        text = f"{note} {text[-max_characters:]}" if end else f"{text[:max_characters]} {note}"
    return _BRACKETED.sub(r"\\u005b", json.dumps(text).translate(_STRUCTURAL))


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates, which can occur in JSON but not in UTF-8 files."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
