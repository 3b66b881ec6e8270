"""A bounded oracle: it tries out what other engineers propose and answers with what worked best."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engineer.attempt import Candidate
from engineer.budget import Spent
from engineer.engineers.asking import Reply, ask_engineer
from engineer.engineers.base import Engineer, EngineerError, Proposal, Task
from engineer.evidence import Count, Finite
from engineer.review import Guard
from engineer.space import Configuration, FrozenModel, answer_text


class ProbeResult(FrozenModel):
    """What came of trying one configuration out, and what that cost."""

    score: Finite  # higher is better, such as the valid rate after a short training
    instances: Count = 0  # trained on
    rollouts: Count = 0  # answers drawn, in training and for the score


Probe = Callable[[Configuration], ProbeResult]
"""Tries a configuration out from the present weights, and leaves those as they are."""


@dataclass(frozen=True)
class OracleEngineer:
    """Asks its candidates in turn, probes what they propose and answers with the best.

    A candidate that fails or is rejected is passed over. Each distinct configuration is probed
    once, until there are `max_probes`; then no candidate is asked any more. A single configuration
    needs no probe. Of equal scores the earlier one counts. A candidate may stand several times:
    each place has a seed of its own.
    """

    candidates: tuple[Engineer, ...]
    probe: Probe  # what it raises is passed on
    max_probes: int = 4  # at least 1
    probe_rollouts: int = 0  # the most answers of one probe; none for which the budget has no room
    guard: Guard | None = None  # how far a stage may go, as in the review that follows
    name: str = "oracle"

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ValueError("candidates: got none, at least one is needed")
        if self.max_probes < 1:
            raise ValueError(f"max_probes must be at least 1, got {self.max_probes}")

    def propose(self, task: Task) -> Proposal:
        """Ask the candidates, probe their configurations and choose the best.

        What all candidates spent counts, as far as it is known. What each of them read and
        answered, and how it scored, is in the `candidates` of the proposal, or of the
        `EngineerError` if none has a usable answer.
        """
        start = time.perf_counter()
        replies: list[tuple[str, Reply]] = []
        found: dict[str, Configuration] = {}
        spent = Spent()
        for place, candidate in enumerate(self.candidates):
            if len(found) == self.max_probes or task.budget.exhausted(spent):
                break
            own_task = replace(
                task,
                seed=_seed(task.seed, place),
                first_seed=_seed(task.first_seed, place),
                budget=task.budget.left(spent),
            )
            reply = ask_engineer(candidate, own_task, self.guard)
            replies.append((candidate.name, reply))
            spent = spent + reply.spent
            if reply.configuration:
                found[answer_text(reply.configuration)] = reply.configuration
        if not found:
            problems = "; ".join(f"{name}: {reply.attempt.reason}" for name, reply in replies)
            raise EngineerError(
                f"{self.name}: no candidate was usable: {problems}", spent, _records(replies, {})
            )
        scores: dict[str, float] = {}
        for text, configuration in found.items() if len(found) > 1 else ():
            left = task.budget.left(spent).probe_rollouts
            if left is not None and left < self.probe_rollouts:
                break
            result = self.probe(configuration)
            scores[text] = result.score
            spent = spent + Spent(probe_instances=result.instances, probe_rollouts=result.rollouts)
        best = max(scores, key=scores.__getitem__, default=next(iter(found)))
        known = spent.engineer_tokens > 0 or any(reply.attempt.tokens == 0 for _, reply in replies)
        return Proposal(
            best,
            time.perf_counter() - start,
            spent.engineer_tokens if known else None,
            probe_rollouts=spent.probe_rollouts,
            probe_instances=spent.probe_instances,
            candidates=_records(replies, scores),
        )


def _records(
    replies: Sequence[tuple[str, Reply]], scores: Mapping[str, float]
) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            **dict(reply.attempt),
            engineer=name,
            score=scores.get(answer_text(new)) if (new := reply.configuration) else None,
        )
        for name, reply in replies
    )


def _seed(seed: int, place: int) -> int:
    state = np.random.SeedSequence([seed, place]).generate_state(1, np.uint64)
    return int(state[0]) >> 1  # below 2**63, as the task's own
