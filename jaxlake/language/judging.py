"""Parsing of answers and verification of their plans, in batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from jaxlake.board.dynamics import Action
from jaxlake.board.instance import Instance
from jaxlake.board.verification import Outcome, verify
from jaxlake.language.answers import Answer, parse_answer
from jaxlake.solver import Solution

BATCH_SIZE = 256
"""Answers per call of the verifier, so that a single compiled program serves any number."""

verify_batch = jax.jit(jax.vmap(verify))


@dataclass(frozen=True)
class Verdict:
    """The parsed plans of B answers and their verification."""

    answers: list[Answer]  # the parsed answers
    outcomes: Outcome  # the verification of their plans, NumPy leaves (B, ...)


def judge_texts(
    texts: Sequence[str], instances: Instance, solutions: Solution, *, max_steps: int
) -> Verdict:
    """Parse B answers, one per board, and verify their plans in batches on the device.

    Args:
        texts: The complete answers, at least one; see `parse_answer`.
        instances: The boards, NumPy leaves (B, ...), with agents in the first slots.
        solutions: Their optima, NumPy leaves (B, ...); see `verify` for unknown optima.
        max_steps: Maximum number of actions per agent; answers with longer plans are not parsed.

    Returns:
        The `Verdict`.
    """
    num_agents = np.sum(instances.agent_mask, axis=-1).tolist()
    answers = [
        parse_answer(text, agents, max_steps=max_steps)
        for text, agents in zip(texts, num_agents, strict=True)
    ]
    return Verdict(answers, judge_answers(answers, instances, solutions, max_steps=max_steps))


def judge_answers(
    answers: Sequence[Answer], instances: Instance, solutions: Solution, *, max_steps: int
) -> Outcome:
    """Verify the plans of B parsed answers in batches on the device.

    Args:
        answers: The parsed answers, at least one.
        instances: See `judge_texts`.
        solutions: See `judge_texts`.
        max_steps: See `judge_texts`.

    Returns:
        The outcomes, NumPy leaves (B, ...).
    """
    num_answers, num_slots = np.shape(instances.agent_mask)
    plans = np.full((num_answers, max_steps, num_slots), Action.WAIT, np.int8)
    lengths = np.zeros(num_answers, np.int32)
    for row, answer in enumerate(answers):
        for agent, actions in enumerate(answer.plan or ()):
            plans[row, : len(actions), agent] = actions
            lengths[row] = max(lengths[row], len(actions))
    is_parsed = np.array([answer.parsed for answer in answers])
    arguments = (instances, plans, lengths, is_parsed, solutions)
    outcomes = []
    for start in range(0, num_answers, BATCH_SIZE):
        # The last batch repeats its last row, so that all batches have the same shape.
        rows = np.minimum(np.arange(start, start + BATCH_SIZE), num_answers - 1)
        batch = jax.tree.map(lambda leaf: leaf[rows], arguments)  # noqa: B023
        outcomes.append(jax.device_get(verify_batch(*batch)))
    result: Outcome = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num_answers], *outcomes)
    return result
