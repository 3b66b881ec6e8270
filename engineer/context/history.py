"""History: earlier failures, the configurations that answered them, and their results."""

from engineer.context.view import Block, Detail, StageView, from_to
from engineer.evidence import StageHistory
from engineer.space import format_configuration, number_text


def _full(view: StageView, detail: Detail) -> str:
    if not detail.history:
        return ""
    lines = ["## History"]
    for past in view.history[-detail.history :]:
        lines.append(f"Stage {past.stage} (configuration {past.decision.replace('_', ' ')}):")
        for group, knobs in past.configuration.values().items():
            named = ", ".join(f"{knob} {number_text(value)}" for knob, value in knobs.items())
            lines.append(
                f"- {view.domain.called(group)}: {named};"
                f" valid {from_to(past.valid_before, past.valid_after, group)}%"
                + _answered(view, past, group)
            )
    return "\n".join(lines if len(lines) > 1 else [*lines, "There was no stage before this one."])


def _answered(view: StageView, past: StageHistory, group: str) -> str:
    shares = past.failures_before.get(group, {})
    largest = max(shares, key=lambda key: shares[key], default=None)
    if largest is None or not shares[largest]:
        return ""
    return f"; most failures before: {view.domain.failure(largest).name} {shares[largest]:.0%}"


def _compact(view: StageView, detail: Detail) -> str:
    if not detail.history:
        return ""
    share, *others = (knob.split("_")[0] for knob in view.domain.space.knobs)
    names = [share, *(other + "s" for other in others)]
    lines = [f"# history {' '.join(names)} valid"]
    for past in view.history[-detail.history :]:
        lines.append(f"stage {past.stage} {past.decision}")
        for group, line in zip(
            past.configuration.values(),
            format_configuration(past.configuration).split("\n"),
            strict=True,
        ):
            lines.append(f"{line} {from_to(past.valid_before, past.valid_after, group)}")
    return "\n".join(lines if len(lines) > 1 else [*lines, "none"])


BLOCK = Block(_full, _compact)
