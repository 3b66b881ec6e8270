"""Design: the engineer reads where the policy fails and writes the next round's configuration."""

from __future__ import annotations

from pathlib import Path

import engineer
from engineer import DesignRecord, EngineerError, View, Writer
from engineer.context import ContextTooLongError
from engineer.context.summary import summary_question
from engineer.design import writable
from engineer.engineers import Engineer
from engineer.engineers.oracle import Probe
from training.design.engineers import CheckpointInUse, engineer_for
from training.errors import UserError
from training.phases.context import Run
from training.run.directory import write_json, write_json_lines, write_text
from training.run.progress import console
from training.run.records import (
    NOTES,
    PROBES,
    answers_of,
    charged,
    decision_of,
    settings_of,
    view_of,
)
from training.sampling.elsewhere import OtherModels
from training.sampling.vllm_sampler import VllmSampler


def design(run: Run, sampler: VllmSampler, stage: int, probe: Probe) -> None:
    """Ask the engineer for the next configuration, and write all that was said and decided.

    A decision that is there stays.

    Args:
      run: the run.
      sampler: holds the stage's weights.
      stage: the stage that has just ended.
      probe: tries a configuration out, for the engineer that does.

    Raises:
      UserError: the prompt can't be cut to fit.
    """
    folder = run.directory.stage(stage)
    if (folder / "decision.json").exists():
        return
    for left in (NOTES, PROBES):  # by a design that was killed before it decided
        (folder / left).unlink(missing_ok=True)
    seconds: dict[str, float] = {}
    with run.clock(seconds, "design"), console.status(f"round {stage}: design"):
        record, note = _designed(run, sampler, stage, probe)
    if note:
        write_text(folder / NOTES, note)
    write_record(folder, record)
    run.directory.timings.append(
        {
            "phase": "design",
            "stage": stage,
            "step": run.step(stage, run.config.updates_per_round),
            "seconds": seconds,
        }
    )
    changes = ", ".join(f"{one.field} {one.old:g} -> {one.new:g}" for one in record.diff)
    console.print(
        f"round {stage}: design: {record.kind} ({record.engineer}): {changes or 'no change'}",
        soft_wrap=True,
    )


def _designed(run: Run, sampler: VllmSampler, stage: int, probe: Probe) -> tuple[DesignRecord, str]:
    """What the engineer decided, and its notes for the stage after; empty if there are none."""
    view = view_of(run.config, run.directory, stage)
    settings = settings_of(run.config, view)
    with OtherModels(run.config.sampling, run.config.engineer) as models:
        asked = engineer_for(
            run.config,
            run.directory,
            stage,
            models,
            checkpoint=CheckpointInUse(run.policy, sampler, run.config.engineer),
            count_tokens=run.policy.count_tokens,
            probe=probe,
            guard=settings.guard,
        )
        try:
            record = engineer.design(
                asked,
                view,
                settings,
                seed=lambda attempt: run.entropy("design", stage, attempt),
                count_tokens=run.policy.count_tokens,
            )
        except ContextTooLongError as error:
            raise UserError(f"engineer.max_context_tokens: {error}") from error
        spent = settings.budget.exhausted(record.spent)
        note, tokens = ("", 0) if spent else _summary(run, asked, view, record)
    return charged(record, view, tokens), note


def write_record(folder: Path, record: DesignRecord) -> None:
    """Write `context.txt`, `answers.jsonl` and, last, `decision.json`."""
    write_text(folder / "context.txt", record.context)
    write_json_lines(folder / "answers.jsonl", answers_of(record))
    write_json(folder / "decision.json", decision_of(record))


def _summary(run: Run, asked: Engineer, view: View, record: DesignRecord) -> tuple[str, int]:
    """The engineer's own notes for the next stage, if there is a place for them; their tokens."""
    if "summary" not in run.config.engineer.blocks or not isinstance(asked, Writer):
        return "", 0
    seed = run.entropy("summary", view.evidence.stage)
    try:
        notes = asked.write(summary_question(view, record.configuration), seed)
    except EngineerError as error:
        console.print(f"round {view.evidence.stage}: no summary: {error}", style="yellow")
        return "", 0
    return writable(notes.text), notes.tokens or 0
