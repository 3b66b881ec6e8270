"""Environment Statistics: what the generator says of the stage's training instances."""

from engineer.context.view import Block, Detail, StageView


def _full(view: StageView, detail: Detail) -> str:
    domain, known = view.domain, view.evidence.environment
    if not detail.statistics or not known:
        return ""
    lines = ["## Environment statistics", "Of the stage's training instances:"]
    for group, values in known.items():
        parts = [
            f"{term.name} {values[term.key]:.3g}"
            for term in domain.statistics
            if term.key in values
        ]
        lines.append(f"- {domain.called(group)}: {', '.join(parts)}.")
    return "\n".join(lines)


def _compact(view: StageView, detail: Detail) -> str:
    known = view.evidence.environment
    if not detail.statistics or not known:
        return ""
    lines = ["# environment"]
    for group, values in known.items():
        parts = [
            f"{term.word} {values[term.key]:.3g}"
            for term in view.domain.statistics
            if term.key in values
        ]
        lines.append(" ".join([group, *parts]))
    return "\n".join(lines)


BLOCK = Block(_full, _compact)
