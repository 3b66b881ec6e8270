"""Design: the engineer reads the policy's failures and proposes the next configuration."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from engineer import (
    Configuration,
    Costs,
    DesignRecord,
    Engineer,
    EngineerError,
    NoteWriter,
    StageView,
    run_design,
)
from engineer.context import ContextTooLongError, summary_question
from engineer.quoting import escape_surrogates
from training.errors import UserError
from training.phases.design_learning import compute_learning_cost
from training.phases.engineer_factory import make_checkpoint_generator, make_engineer
from training.phases.picking import compute_selection_cost
from training.phases.rehearsal import count_rehearsed_designs
from training.phases.stage_results import StageResult, make_design_settings, make_stage_view
from training.run.active_run import ActiveRun
from training.run.progress import console, show_status
from training.run.records import DecisionRecord
from training.sampling.model_server import ModelServer
from training.sampling.sampler import Sampler
from training.schema import RunConfig


def design(run: ActiveRun, sampler: Sampler, results: Sequence[StageResult]) -> StageResult:
    """Ask the engineer for the next configuration, and write its answers and the decision.

    An existing decision is kept. The engine must hold the weights in force.

    Returns:
        The last of `results`, with the decision and the engineer's notes.

    Raises:
        UserError: The prompt exceeds the limit even after truncation.
    """
    result = results[-1]
    stage, files = result.stage, run.directory.stage(result.stage)
    if files.decision.exists():
        notes_text = files.notes.read() if files.notes.exists() else ""
        return replace(result, decision=files.decision.read(), notes=notes_text)
    for file in (files.notes, files.notes_prompt):
        file.remove()  # possibly left by a design phase that was killed
    with run.log_duration("design", stage):
        with show_status(f"stage {stage}: design"):
            design, notes = _run_engineer(run, sampler, results)
        if notes.text:
            files.notes_prompt.write(notes.prompt)
            files.notes.write(notes.text)
        files.context.write(design.context)
        files.answers.write(design.attempts)
        files.decision.write(design)  # last: it marks completion
    changes = ", ".join(f"{edit.field} {edit.old:g} -> {edit.new:g}" for edit in design.diff)
    outcome = changes or "the answer is the configuration in force"
    if design.kind == "kept":
        outcome = design.reason
    console.print(
        f"stage {stage}: design: {design.kind} ({design.engineer}): {outcome}",
        soft_wrap=True,
        markup=False,
    )
    return replace(result, decision=design, notes=notes.text)


def add_costs(
    config: RunConfig, design: DesignRecord[Configuration], view: StageView, other_cost: Costs
) -> DecisionRecord:
    """Add the cost of the stage's training, and `other_cost`, to the cost of a design."""
    training = view.evidence.training
    num_instances, num_resampled = (training.instances, training.resampled) if training else (0, 0)
    training_cost = Costs(
        training_instances=num_instances + num_resampled,
        rehearsed_designs=count_rehearsed_designs(config, num_instances),
    )
    total_cost = design.spent + training_cost + other_cost
    return DecisionRecord.model_validate(dict(design) | {"spent": total_cost})


class _Notes(NamedTuple):
    """The engineer's notes for the next stage; an empty text means none."""

    prompt: str = ""
    text: str = ""
    tokens: int = 0


def _run_engineer(
    run: ActiveRun, sampler: Sampler, results: Sequence[StageResult]
) -> tuple[DecisionRecord, _Notes]:
    stage = results[-1].stage
    view = make_stage_view(run.config, results, stage)
    settings = make_design_settings(run.config)
    with ModelServer(run.config.engine_sampling, run.config.engineer) as model_server:
        engineer = make_engineer(
            run.config,
            run.directory,
            results,
            model_server,
            checkpoint=make_checkpoint_generator(run.policy, sampler, run.config.engineer),
        )
        try:
            design = run_design(
                engineer,
                view,
                settings,
                seed=lambda attempt: run.seed("design", stage, attempt),
                count_tokens=run.policy.count_tokens,
            )
        except ContextTooLongError as error:
            raise UserError(f"engineer.max_context_tokens: {error}") from error
        notes = _request_notes(run, engineer, view, design)
    learning_file = run.directory.stage(stage).design_learning
    learning_cost = compute_learning_cost(learning_file.read() if learning_file.exists() else [])
    selection_cost = compute_selection_cost(run.directory.stage(stage))
    other_cost = Costs(engineer_tokens=notes.tokens) + learning_cost + selection_cost
    return add_costs(run.config, design, view, other_cost), notes


def _request_notes(
    run: ActiveRun, engineer: Engineer, view: StageView, design: DesignRecord[Configuration]
) -> _Notes:
    """Ask for notes, if the context includes them."""
    if "summary" not in run.config.engineer.blocks or not isinstance(engineer, NoteWriter):
        return _Notes()
    prompt = summary_question(view, design.configuration)
    seed = run.seed("summary", view.evidence.stage)
    try:
        notes = engineer.write(prompt, seed)
    except EngineerError as error:
        console.print(f"stage {view.evidence.stage}: no summary: {error}", style="yellow")
        return _Notes(tokens=error.spent.engineer_tokens)
    # Normalise line endings, because the next context quotes the notes byte for byte.
    text = "\n".join(escape_surrogates(notes.text).replace("\r\n", "\n").split("\r"))
    return _Notes(prompt, text, notes.tokens or 0)
