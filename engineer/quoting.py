"""Text that a model wrote, made safe to stand inside a context."""

import json
import re

# Would be read as headings, chat-template tokens, code fences or thinking marks by whoever reads
# the context.
_STRUCTURAL = {ord(c): f"\\u{ord(c):04x}" for c in "#<>`"}
# `[INST]`, `[gMASK]` and their like; other brackets stay readable.
_BRACKETED = re.compile(r"\[(?=/?[A-Za-z_]\w*\])")


def quote(text: str, limit: int = 160) -> str:
    """One line of printable ASCII: a JSON string of the text, cut in the middle.

    The result is valid JSON of at most `limit` source characters plus a note of what was left out.
    Line breaks, control characters, markdown headings and fences and the brackets of special tokens
    are escaped, so the text can't end its line, open a block or pass for part of a chat template.
    """
    if len(text) > limit:
        head, tail = text[: limit - limit // 3], text[len(text) - limit // 3 :]
        text = f"{head} [{len(text) - limit} characters cut] {tail}"
    return _BRACKETED.sub(r"\\u005b", json.dumps(text).translate(_STRUCTURAL))
