"""Gate: a stage that fell behind the one it started from, by more than noise, is taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from training.phases.stage_results import StageResult, gate_record
from training.run.directory import RunDirectory
from training.run.progress import console
from training.schema import RunConfig


def gate(config: RunConfig, directory: RunDirectory, results: Sequence[StageResult]) -> StageResult:
    """Compare the last stage with the one it started from, and write `gate.json`.

    A record that is there stays. The last of `results` is returned with it.
    """
    result = results[-1]
    file = directory.stage(result.stage).gate
    if file.exists():
        return replace(result, gate=file.read())
    record = gate_record(config, results, result.stage)
    file.write(record)
    if record.notice:
        console.print(f"stage {result.stage}: {record.notice}", style="yellow")
    return replace(result, gate=record)
