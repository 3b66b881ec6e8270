"""Guideline: generic design heuristics."""

from engineer.context.view import Block, Detail, View


def _full(view: View, detail: Detail) -> str:
    if not detail.guideline:
        return ""
    return "\n".join(["## Guideline", *(f"- {line}" for line in view.domain.guideline)])


def _compact(view: View, detail: Detail) -> str:
    return f"# guideline\n{view.domain.hint}" if detail.guideline else ""


BLOCK = Block(_full, _compact)
