"""The parts that are always there: who is asked, the configuration in force, how to answer."""

from engineer.context.view import Block, Detail, StageView
from engineer.space import KnobSpace, answer_text, number_text


def _opening(view: StageView, detail: Detail) -> str:
    return view.domain.opening


def _nothing(view: StageView, detail: Detail) -> str:
    return ""


def _full_notice(view: StageView, detail: Detail) -> str:
    return f"## Notice\n{view.notice}" if view.notice else ""


def _compact_notice(view: StageView, detail: Detail) -> str:
    return f"# notice\n{view.notice}" if view.notice else ""


def _full_current(view: StageView, detail: Detail) -> str:
    return (
        "## Current configuration\n"
        f"In force after stage {view.evidence.stage}, and for the next one if you keep it:\n"
        f"{answer_text(view.current)}"
    )


def _compact_current(view: StageView, detail: Detail) -> str:
    return f"# current\n{answer_text(view.current)}"


def _full_refusal(view: StageView, detail: Detail) -> str:
    if not view.refusal or not detail.refusal:
        return ""
    return f"## Refused answer\nYour last answer could not be used: {view.refusal}"


def _compact_refusal(view: StageView, detail: Detail) -> str:
    return f"# refused\n{view.refusal}" if view.refusal and detail.refusal else ""


def _full_question(view: StageView, detail: Detail) -> str:
    space = view.domain.space
    others = "".join(f" {knob} {_range(space, knob)};" for knob in space.difficulty_knobs)
    return (
        "## Your answer\n"
        f"Write the next configuration as one JSON object with exactly the {space.group_label}s"
        f" {', '.join(space.groups)} as keys, in the form of the current configuration."
        f" Allowed: {space.share} {_range(space, space.share)}, summing to 1 over all"
        f" {space.group_label}s;{others} all in steps of {number_text(space.step)}."
        " End your answer with the JSON."
    )


def _compact_question(view: StageView, detail: Detail) -> str:
    return "# answer\n"


def _range(space: KnobSpace, knob: str) -> str:
    low, high = space.limits(knob)
    return f"{number_text(low)} to {number_text(high)}"


OPENING = Block(_opening, _nothing)
NOTICE = Block(_full_notice, _compact_notice)
CURRENT = Block(_full_current, _compact_current)
REFUSAL = Block(_full_refusal, _compact_refusal)
QUESTION = Block(_full_question, _compact_question)
