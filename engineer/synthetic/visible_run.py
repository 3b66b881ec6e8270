"""The part of a simulated run that its engineer can see."""

from dataclasses import dataclass, field

from engineer.context.view import StageView
from engineer.domain import Domain
from engineer.evidence import (
    DecisionKind,
    GroupEvidence,
    StageEvidence,
    StageHistory,
    TrainingEvidence,
)
from engineer.space import Configuration
from engineer.synthetic.learner import MAX_FALL, ROLLBACK_NOTICE, compute_fall


@dataclass
class VisibleRun:
    """The configurations and results of a simulated run so far."""

    domain: Domain
    current: Configuration
    validation: dict[str, GroupEvidence]  # results of the last validation, by group
    designed_from: Configuration | None = None  # the configuration before the current one
    decision: DecisionKind = "initial"  # origin of the current configuration
    history: list[StageHistory] = field(default_factory=list)

    def finish_stage(
        self,
        validation: dict[str, GroupEvidence],
        training: TrainingEvidence,
        stages_left: int | None = None,
    ) -> StageView:
        """Return the engineer's view after a stage, and roll back after a significant fall."""
        stage, trained, notice = len(self.history) + 1, self.current, ""
        valid_before, valid_after = (
            sum(tally.valid for tally in evidence.values())
            for evidence in (self.validation, validation)
        )
        count = sum(tally.count for tally in validation.values())
        if compute_fall(valid_before, valid_after, count) > MAX_FALL:
            self.current, self.decision = self.designed_from or self.current, "rolled_back"
            notice = ROLLBACK_NOTICE
        baseline = StageEvidence(stage=stage - 1, validation=self.validation)
        evidence = StageEvidence(stage=stage, validation=validation, training=training)
        view = StageView(
            self.domain,
            evidence,
            self.current,
            tuple(self.history),
            stages_left=stages_left,
            notice=notice,
            trained=trained,
            designed_from=self.designed_from,
            valid_before=baseline.valid_rates(),
        )
        self.history.append(StageHistory.from_evidence(baseline, evidence, trained, self.decision))
        self.validation = validation
        return view

    def use_design(self, configuration: Configuration, decision: DecisionKind) -> None:
        """Use a configuration for the next stage."""
        self.designed_from = self.current
        self.current, self.decision = configuration, decision
