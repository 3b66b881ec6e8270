"""The stages of a run made again from what only the run can know, and compared with its files.

Taken as they stand are the configuration, the answers of the policy and of the engineer, what
probes and atlases came to, the engineer's notes and the metrics. All else follows from these:
instances, verdicts, the gate, prompts, the review of the engineer's answers, the decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import engineer
from engineer import AtlasSource, DesignAtlas, Spent
from engineer.context import summary_question
from engineer.engineers.controls import split_control
from engineer.space import Configuration
from training.analysis.counterfactual import token_counter
from training.audit.chain import board_source, instances_digest, without_seconds
from training.audit.checks import Check, Checker
from training.errors import UserError
from training.phases import stage_results
from training.phases.atlas import known_atlas, rollouts_per_atlas
from training.phases.design import charged
from training.phases.design_learning import spent_on_learning
from training.phases.picking import spent_on_picking, stage_boards
from training.phases.probe import rollouts_per_probe
from training.phases.stage_results import StageResult
from training.phases.validate import judge_answers, validation_set
from training.run import records
from training.run.directory import RunDirectory
from training.run.seeds import seed_for
from training.schema import ATLAS, ORACLE, RunConfig


@dataclass
class Rederivation:
    """Makes the stages of a run again, one after the other; each builds on those before it."""

    config: RunConfig
    directory: RunDirectory
    updates: list[records.UpdateMetrics]  # of all Train phases
    results: list[StageResult] = field(default_factory=list)  # what the stages must have left
    boards: list[Any] = field(default_factory=list)  # of stages 1, 2 and so on

    @cached_property
    def validation(self) -> Any:
        """The validation set, drawn again."""
        return validation_set(self.config)

    def checks(self, link: records.ChainLink) -> Iterator[Check]:
        """Make the next stage again, and compare its parts in the order in which they follow."""
        stage, files = link.stage, self.directory.stage(link.stage)
        checker = Checker(self.directory, stage, derived=True)
        configuration, source, boards = None, None, None
        environment: dict[str, dict[str, float]] = {}
        if stage > 0:
            configuration = stage_results.configuration_for(self.config, self.results, stage)
            yield checker.compare_file(files.configuration, configuration)
            source = board_source(self.config, stage, configuration)
            with checker.naming("instances"):
                drawn = stage_boards(
                    self.config,
                    self.directory,
                    stage,
                    configuration,
                    self.validation,
                    known=self.boards,
                )
            self.boards.append(drawn.boards)
            boards, environment = instances_digest(self.config, drawn.boards), drawn.environment
            yield checker.compare_file(files.environment, environment)
            yield checker.compare_file(files.shortfalls, drawn.shortfalls)
        yield checker.compare("generator", source, link.generator)
        yield checker.compare("instances", boards, link.instances)

        with checker.naming("validation_set"):
            validation = self.validation
        yield checker.compare(
            "validation_set", instances_digest(self.config, validation), link.validation_set
        )
        with checker.naming(files.episodes.path.name):
            texts = [episode.text for episode in files.episodes.read()]
            if len(texts) != len(validation):
                raise UserError(f"{len(texts)} answers to {len(validation)} instances")
        episodes = judge_answers(self.config, validation, texts)
        yield checker.compare_file(files.episodes, episodes)

        updates = [update for update in self.updates if update.stage == stage]
        self.results.append(
            stage_results.validated_stage(
                self.config, stage, configuration, episodes, updates, environment
            )
        )
        if stage > 0:
            yield from self._design_checks(stage, checker)

    def _design_checks(self, stage: int, checker: Checker) -> Iterator[Check]:
        """Make the gate's record and the Design phase of the last stage again."""
        config, files = self.config, self.directory.stage(stage)
        gate = stage_results.gate_record(config, self.results, stage)
        yield checker.compare_file(files.gate, gate)
        self.results[stage] = replace(self.results[stage], gate=gate)
        view = stage_results.view_of(config, self.results, stage)
        settings = stage_results.design_settings(config, view)
        with checker.naming(files.answers.path.name):
            answers = files.answers.read()
            probes = files.probes.read() if files.probes.exists() else []
            untried = iter(probes)
            design = engineer.run_design(
                _recorded_engineer(config, self.directory, stage, answers, untried, settings.guard),
                view,
                settings,
                seed=lambda attempt: seed_for(config.seed, "design", stage, attempt),
                count_tokens=token_counter(config, self.directory, stage),
            )
        yield checker.compare_file(files.context, design.context)
        reviewed = [without_seconds(answer) for answer in records.attempt_records(design)]
        said = [without_seconds(answer) for answer in answers]
        yield checker.compare(files.answers.path.name, reviewed, said)
        if probes:
            tried = len(probes) - len(list(untried))
            yield checker.compare(files.probes.path.name, tried, len(probes))

        with checker.naming(files.decision.path.name):
            found = files.decision.read()
            notes = files.notes.read() if files.notes.exists() else ""
        tokens = 0  # of the notes, which are counted in the decision alone
        if "summary" in config.engineer.blocks:
            tokens = max(found.spent.engineer_tokens - design.spent.engineer_tokens, 0)
        # Nothing says who the engineer was but the decision itself.
        design = design.model_copy(update={"engineer": found.engineer})
        learned = files.design_learning.read() if files.design_learning.exists() else []
        charges = Spent(engineer_tokens=tokens) + spent_on_learning(learned)
        charges = charges + spent_on_picking(files)
        decision = records.DecisionRecord.of(charged(config, design, view, charges))
        yield checker.compare_file(files.decision, decision)
        if files.notes.exists() or files.notes_prompt.exists():
            asked = summary_question(view, decision.configuration)
            yield checker.compare_file(files.notes_prompt, asked)
        self.results[stage] = replace(self.results[stage], decision=decision, notes=notes)


def _recorded_engineer(
    config: RunConfig,
    directory: RunDirectory,
    stage: int,
    answers: Sequence[records.AttemptRecord],
    probes: Iterator[records.ProbeRecord],
    guard: engineer.Guard,
) -> engineer.Engineer:
    """Make an engineer whose answers, with the time and the tokens they took, are those recorded.

    A control's evidence is altered again. An oracle chooses again among what its
    candidates said, by what its probes came to; it takes as many of these, in order, as it needs.
    The best of an atlas is looked for again in what was measured.
    """
    choice = config.engineer
    atlas = AtlasSource(
        lambda: _recorded_atlas(directory, config, stage), rollouts_per_atlas(config)
    )
    if choice.kind != ORACLE:
        return _recorded(choice.kind, choice.kind, answers, atlas)
    candidates = []
    for place, kind in enumerate(choice.oracle.candidates):
        said = [one.candidates[place] for one in answers if place < len(one.candidates)]
        candidates.append(_recorded(kind, said[0].engineer if said else kind, said, atlas))

    def probe(configuration: Configuration) -> engineer.ProbeResult:
        tried = next(probes, None)
        if tried is None or tried.configuration != configuration:
            raise UserError(f"no probe is recorded of {configuration.model_dump_json()}")
        score = tried.valid / tried.count
        return engineer.ProbeResult(score=score, instances=tried.instances, rollouts=tried.rollouts)

    most = rollouts_per_probe(config)
    return engineer.OracleEngineer(tuple(candidates), probe, choice.oracle.max_probes, most, guard)


def _recorded_atlas(directory: RunDirectory, config: RunConfig, stage: int) -> DesignAtlas:
    """Return what the stage's engineer measured; a `UserError` if it is not there."""
    if not (file := directory.stage(stage).atlas).exists():
        raise UserError(f"{file.path}: is missing, but the engineer is asked for its best")
    return known_atlas(directory, config, stage).atlas


def _recorded(
    kind: str, name: str, said: Sequence[engineer.Attempt], atlas: AtlasSource
) -> engineer.Engineer:
    if kind == ATLAS:
        return _MeasuredAgain(engineer.AtlasEngineer(atlas), iter(said))
    control, _ = split_control(kind)
    playback = _Playback(split_control(name)[1], iter(said))
    return control(playback) if control else playback


@dataclass(frozen=True)
class _Playback:
    """Says what was said, one answer after the other."""

    name: str
    said: Iterator[engineer.Attempt]

    def propose(self, task: engineer.Task) -> engineer.Proposal:
        """Give the next answer, or fail, as it was; a `UserError` if none is recorded."""
        said = next(self.said, None)
        if said is None:
            raise UserError(f"attempt {task.attempt}: no answer of {self.name} is recorded")
        if said.text is None:
            spent = engineer.Spent(engineer_tokens=said.tokens or 0, seconds=said.seconds)
            raise engineer.EngineerError(said.reason, spent)
        return engineer.Proposal(said.text, said.seconds, said.tokens)


@dataclass(frozen=True)
class _MeasuredAgain:
    """Looks for the best of the recorded atlas again, in the time that it took."""

    inner: engineer.AtlasEngineer
    said: Iterator[engineer.Attempt]
    name: str = ATLAS

    def propose(self, task: engineer.Task) -> engineer.Proposal:
        """Answer as the atlas engineer does; a `UserError` if no answer is recorded."""
        said = next(self.said, None)
        if said is None:
            raise UserError(f"attempt {task.attempt}: no answer of {self.name} is recorded")
        try:
            return replace(self.inner.propose(task), seconds=said.seconds)
        except engineer.EngineerError as error:
            spent = error.spent.model_copy(update={"seconds": said.seconds})
            raise engineer.EngineerError(str(error), spent) from error
