"""Design: the engineer reads where the policy fails and writes the next round's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import engineer
from engineer import Budget, DesignRecord, EngineerError, View, Writer
from engineer.attempt import writable
from engineer.context import ContextTooLongError
from engineer.context.summary import summary_question
from engineer.engineers import Engineer
from training.design.engineers import CheckpointInUse, engineer_for
from training.design.probe import Prober
from training.errors import UserError
from training.phases.context import Run
from training.run.directory import write_json, write_json_lines, write_text
from training.run.progress import console
from training.run.records import (
    NOTES,
    NOTES_PROMPT,
    PROBES,
    answers_of,
    charged,
    decision_of,
    settings_of,
    view_of,
)
from training.sampling.elsewhere import OtherModels
from training.sampling.vllm_sampler import VllmSampler


def design(run: Run, sampler: VllmSampler, stage: int, probe: Prober) -> None:
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
    for left in (NOTES, NOTES_PROMPT, PROBES):  # by a design that was killed before it decided
        (folder / left).unlink(missing_ok=True)
    seconds: dict[str, float] = {}
    with run.clock(seconds, "design"), console.status(f"round {stage}: design"):
        record, notes = _designed(run, sampler, stage, probe)
    if notes.text:
        write_text(folder / NOTES_PROMPT, notes.prompt)
        write_text(folder / NOTES, notes.text)
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


class _Notes(NamedTuple):
    """What the engineer wrote down for the stage after, and what was asked for it."""

    prompt: str = ""
    text: str = ""
    tokens: int = 0


def _designed(
    run: Run, sampler: VllmSampler, stage: int, probe: Prober
) -> tuple[DesignRecord, _Notes]:
    """What the engineer decided, and its notes; without a text if there are none."""
    view = view_of(run.config, run.directory, stage)
    settings = settings_of(run.config, view)
    with OtherModels(run.config.sampling, run.config.engineer) as models:
        asked = engineer_for(
            run.config,
            run.directory,
            stage,
            models,
            checkpoint=CheckpointInUse(run.policy, sampler, run.config.engineer),
            probe=probe,
            probe_rollouts=probe.rollouts,
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
        notes = _notes(run, asked, view, record, settings.budget)
    return charged(record, view, notes.tokens), notes


def write_record(folder: Path, record: DesignRecord) -> None:
    """Write `context.txt`, `answers.jsonl` and, last, `decision.json`."""
    write_text(folder / "context.txt", record.context)
    write_json_lines(folder / "answers.jsonl", answers_of(record))
    write_json(folder / "decision.json", decision_of(record))


def _notes(run: Run, asked: Engineer, view: View, record: DesignRecord, budget: Budget) -> _Notes:
    """The engineer's own notes for the next stage, if there is a place and a budget for them."""
    if "summary" not in run.config.engineer.blocks or not isinstance(asked, Writer):
        return _Notes()
    if budget.exhausted(record.spent):
        return _Notes()
    prompt = summary_question(view, record.configuration, run.config.engineer.style)
    seed = run.entropy("summary", view.evidence.stage)
    try:
        notes = asked.write(prompt, seed, budget.left(record.spent).engineer_tokens)
    except EngineerError as error:
        console.print(f"round {view.evidence.stage}: no summary: {error}", style="yellow")
        return _Notes(tokens=error.spent.engineer_tokens)
    return _Notes(prompt, writable(notes.text), notes.tokens or 0)
