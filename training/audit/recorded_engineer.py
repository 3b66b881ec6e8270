"""The engineer of a finished stage, played back: it says again what the records say it said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engineer import Attempt, Engineer, EngineerError, Guard, OracleEngineer, Proposal, Spent, Task
from engineer.engineers.catalogue import SHUFFLED
from engineer.engineers.controls import ShuffledEngineer
from engineer.engineers.oracle import ProbeResult
from engineer.space import Configuration
from training.errors import UserError
from training.phases.probe import rollouts_per_probe
from training.run.records import AttemptRecord, ProbeRecord
from training.schema import ORACLE, RunConfig


def recorded_engineer(
    config: RunConfig, answers: Sequence[AttemptRecord], probes: Iterator[ProbeRecord], guard: Guard
) -> Engineer:
    """Make an engineer whose answers, with the time and the tokens they took, are those recorded.

    A shuffled engineer's evidence is shuffled again. An oracle chooses again among what its
    candidates said, by what its probes came to; it takes as many of these, in order, as it needs.
    """
    choice = config.engineer
    if choice.kind != ORACLE:
        return _recorded(choice.kind, choice.kind, answers)
    candidates = []
    for place, kind in enumerate(choice.oracle.candidates):
        said = [one.candidates[place] for one in answers if place < len(one.candidates)]
        candidates.append(_recorded(kind, said[0].engineer if said else kind, said))

    def probe(configuration: Configuration) -> ProbeResult:
        tried = next(probes, None)
        if tried is None or tried.configuration != configuration:
            raise UserError(f"no probe is recorded of {configuration.model_dump_json()}")
        score = tried.valid / tried.count
        return ProbeResult(score=score, instances=tried.instances, rollouts=tried.rollouts)

    most = rollouts_per_probe(config)
    return OracleEngineer(tuple(candidates), probe, choice.oracle.max_probes, most, guard)


def _recorded(kind: str, name: str, said: Sequence[Attempt]) -> Engineer:
    engineer = _RecordedEngineer(name.removeprefix(SHUFFLED), iter(said))
    return ShuffledEngineer(engineer) if kind.startswith(SHUFFLED) else engineer


@dataclass(frozen=True)
class _RecordedEngineer:
    """Says what was said, one answer after the other."""

    name: str
    said: Iterator[Attempt]

    def propose(self, task: Task) -> Proposal:
        """Give the next answer, or fail, as it was; a `UserError` if none is recorded."""
        said = next(self.said, None)
        if said is None:
            raise UserError(f"attempt {task.attempt}: no answer of {self.name} is recorded")
        if said.text is None:
            spent = Spent(engineer_tokens=said.tokens or 0, seconds=said.seconds)
            raise EngineerError(said.reason, spent)
        return Proposal(said.text, said.seconds, said.tokens)
