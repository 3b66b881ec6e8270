"""From the text of answers to what the verifier says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from jaxlake import Action, Outcome, verify
from jaxlake.answers import Answer, parse_answer
from training.rollout.instances import InstanceSet
from training.schema import Prompt

_BATCH = 256
_verify = jax.jit(jax.vmap(verify))


@dataclass(frozen=True)
class Verdict:
    """What became of B answers."""

    answers: list[Answer]  # how each was read
    outcomes: Outcome  # what the verifier says of the plan in each, NumPy leaves (B, ...)


def judge(boards: InstanceSet, texts: Sequence[str], prompt: Prompt) -> Verdict:
    """Parse B answers, one per board, and verify their plans in batches on the device."""
    num_agents = boards.instances.agent_mask.shape[-1]
    answers = [parse_answer(text, num_agents, max_steps=prompt.max_steps) for text in texts]
    plans = np.full((len(texts), prompt.max_steps, num_agents), Action.WAIT, np.int8)
    lengths = np.zeros(len(texts), np.int32)
    for row, answer in enumerate(answers):
        for agent, actions in enumerate(answer.plan or ()):
            plans[row, : len(actions), agent] = actions
            lengths[row] = max(lengths[row], len(actions))
    parsed = np.array([answer.parsed for answer in answers])
    everything = (boards.instances, plans, lengths, parsed, boards.solutions)
    outcomes = []
    for start in range(0, len(texts), _BATCH):
        # The last batch repeats its last row, so that all batches have one shape.
        rows = np.minimum(np.arange(start, start + _BATCH), len(texts) - 1)
        batch = jax.tree.map(lambda leaf: leaf[rows], everything)  # noqa: B023
        outcomes.append(jax.device_get(_verify(*batch)))
    merged = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(texts)], *outcomes)
    return Verdict(answers, merged)
