"""Makes text that a model wrote safe to stand inside a context, or in a file."""

import json
import re

# A reader of the context would take these for headings, chat-template tokens, code fences or
# thinking marks.
_STRUCTURAL = {ord(c): f"\\u{ord(c):04x}" for c in "#<>`"}
# `[INST]`, `[gMASK]` and their like; other brackets stay readable.
_BRACKETED = re.compile(r"\[(?=/?[A-Za-z_]\w*\])")


def quote(text: str, limit: int = 160, *, end: bool = False) -> str:
    """Return a text as a JSON string of printable ASCII on one line.

    It holds the first (or with `end` the last) `limit` characters and says how many were left out.
    Line breaks, control characters, markdown headings and fences and the brackets of special tokens
    are escaped, so that the text can't end its line, open a block or pass for part of a chat
    template.
    """
    if len(text) > limit:
        note = f"[{len(text) - limit} characters cut]"
        text = f"{note} {text[-limit:]}" if end else f"{text[:limit]} {note}"
    return _BRACKETED.sub(r"\\u005b", json.dumps(text).translate(_STRUCTURAL))


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates, which JSON can carry but files can't."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
