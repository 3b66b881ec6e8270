"""Audit of a run: checks the digests of its files, and recomputes boards, scores and reviews."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from engineer import review_answer
from training.audit.digests import (
    check_inherited_weights,
    digest_stage_file,
    instances_digest,
    record_digests,
    weight_digests,
)
from training.errors import UserError
from training.phases.picking import get_stage_instances
from training.phases.stage_results import (
    StageResult,
    get_configuration,
    make_design_settings,
    make_gate_record,
    make_stage_view,
    read_stage_results,
)
from training.phases.summary import make_summary
from training.phases.validate import SampledAnswer, judge_answers, validation_set
from training.run.digests import metrics_digest
from training.run.directory import RunDirectory
from training.run.records import StageDigests
from training.schema import RunConfig


@dataclass(frozen=True)
class StageAudit:
    """The problems of one stage or of the whole run."""

    stage: int | None  # None: the whole run
    files: int  # number of files compared with their digests
    problems: tuple[str, ...]


def audit_run(path: Path, *, deep: bool = True) -> Iterator[StageAudit]:
    """Audit the complete stages of a run, without training, and yield one result per stage.

    If `deep`, boards, scores, gates and reviews are recomputed, else only digests are compared.
    """
    directory = RunDirectory(path)
    config = directory.config()
    audit = _Audit(config, directory)
    stages = directory.complete_stages()
    for stage in stages:
        yield audit.stage(stage, deep=deep)
    last_stage = config.stages.count if directory.finished() else max(stages, default=-1)
    missing_stages = sorted(set(range(last_stage + 1)) - set(stages))
    problems = [f"stages/{stage}/digests.json: is missing" for stage in missing_stages]
    problems += [f"stages/{stage}: is extra" for stage in stages if stage > config.stages.count]
    if not problems and directory.finished():
        problems += audit.summary_problems()
    yield StageAudit(None, 1, tuple(problems))


@dataclass(frozen=True)
class _Audit:
    config: RunConfig
    directory: RunDirectory
    boards: list[Any] = field(default_factory=list)  # of stages 1, 2 and so on, drawn again

    @cached_property
    def validation(self) -> Any:
        return validation_set(self.config)

    @cached_property
    def results(self) -> list[StageResult]:
        return read_stage_results(self.directory, self.config)

    def stage(self, stage: int, *, deep: bool) -> StageAudit:
        """Compare the digests of a stage, and recompute its derived files if `deep`."""
        files = self.directory.stage(stage)
        try:
            stage_digests = files.digests.read()
            problems = list(self._digest_problems(stage, stage_digests))
            if deep and not problems:
                problems += self._answer_problems(stage, stage_digests)
                if stage > 0:
                    problems += self._board_problems(stage, stage_digests)
                    problems += self._design_problems(stage)
            return StageAudit(stage, len(stage_digests.files), tuple(problems))
        except UserError as error:
            problem = str(error).replace(f"{self.directory.path}/", "")
            return StageAudit(stage, 0, (problem,))

    def _digest_problems(self, stage: int, stage_digests: StageDigests) -> Iterator[str]:
        files = self.directory.stage(stage)
        actual_files = record_digests(files) | weight_digests(files)
        for name in sorted({*stage_digests.files, *actual_files}):
            if name not in stage_digests.files:
                yield f"{name}: has no digest"
            elif name not in actual_files:
                yield f"{name}: is missing"
            elif actual_files[name] != stage_digests.files[name]:
                yield f"{name}: was changed"
        if stage_digests.stage != stage:
            yield f"digests.json: is of stage {stage_digests.stage}"
        if stage_digests.config != digest_stage_file(self.directory.config_file):
            yield "config.yaml: was changed, or the stage is another run's"
        if stage == 0:
            try:
                check_inherited_weights(self.config, self.directory)
            except UserError as error:
                yield str(error).replace(f"{self.directory.path}/", "")
        if stage_digests.metrics != metrics_digest(self.directory.metrics.read(), stage):
            yield "metrics.jsonl: the stage's lines were changed"

    def _answer_problems(self, stage: int, stage_digests: StageDigests) -> Iterator[str]:
        """Draw the validation set again, and score the answers to it."""
        if instances_digest(self.config, self.validation) != stage_digests.validation_set:
            yield "validation set: another one is drawn"
            return
        episodes = self.results[stage].episodes
        answers = [
            SampledAnswer(episode.text, episode.tokens, episode.truncated) for episode in episodes
        ]
        if len(answers) != len(self.validation):
            yield f"episodes.jsonl: {len(answers)} answers to {len(self.validation)} instances"
            return
        recomputed_episodes = judge_answers(self.config, self.validation, answers)
        for row, pair in enumerate(zip(recomputed_episodes, episodes, strict=True)):
            if pair[0] != pair[1]:
                yield f"episodes.jsonl:{row + 1}: the answer is scored otherwise"
                return

    def _board_problems(self, stage: int, stage_digests: StageDigests) -> Iterator[str]:
        """Draw the training instances of a stage again."""
        config, files = self.config, self.directory.stage(stage)
        configuration = get_configuration(config, self.results, stage)
        if configuration != files.configuration.read():
            yield "configuration.json: is not what was decided"
        stage_instances = get_stage_instances(
            config, self.directory, stage, configuration, self.validation, history=self.boards
        )
        if len(self.boards) == stage - 1:
            self.boards.append(stage_instances.instances)
        if instances_digest(config, stage_instances.instances) != stage_digests.instances:
            yield "training instances: others are drawn"
        if stage_instances.statistics != files.environment.read():
            yield "environment.json: differs from the instances that are drawn again"
        if stage_instances.shortfalls != files.shortfalls.read():
            yield "shortfalls.json: differs from the instances that are drawn again"

    def _design_problems(self, stage: int) -> Iterator[str]:
        """Recompute the stage's gate, and review the engineer's answers again."""
        results, files = self.results, self.directory.stage(stage)
        if make_gate_record(self.config, results, stage) != results[stage].gate:
            yield "gate.json: the gate says something else"
        view = make_stage_view(self.config, results, stage)
        step_limit, configuration = make_design_settings(self.config).step_limit, view.current
        for line_number, answer in enumerate(files.answers.read(), start=1):
            if answer.text is None:
                continue
            review = review_answer(answer.text, view.current, view.domain, step_limit)
            if (review.kind, review.reason) != (answer.kind, answer.reason):
                yield f"answers.jsonl:{line_number}: the review says {review.kind}"
            configuration = review.configuration or view.current
        decision = results[stage].decision
        if decision is None or decision.configuration.values() != configuration.values():
            yield "decision.json: is not what the engineer's answers lead to"

    def summary_problems(self) -> list[str]:
        """Compare the final result with the results of the stages."""
        try:
            if make_summary(self.config, self.results) == self.directory.summary.read():
                return []
        except UserError as error:
            return [str(error)]
        return ["summary.json: differs from the results of the stages"]
