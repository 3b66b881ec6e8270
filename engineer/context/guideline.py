"""Guideline: generic design heuristics."""

from engineer.context.view import Block, Detail, StageView


def _full(view: StageView, detail: Detail) -> str:
    if not detail.guideline:
        return ""
    return "\n".join(["## Guideline", *(f"- {line}" for line in view.domain.guideline)])


def _compact(view: StageView, detail: Detail) -> str:
    return f"# guideline\n{view.domain.hint}" if detail.guideline else ""


BLOCK = Block(_full, _compact)
