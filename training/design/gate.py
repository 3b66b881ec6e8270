"""Validate's verdict: a stage that fell by more than its noise is taken back."""

from __future__ import annotations

from engineer.gate import notice
from training.config import RunConfig
from training.run.directory import RunDirectory, write_json
from training.run.progress import console
from training.run.records import (
    GateRecord,
    compare,
    configuration_for,
    gate_of,
    reference_of,
)


def gate(config: RunConfig, directory: RunDirectory, stage: int) -> GateRecord:
    """Compare a stage with the one it started from, and write `gate.json`; a record stays."""
    found = gate_of(directory, stage)
    if found is not None:
        return found
    record = gate_record(config, directory, stage)
    write_json(directory.stage(stage) / "gate.json", record.model_dump(mode="json"))
    if record.notice:
        console.print(f"round {stage}: {record.notice}", style="yellow")
    return record


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
