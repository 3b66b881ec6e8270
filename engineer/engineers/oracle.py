"""A bounded oracle: try what others propose, answer with what worked best."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from engineer.attempt import Attempt, Candidate
from engineer.engineers.asking import ask
from engineer.engineers.base import Engineer, EngineerError, Proposal, Task
from engineer.evidence import Count, Finite
from engineer.ledger import Spent
from engineer.pipeline import Guard
from engineer.space import Configuration, Frozen, answer_text


class ProbeResult(Frozen):
    """What came of trying one configuration out, and what that cost."""

    score: Finite  # higher is better, such as the valid rate after a short training
    instances: Count = 0  # trained on
    rollouts: Count = 0  # answers drawn, in training and for the score


Probe = Callable[[Configuration], ProbeResult]
"""Tries a configuration out from the present weights, and leaves those as they are."""


class _Answer(NamedTuple):
    """A candidate's answer, reviewed; `configuration` is None where it is of no use."""

    engineer: str
    attempt: Attempt
    configuration: Configuration | None
    spent: Spent


@dataclass(frozen=True)
class OracleEngineer:
    """Asks its candidates in turn, probes what they propose and answers with the best.

    A candidate that fails or is rejected is passed over. Each distinct configuration is probed
    once, the first `max_probes` of them; after that nobody is asked any more, and if there is only
    one it needs no probe. Of equal scores the earlier one counts. A candidate may stand several
    times: each place has a seed of its own.

    Args:
        candidates: who is asked, in this order.
        probe: see `Probe`. What it raises is passed on.
        max_probes: the bound, at least 1.
        probe_rollouts: the most answers that one probe draws, so that a budget of them is held:
            configurations for which there is no room are not tried out.
        guard: how far a stage may go, as in the review that follows.
    """

    candidates: tuple[Engineer, ...]
    probe: Probe
    max_probes: int = 4
    probe_rollouts: int = 0
    guard: Guard | None = None
    name: str = "oracle"

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ValueError("candidates: got none, at least one is needed")
        if self.max_probes < 1:
            raise ValueError(f"max_probes must be at least 1, got {self.max_probes}")

    def propose(self, task: Task) -> Proposal:
        """Branch, probe, choose.

        Tokens are those of all candidates as far as they are known; what candidates spent on probes
        of their own counts too. What each candidate was shown and said, and how it scored, is in
        the proposal's, or the error's, `candidates`.

        Raises:
            EngineerError: if no candidate has a usable answer.
        """
        start = time.perf_counter()
        asked = [*self._asked(task)]
        found = {_key(one.configuration): one.configuration for one in asked if one.configuration}
        spent = sum((one.spent for one in asked), Spent())
        if not found:
            problems = "; ".join(f"{one.engineer}: {one.attempt.reason}" for one in asked)
            raise EngineerError(
                f"{self.name}: no candidate was usable: {problems}", spent, _records(asked, {})
            )
        results: dict[str, ProbeResult] = {}
        for key, configuration in found.items() if len(found) > 1 else ():
            left = task.budget.left(spent).probe_rollouts
            if left is not None and left < self.probe_rollouts:
                break
            results[key] = result = self.probe(configuration)
            spent = spent + Spent(probe_instances=result.instances, probe_rollouts=result.rollouts)
        best = max(results, key=lambda key: results[key].score, default=next(iter(found)))
        known = spent.engineer_tokens > 0 or any(one.attempt.tokens == 0 for one in asked)
        return Proposal(
            answer_text(found[best]),
            time.perf_counter() - start,
            spent.engineer_tokens if known else None,
            probe_rollouts=spent.probe_rollouts,
            probe_instances=spent.probe_instances,
            candidates=_records(asked, results),
        )

    def _asked(self, task: Task) -> Iterator[_Answer]:
        """The candidates' answers, until there are as many configurations as may be probed."""
        found: set[str] = set()
        spent = Spent()
        for place, candidate in enumerate(self.candidates):
            if len(found) == self.max_probes or task.budget.exhausted(spent):
                return
            asked = ask(
                candidate,
                replace(
                    task,
                    seed=_seed(task.seed, place),
                    first_seed=_seed(task.first_seed, place),
                    budget=task.budget.left(spent),
                ),
                self.guard,
            )
            spent = spent + asked.spent
            configuration = asked.decision.configuration if asked.decision else None
            found |= {_key(configuration)} if configuration else set()
            yield _Answer(candidate.name, asked.attempt, configuration, asked.spent)


def _records(asked: Sequence[_Answer], results: Mapping[str, ProbeResult]) -> tuple[Candidate, ...]:
    scores = {key: result.score for key, result in results.items()}
    return tuple(
        Candidate(
            **dict(one.attempt),
            engineer=one.engineer,
            score=scores.get(_key(one.configuration)) if one.configuration else None,
        )
        for one in asked
    )


def _key(configuration: Configuration) -> str:
    return configuration.model_dump_json()


def _seed(seed: int, place: int) -> int:
    state = np.random.SeedSequence([seed, place]).generate_state(1, np.uint64)
    return int(state[0]) >> 1  # below 2**63, as the task's own
