"""From the texts of answers to what the verifier says of the plans in them."""

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
"""This many answers are verified at a time, so that one program serves any number of them."""

verify_batch = jax.jit(jax.vmap(verify))


@dataclass(frozen=True)
class Verdict:
    """What became of B answers."""

    answers: list[Answer]  # how each was read
    outcomes: Outcome  # what the verifier says of the plan in each, NumPy leaves (B, ...)


def judge_texts(
    texts: Sequence[str], instances: Instance, solutions: Solution, *, max_steps: int
) -> Verdict:
    """Read B answers, one per board, and verify their plans in batches on the device.

    Args:
        texts: The whole answers, at least one; see `parse_answer` for what counts as a plan.
        instances: The boards, NumPy leaves (B, ...), with agents in the first slots.
        solutions: Their optima, NumPy leaves (B, ...); see `verify` for what an unknown one means.
        max_steps: The longest plan of an agent, steps; an answer with a longer one isn't parsed.
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
    """Verify the plans of B answers in batches on the device; NumPy leaves (B, ...).

    Arguments are those of `judge_texts`, for answers that have been read.
    """
    count, slots = np.shape(instances.agent_mask)
    plans = np.full((count, max_steps, slots), Action.WAIT, np.int8)
    lengths = np.zeros(count, np.int32)
    for row, answer in enumerate(answers):
        for agent, actions in enumerate(answer.plan or ()):
            plans[row, : len(actions), agent] = actions
            lengths[row] = max(lengths[row], len(actions))
    parsed = np.array([answer.parsed for answer in answers])
    everything = (instances, plans, lengths, parsed, solutions)
    outcomes = []
    for start in range(0, count, BATCH_SIZE):
        # The last batch repeats its last row, so that all batches have one shape.
        rows = np.minimum(np.arange(start, start + BATCH_SIZE), count - 1)
        batch = jax.tree.map(lambda leaf: leaf[rows], everything)  # noqa: B023
        outcomes.append(jax.device_get(verify_batch(*batch)))
    merged: Outcome = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *outcomes)
    return merged
