"""What a run's directory says of its stages, as the engineer's values. Needs no model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from engineer import (
    Comparison,
    DesignRecord,
    DesignSettings,
    FailedCase,
    Guard,
    LakeConfiguration,
    Spent,
    StageEvidence,
    StageHistory,
    TrainingEvidence,
    View,
)
from engineer.gate import floors, notice
from engineer.space import Frozen, configuration_yaml
from training.config import RunConfig
from training.run.directory import (
    RunDirectory,
    read_json,
    read_json_lines,
    write_json,
    write_text,
)

NOTES = "summary.txt"
"""What a round leaves where its engineer wrote notes."""
NOTES_PROMPT = "summary_prompt.txt"
"""What was asked for them."""
PROBES = "probes.jsonl"
"""What a round leaves where its engineer tried configurations out."""

_CANDIDATES = {"candidates": True}

FAILED_CASES = 8
"""Handed to the engineer's context, which shows the first of them."""


class GateRecord(Frozen):
    """`gate.json`: whether a stage fell behind the one it started from, and what was restored."""

    reference: int = Field(description="the stage whose weights this one started from")
    comparison: Comparison
    restored: Literal["configuration", "checkpoint"] | None
    configuration: LakeConfiguration = Field(description="in force when the engineer is asked")
    notice: str


def configuration_for(config: RunConfig, directory: RunDirectory, stage: int) -> LakeConfiguration:
    """What a stage trains on: the initial configuration, then what the last Design decided."""
    if stage == 1:
        return config.environment.initial
    decision = read_json(directory.stage(stage - 1) / "decision.json")
    return LakeConfiguration.model_validate(decision["configuration"])


def write_configuration(directory: RunDirectory, stage: int, value: LakeConfiguration) -> None:
    """Write what a stage trains on, for programs and for people, unless it is there."""
    folder = directory.stage(stage)
    if not (folder / "configuration.json").exists():
        write_text(folder / "configuration.yaml", configuration_yaml(value))
        write_json(folder / "configuration.json", value.model_dump(mode="json"))


def gate_of(directory: RunDirectory, stage: int) -> GateRecord | None:
    """The gate's record of a stage; None where there is none (stage 0, or not yet)."""
    path = directory.stage(stage) / "gate.json"
    return GateRecord.model_validate(read_json(path)) if path.exists() else None


def reference_of(directory: RunDirectory, stage: int) -> int:
    """The stage whose weights a stage starts from: the one before, unless that was taken back."""
    before = stage - 1
    gate = gate_of(directory, before)
    return gate.reference if gate is not None and gate.restored == "checkpoint" else before


def compare(directory: RunDirectory, before: int, after: int) -> Comparison:
    """Two stages' answers to the validation set, board by board."""
    rows = [
        [episode["valid"] for episode in read_json_lines(directory.stage(stage) / "episodes.jsonl")]
        for stage in (before, after)
    ]
    pairs = list(zip(*rows, strict=True))
    return Comparison(
        count=len(pairs),
        gained=sum(new and not old for old, new in pairs),
        lost=sum(old and not new for old, new in pairs),
    )


def gate_record(config: RunConfig, directory: RunDirectory, stage: int) -> GateRecord:
    """What `gate.json` says, from the validations and decisions that stand there.

    What a fall restores is what was in force when the stage was designed, which is not what the
    stage before trained on if that was taken back, too. The first stage has no configuration before
    it: its own stays in force, whatever it did.
    """
    settings = config.engineer.gate
    reference = reference_of(directory, stage)
    comparison = compare(directory, reference, stage)
    fell = settings.rollback != "off" and comparison.fell(settings.z)
    restored = None if not fell or settings.rollback == "off" else settings.rollback
    before = gate_of(directory, stage - 1) if fell else None
    tried = configuration_for(config, directory, stage)
    current = tried if before is None else before.configuration
    return GateRecord(
        reference=reference,
        comparison=comparison,
        restored=restored,
        configuration=current,
        notice=notice(comparison, restored, tried=tried, current=current) if restored else "",
    )


def view_of(config: RunConfig, directory: RunDirectory, stage: int) -> View:
    """All that the engineer may be told when a stage has ended.

    Where the weights were taken back, the failures are those of the weights that are in force.
    """
    gate = gate_of(directory, stage) or gate_record(config, directory, stage)
    evidence = evidence_of(config, directory, stage)
    if gate.restored == "checkpoint":
        restored = evidence_of(config, directory, gate.reference)
        evidence = evidence.model_copy(
            update={
                name: getattr(restored, name)
                for name in ("validation", "failure_times", "failed_cases")
            }
        )
    return View(
        domain=config.domain,
        evidence=evidence,
        current=gate.configuration,
        history=tuple(history_before(config, directory, stage)),
        notice=gate.notice,
        trained=configuration_for(config, directory, stage),
    )


def settings_of(config: RunConfig, view: View) -> DesignSettings:
    """How the engineer is asked after a stage: the configuration's choice, with its floors."""
    choice = config.engineer
    return DesignSettings(
        attempts=choice.attempts,
        blocks=choice.blocks,
        style=choice.style,
        max_context_tokens=choice.max_context_tokens,
        guard=Guard(
            max_step=choice.max_step,
            floors=floors(view.evidence, view.current, view.domain.space, choice.gate),
        ),
        budget=choice.budget,
    )


def instances_trained_on(view: View) -> int:
    """How many training instances the stage that is looked at has used, for the ledger."""
    return view.evidence.training.instances if view.evidence.training else 0


def charged(record: DesignRecord, view: View, note_tokens: int) -> DesignRecord:
    """The record with its stage's training instances, and the tokens of notes, in the ledger."""
    more = Spent(training_instances=instances_trained_on(view), engineer_tokens=note_tokens)
    return record.model_copy(update={"spent": record.spent + more})


def answers_of(record: DesignRecord) -> list[dict[str, Any]]:
    """The records of `answers.jsonl`: every question and what came back."""
    return [
        {
            "attempt": number,
            **attempt.model_dump(mode="json", exclude=None if attempt.candidates else _CANDIDATES),
        }
        for number, attempt in enumerate(record.attempts)
    ]


def decision_of(record: DesignRecord) -> dict[str, Any]:
    """What `decision.json` says; times are left out, so that equal runs leave equal files."""
    decision = record.model_dump(mode="json", exclude={"attempts"})
    del decision["spent"]["seconds"]
    return decision


def evidence_of(config: RunConfig, directory: RunDirectory, stage: int) -> StageEvidence:
    """What a stage showed: its validation, its training, its instances, some failed cases."""
    folder = directory.stage(stage)
    evidence = StageEvidence.model_validate(read_json(folder / "evidence.json"))
    environment = folder / "environment.json"
    return evidence.model_copy(
        update={
            "training": _training_evidence(config, directory, stage),
            "environment": read_json(environment) if environment.exists() else {},
            "failed_cases": tuple(
                FailedCase(
                    group=str(case["size"]),
                    failure=case["failure"],
                    time=case["time"],
                    instance=tuple(case["grid"]),
                    completion=case["text"],
                )
                for case in _typical(read_json_lines(folder / "failures.jsonl"))[:FAILED_CASES]
            ),
        }
    )


def _typical(failures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One case of each map size and kind of failure, the most frequent of these first.

    Failures come by rising holes and waits, so that the one in the middle stands for the others.
    """
    alike: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for case in failures:
        alike.setdefault((case["size"], case["failure"]), []).append(case)
    return [cases[len(cases) // 2] for cases in sorted(alike.values(), key=len, reverse=True)]


def history_before(config: RunConfig, directory: RunDirectory, stage: int) -> list[StageHistory]:
    """The stages before this one, oldest first."""
    past = []
    for earlier in range(1, stage):
        before = directory.stage(reference_of(directory, earlier))
        after = directory.stage(earlier)
        gate = gate_of(directory, earlier)
        note = after / NOTES
        past.append(
            StageHistory(
                stage=earlier,
                configuration=configuration_for(config, directory, earlier),
                decision="rolled_back"
                if gate is not None and gate.restored
                else "initial"
                if earlier == 1
                else read_json(directory.stage(earlier - 1) / "decision.json")["kind"],
                valid_before=_valid_rates(read_json(before / "validation.json")),
                valid_after=_valid_rates(read_json(after / "validation.json")),
                failures_before=_failure_shares(read_json(before / "validation.json")),
                summary=note.read_text(encoding="utf-8") if note.exists() else "",
            )
        )
    return past


def _valid_rates(validation: dict[str, Any]) -> dict[str, float]:
    return {str(row["size"]): row["valid"] / row["count"] for row in validation["rows"]}


def _failure_shares(validation: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {
        str(row["size"]): {
            kind: count / row["count"] for kind, count in row["failures"].items() if count
        }
        for row in validation["rows"]
    }


def _training_evidence(
    config: RunConfig, directory: RunDirectory, stage: int
) -> TrainingEvidence | None:
    records = [
        record
        for record in directory.metrics.read()
        if record["phase"] == "train" and record["stage"] == stage
    ]
    if not records:
        return None

    def mean(name: str) -> float:
        return sum(record[name] for record in records) / len(records)

    by_size: dict[int, list[float]] = {}
    for record in records:
        for size, row in record["by_size"].items():
            by_size.setdefault(int(size), []).append(row["learnability"])
    return TrainingEvidence(
        updates=len(records),
        instances=len(records) * config.grpo.prompts_per_update,
        reward_first=records[0]["reward_mean"],
        reward_last=records[-1]["reward_mean"],
        groups_without_variance=mean("zero_variance_share"),
        clip_share=mean("clip_share"),
        entropy=mean("entropy"),
        completion_length=mean("completion_length"),
        learnability={str(size): sum(rows) / len(rows) for size, rows in sorted(by_size.items())},
    )
