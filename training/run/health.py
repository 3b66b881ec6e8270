"""Diagnosis of a run's problems from its records, for the terminal and the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from training.run.progress import console
from training.run.records import EpisodeRecord, GateRecord, UpdateMetrics
from training.schema import RunConfig

WINDOW = 10
"""Number of consecutive updates that must show a problem, or all updates of a shorter stage."""

FEW_READABLE, MANY_CUT, ALMOST_ALL = 0.05, 0.25, 0.95

Cause = Literal["unreadable", "cut_off", "no_variance", "no_gradient", "fell"]


@dataclass(frozen=True)
class Finding:
    """A problem of one stage."""

    stage: int
    cause: Cause
    fact: str
    advice: str

    def __str__(self) -> str:
        return f"stage {self.stage}: {self.fact}. {self.advice}."


def find_problems(
    config: RunConfig,
    updates: Sequence[UpdateMetrics] = (),
    answers: Mapping[int, Sequence[EpisodeRecord]] | None = None,
    gates: Mapping[int, GateRecord] | None = None,
) -> list[Finding]:
    """Return the problems of a run's stages, at most one per stage and cause.

    Additional updates can only add findings. Updates are in order; answers to the validation set
    and gates are by stage.
    """
    answers, gates = answers or {}, gates or {}
    findings: dict[tuple[int, Cause], Finding] = {}
    for stage in sorted({*(update.stage for update in updates), *answers, *gates}):
        trained = _of_training(config, stage, [one for one in updates if one.stage == stage])
        validated = _of_answers(config, stage, answers.get(stage, ()))
        for finding in [*trained, *validated, *_of_gate(stage, gates.get(stage))]:
            findings.setdefault((stage, finding.cause), finding)
    return list(findings.values())


def summarize(findings: Sequence[Finding]) -> list[str]:
    """Return one line per cause: the first stage's facts, the other stages and the advice."""
    by_cause: dict[Cause, list[Finding]] = {}
    for finding in findings:
        by_cause.setdefault(finding.cause, []).append(finding)
    lines = []
    for first, *others in by_cause.values():
        stages = ", ".join(str(one.stage) for one in others)
        also = f" Also in stage{'s'[: len(others) - 1]} {stages}." if others else ""
        lines.append(f"Stage {first.stage}: {first.fact}.{also} {first.advice}.")
    return lines


def print_findings(new: Sequence[Finding], old: Sequence[Finding] = ()) -> Sequence[Finding]:
    """Print the new findings whose stage and cause are not in `old`, and return all new ones."""
    places = {(finding.stage, finding.cause) for finding in old}
    for finding in new:
        if (finding.stage, finding.cause) not in places:
            console.print(str(finding), style="yellow", soft_wrap=True)
    return new


def _of_training(config: RunConfig, stage: int, updates: Sequence[UpdateMetrics]) -> list[Finding]:
    def readable(one: UpdateMetrics) -> bool:
        return one.parsed_rate >= FEW_READABLE

    def idle(one: UpdateMetrics) -> bool:
        replaced = (one.replaced_boards or 0) / config.grpo.prompts_per_update
        return readable(one) and one.zero_variance_share - replaced >= ALMOST_ALL

    findings: list[Finding] = []

    def add(cause: Cause, fact: str, advice: str, rows: Sequence[UpdateMetrics]) -> None:
        where = f"in updates {rows[0].update} to {rows[-1].update}, {fact}"
        findings.append(Finding(stage, cause, where, advice))

    window = min(WINDOW, config.updates_per_stage)
    if rows := _in_a_row(updates, lambda one: not readable(one), window):
        cut = _mean(rows, "truncated_share")
        fact = f"{_mean(rows, 'parsed_rate'):.0%} of the answers are readable"
        add("unreadable", fact, _unreadable_advice(config, cut), rows)
    if rows := _in_a_row(updates, lambda u: readable(u) and u.truncated_share >= MANY_CUT, window):
        share = f"{_mean(rows, 'truncated_share'):.0%} of the answers"
        add("cut_off", f"{share} {_limit(config)}", _CUT_ADVICE, rows)
    if rows := _in_a_row(updates, idle, window):
        valid = _mean(rows, "valid_rate")
        share = f"{_mean(rows, 'zero_variance_share'):.0%} of the groups"
        fact = f"{share} have equal rewards, so nothing is learned ({valid:.0%} of answers valid)"
        add("no_variance", fact, _variance_advice(valid), rows)
    if rows := _in_a_row(
        updates, lambda one: one.grad_norm == 0 and readable(one) and not idle(one), window
    ):
        advice = "Try model.dtype=float32, and look at the options of the loss (grpo.*)"
        if config.grpo.mask_truncated and _mean(rows, "truncated_share") > 0:
            advice = "grpo.mask_truncated leaves cut answers out: raise prompt.max_tokens"
        add("no_gradient", "the gradient is zero, so nothing is learned", advice, rows)
    return findings


def _of_answers(config: RunConfig, stage: int, answers: Sequence[EpisodeRecord]) -> list[Finding]:
    if not answers:
        return []
    count = len(answers)
    readable, cut = (sum(getattr(answer, f) for answer in answers) for f in ("parsed", "truncated"))
    if readable / count < FEW_READABLE:
        fact = f"{readable} of {count} validation answers are readable"
        return [Finding(stage, "unreadable", fact, _unreadable_advice(config, cut / count))]
    if cut / count >= MANY_CUT:
        fact = f"{cut} of {count} validation answers {_limit(config)}"
        return [Finding(stage, "cut_off", fact, _CUT_ADVICE)]
    return []


def _of_gate(stage: int, gate: GateRecord | None) -> list[Finding]:
    if gate is None:
        return []
    low, high = gate.comparison.interval()
    if high >= 0 and gate.restored is None:
        return []
    fall = f"{-100 * gate.comparison.difference:.1f} points [{-100 * high:.1f}, {-100 * low:.1f}]"
    restored = f"; the {gate.restored} before is in force again" if gate.restored else ""
    advice = "Try a smaller grpo.learning_rate or fewer updates per stage (stages.instances)"
    if gate.restored != "checkpoint":
        advice += "; engineer.gate.rollback=checkpoint takes such weights back"
    return [Finding(stage, "fell", f"the valid rate fell by {fall}{restored}", advice)]


def _in_a_row(
    updates: Sequence[UpdateMetrics], holds: Callable[[UpdateMetrics], bool], least: int
) -> list[UpdateMetrics]:
    """Return the first series of at least `least` consecutive updates for which `holds` is true."""
    rows: list[UpdateMetrics] = []
    for update in updates:
        if holds(update):
            rows.append(update)
        elif len(rows) >= least:
            break
        else:
            rows = []
    return rows if len(rows) >= least else []


def _mean(rows: Sequence[UpdateMetrics], field: str) -> float:
    return sum(getattr(row, field) for row in rows) / len(rows)


_CUT_ADVICE = "Raise prompt.max_tokens, or ask for shorter answers (reward.overlong_buffer)"


def _limit(config: RunConfig) -> str:
    return f"are cut off at prompt.max_tokens = {config.prompt.max_tokens}"


def _unreadable_advice(config: RunConfig, cut: float) -> str:
    if cut >= 0.5:
        return f"{cut:.0%} {_limit(config)}: raise it, or ask for shorter answers"
    return (
        "Read a few of them in the report, then try another prompt.style or prompt.template, "
        "prompt.chat or a warm_start"
    )


def _variance_advice(valid: float) -> str:
    if valid < 0.5:
        return "Try easier instances (environment.initial), a warm_start or more grpo.completions"
    return "Try harder instances (environment.initial) or a higher sampling.temperature"
