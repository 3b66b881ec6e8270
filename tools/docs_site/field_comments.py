"""Shows comments beside fields in the reference: `size: jax.Array  # int8 (), side of the board`.

That is how this code says the shape and dtype of a field. An extension of Griffe, which reads the
code for mkdocstrings; `zensical.toml` names it.
"""

import io
import tokenize
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Takes the comment on the last line of a field for its docstring, where it has none."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Give one field its docstring."""
        in_class = attr.parent is not None and attr.parent.is_class
        if attr.docstring is None and in_class and (text := _comment(attr.lines)):
            attr.docstring = griffe.Docstring(
                text, lineno=attr.lineno, endlineno=attr.endlineno, parent=attr
            )


def _comment(lines: list[str]) -> str | None:
    """Return the comment that ends these lines of code, or None."""
    if not lines or "#" not in lines[-1]:
        return None
    source = "\n".join(line.strip() for line in lines) + "\n"
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError):
        return None
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return comments[-1].lstrip("# ") if comments else None
