"""Validate's verdict: a stage that fell by more than its noise is taken back."""

from __future__ import annotations

from training.config import RunConfig
from training.run.directory import RunDirectory, write_json
from training.run.progress import console
from training.run.records import GateRecord, gate_of, gate_record


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
