"""A Griffe extension that shows trailing comments of fields in the API reference.

This project documents fields in such comments: `size: jax.Array  # int8 (), side of the board`.
Griffe reads the code for mkdocstrings; `zensical.toml` loads the extension.
"""

import io
import tokenize
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Use the comment on a field's last line as its docstring if it has none."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Set the docstring of one field."""
        in_class = attr.parent is not None and attr.parent.is_class
        if attr.docstring is None and in_class and (text := _find_comment(attr.lines)):
            attr.docstring = griffe.Docstring(
                text, lineno=attr.lineno, endlineno=attr.endlineno, parent=attr
            )


def _find_comment(lines: list[str]) -> str | None:
    """Return the comment at the end of these lines of code, or None."""
    if not lines or "#" not in lines[-1]:
        return None
    source = "\n".join(line.strip() for line in lines) + "\n"
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError):
        return None
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return comments[-1].lstrip("# ") if comments else None
