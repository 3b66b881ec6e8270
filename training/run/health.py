"""Diagnosis of a run's problems from its records, for the terminal and the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from training.run.progress import console
from training.run.records import EpisodeRecord, GateRecord, UpdateMetrics
from training.schema import RunConfig

WINDOW = 10
"""Number of consecutive updates with a problem before it is reported; at most a whole stage."""

MIN_READABLE = 0.05
MAX_TRUNCATED = 0.25
MAX_ZERO_VARIANCE = 0.95

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

    Later updates never withdraw a finding.

    Args:
        config: The run's configuration.
        updates: Metrics of updates, in order.
        answers: Answers to the validation set, by stage.
        gates: Gate records, by stage.
    """
    answers, gates = answers or {}, gates or {}
    findings: dict[tuple[int, Cause], Finding] = {}
    for stage in sorted({*(update.stage for update in updates), *answers, *gates}):
        stage_updates = [update for update in updates if update.stage == stage]
        for finding in [
            *_find_training_problems(config, stage, stage_updates),
            *_find_answer_problems(config, stage, answers.get(stage, ())),
            *_find_gate_problems(stage, gates.get(stage)),
        ]:
            findings.setdefault((stage, finding.cause), finding)
    return list(findings.values())


def summarize(findings: Sequence[Finding]) -> list[str]:
    """Return one line per cause, with the fact of the first stage and the other stages."""
    findings_by_cause: dict[Cause, list[Finding]] = {}
    for finding in findings:
        findings_by_cause.setdefault(finding.cause, []).append(finding)
    lines = []
    for first, *later in findings_by_cause.values():
        stages = ", ".join(str(finding.stage) for finding in later)
        repetition = f" Also in stage{'s'[: len(later) - 1]} {stages}." if later else ""
        lines.append(f"Stage {first.stage}: {first.fact}.{repetition} {first.advice}.")
    return lines


def print_findings(findings: Sequence[Finding], known: Sequence[Finding] = ()) -> Sequence[Finding]:
    """Print the findings whose stage and cause are not in `known`, and return all."""
    known_keys = {(finding.stage, finding.cause) for finding in known}
    for finding in findings:
        if (finding.stage, finding.cause) not in known_keys:
            console.print(str(finding), style="yellow", soft_wrap=True)
    return findings


def _find_training_problems(
    config: RunConfig, stage: int, updates: Sequence[UpdateMetrics]
) -> list[Finding]:
    def is_readable(update: UpdateMetrics) -> bool:
        return update.parsed_rate >= MIN_READABLE

    def is_truncated(update: UpdateMetrics) -> bool:
        return is_readable(update) and update.truncated_share >= MAX_TRUNCATED

    def has_no_variance(update: UpdateMetrics) -> bool:
        replaced = (update.replaced_boards or 0) / config.grpo.prompts_per_update
        return is_readable(update) and update.zero_variance_share - replaced >= MAX_ZERO_VARIANCE

    def has_no_gradient(update: UpdateMetrics) -> bool:
        return update.grad_norm == 0 and is_readable(update) and not has_no_variance(update)

    findings: list[Finding] = []

    def add(cause: Cause, fact: str, advice: str, streak: Sequence[UpdateMetrics]) -> None:
        fact = f"in updates {streak[0].update} to {streak[-1].update}, {fact}"
        findings.append(Finding(stage, cause, fact, advice))

    window = min(WINDOW, config.updates_per_stage)
    if streak := _find_first_streak(updates, lambda update: not is_readable(update), window):
        truncated_share = _mean(streak, "truncated_share")
        fact = f"{_mean(streak, 'parsed_rate'):.0%} of the answers are readable"
        add("unreadable", fact, _unreadable_advice(config, truncated_share), streak)
    if streak := _find_first_streak(updates, is_truncated, window):
        share = f"{_mean(streak, 'truncated_share'):.0%} of the answers"
        add("cut_off", f"{share} {_truncation_fact(config)}", _TRUNCATION_ADVICE, streak)
    if streak := _find_first_streak(updates, has_no_variance, window):
        valid = _mean(streak, "valid_rate")
        share = f"{_mean(streak, 'zero_variance_share'):.0%} of the groups"
        fact = f"{share} have equal rewards, so nothing is learned ({valid:.0%} of answers valid)"
        add("no_variance", fact, _variance_advice(valid), streak)
    if streak := _find_first_streak(updates, has_no_gradient, window):
        advice = "Try model.dtype=float32, and look at the options of the loss (grpo.*)"
        if config.grpo.mask_truncated and _mean(streak, "truncated_share") > 0:
            advice = "grpo.mask_truncated excludes cut off answers: raise prompt.max_tokens"
        add("no_gradient", "the gradient is zero, so nothing is learned", advice, streak)
    return findings


def _find_answer_problems(
    config: RunConfig, stage: int, answers: Sequence[EpisodeRecord]
) -> list[Finding]:
    if not answers:
        return []
    count = len(answers)
    num_readable = sum(answer.parsed for answer in answers)
    num_truncated = sum(answer.truncated for answer in answers)
    if num_readable / count < MIN_READABLE:
        fact = f"{num_readable} of {count} validation answers are readable"
        advice = _unreadable_advice(config, num_truncated / count)
        return [Finding(stage, "unreadable", fact, advice)]
    if num_truncated / count >= MAX_TRUNCATED:
        fact = f"{num_truncated} of {count} validation answers {_truncation_fact(config)}"
        return [Finding(stage, "cut_off", fact, _TRUNCATION_ADVICE)]
    return []


def _find_gate_problems(stage: int, gate: GateRecord | None) -> list[Finding]:
    if gate is None:
        return []
    low, high = gate.comparison.interval()
    if high >= 0 and gate.restored is None:
        return []
    fall = f"{-100 * gate.comparison.difference:.1f} points [{-100 * high:.1f}, {-100 * low:.1f}]"
    suffix = f"; the previous {gate.restored} was restored" if gate.restored else ""
    advice = "Try a smaller grpo.learning_rate or fewer updates per stage (stages.instances)"
    if gate.restored != "checkpoint":
        advice += "; engineer.gate.rollback=checkpoint also restores the previous weights"
    return [Finding(stage, "fell", f"the valid rate fell by {fall}{suffix}", advice)]


def _find_first_streak(
    updates: Sequence[UpdateMetrics], predicate: Callable[[UpdateMetrics], bool], min_length: int
) -> list[UpdateMetrics]:
    """Return the first `min_length` or more consecutive updates for which `predicate` is true."""
    streak: list[UpdateMetrics] = []
    for update in updates:
        if predicate(update):
            streak.append(update)
        elif len(streak) >= min_length:
            break
        else:
            streak = []
    return streak if len(streak) >= min_length else []


def _mean(updates: Sequence[UpdateMetrics], field: str) -> float:
    return sum(getattr(update, field) for update in updates) / len(updates)


_TRUNCATION_ADVICE = "Raise prompt.max_tokens, or ask for shorter answers (reward.overlong_buffer)"


def _truncation_fact(config: RunConfig) -> str:
    return f"are cut off at prompt.max_tokens = {config.prompt.max_tokens}"


def _unreadable_advice(config: RunConfig, share: float) -> str:
    if share >= 0.5:
        return f"{share:.0%} {_truncation_fact(config)}: raise it, or ask for shorter answers"
    return (
        "Read a few of them in the report, then try another prompt.style or prompt.template, "
        "prompt.chat or a warm_start"
    )


def _variance_advice(valid_rate: float) -> str:
    if valid_rate < 0.5:
        return "Try easier instances (environment.initial), a warm_start or more grpo.completions"
    return "Try harder instances (environment.initial) or a higher sampling.temperature"
