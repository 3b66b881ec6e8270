"""A bounded oracle: try what others propose, answer with what worked best."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from engineer.engineers.base import Engineer, EngineerError, Proposal, Task
from engineer.evidence import Count, Finite
from engineer.ledger import Spent
from engineer.pipeline import Guard, review
from engineer.space import Configuration, Frozen, answer_text


class ProbeResult(Frozen):
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
    once, the first `max_probes` of them; after that nobody is asked any more, and if there is only
    one it needs no probe. Of equal scores the earlier one counts. A candidate may stand several
    times: each place has a seed of its own.

    Args:
        candidates: who is asked, in this order.
        probe: see `Probe`. What it raises is passed on.
        max_probes: the bound, at least 1.
        guard: how far a stage may go, as in the review that follows.
    """

    candidates: tuple[Engineer, ...]
    probe: Probe
    max_probes: int = 4
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
        of their own counts too.

        Raises:
            EngineerError: if no candidate has a usable answer.
        """
        start = time.perf_counter()
        found: list[Configuration] = []
        answers: list[Proposal] = []
        lost = Spent()  # on candidates that failed
        problems: list[str] = []
        for place, candidate in enumerate(self.candidates):
            if len(found) == self.max_probes:
                break
            try:
                answers.append(candidate.propose(replace(task, seed=_seed(task.seed, place))))
            except EngineerError as error:
                problems.append(f"{candidate.name}: {error}")
                lost = lost + error.spent
                continue
            decision = review(answers[-1].text, task.view.current, task.view.domain, self.guard)
            if decision.configuration is None:
                problems.append(f"{candidate.name}: {decision.reason}")
            elif decision.configuration not in found:
                found.append(decision.configuration)
        if not found:
            raise EngineerError(
                f"{self.name}: no candidate was usable: {'; '.join(problems)}",
                sum((_cost(answer) for answer in answers), lost),
            )
        results = [self.probe(configuration) for configuration in found] if found[1:] else []
        best = max(range(len(results)), key=lambda i: (results[i].score, -i), default=0)
        spent = sum((_cost(answer) for answer in answers), lost)
        known = spent.engineer_tokens > 0 or any(answer.tokens == 0 for answer in answers)
        return Proposal(
            answer_text(found[best]),
            time.perf_counter() - start,
            spent.engineer_tokens if known else None,
            probe_rollouts=spent.probe_rollouts + sum(result.rollouts for result in results),
            probe_instances=spent.probe_instances + sum(result.instances for result in results),
        )


def _cost(answer: Proposal) -> Spent:
    return Spent(
        engineer_tokens=answer.tokens or 0,
        probe_rollouts=answer.probe_rollouts,
        probe_instances=answer.probe_instances,
    )


def _seed(seed: int, place: int) -> int:
    state = np.random.SeedSequence([seed, place]).generate_state(1, np.uint64)
    return int(state[0]) >> 1  # below 2**63, as the task's own
