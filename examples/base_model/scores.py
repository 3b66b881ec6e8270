"""Scores of imitated designs: correct edits, and edits that follow a swapped fact.

The scores use teacher forcing: each edit is the most probable one after the rule's earlier edits.
One forward pass suffices, so they are cheap enough to decide when pretraining ends.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engineer.edits import SIGNS
from examples.base_model.designs import SwapPair
from training.learner.batching import Sequences, pad_sequences
from training.learner.imitation import LENGTH_STEP
from training.policy.decoder import Decoder
from training.policy.policy import Policy


class EvidenceTest:
    """Tests on held-out pairs of contexts whether designs depend on the evidence."""

    def __init__(self, policy: Policy, pairs: Sequence[SwapPair]) -> None:
        self._policy = policy
        self._facts = [pair.fact for pair in pairs]
        sides = [[pair.plain for pair in pairs], [pair.swapped for pair in pairs]]
        token_pairs = [
            (policy.encode_prompt(example.context), policy.encode_answer(example.answer))
            for side in sides
            for example in side
        ]
        prompts, answers = zip(*token_pairs, strict=True)
        self._sequences = pad_sequences(prompts, answers, bucket=LENGTH_STEP, pad_id=policy.pad_id)
        signs = [policy.tokenizer.encode(f" {sign}", add_special_tokens=False) for sign in SIGNS]
        if any(len(tokens) != 1 for tokens in signs):
            raise ValueError("the tokenizer splits the signs of edits")
        self._signs = np.array([tokens[0] for tokens in signs])
        self._edits = self._sequences.is_target & np.isin(self._sequences.input_ids, self._signs)

    def compute_scores(self, params: Any) -> tuple[float, dict[str, float]]:
        """Return the share of edits that equal the rule's, and the share of flips by fact.

        Only edits that the rule changes with the swapped fact count for flips. Such an edit flips
        if the model changes it too.
        """
        tokens = self._predict_tokens(params)
        labels = np.asarray(self._sequences.input_ids)
        edit_accuracy = (tokens == labels)[self._edits].mean()
        num_pairs = len(self._facts)
        changes: dict[str, list[np.ndarray]] = defaultdict(list)
        for row, fact in enumerate(self._facts):
            mask_1, mask_2 = self._edits[row], self._edits[row + num_pairs]
            rule_changes = labels[row][mask_1] != labels[row + num_pairs][mask_2]
            plain_tokens, swapped_tokens = tokens[row][mask_1], tokens[row + num_pairs][mask_2]
            are_signs = np.isin(plain_tokens, self._signs) & np.isin(swapped_tokens, self._signs)
            model_changes = are_signs & (plain_tokens != swapped_tokens)
            changes[fact].append(model_changes[rule_changes])
        flip_rates = {
            fact: float(np.concatenate(shares).mean()) for fact, shares in changes.items()
        }
        return float(edit_accuracy), flip_rates

    def _predict_tokens(self, params: Any) -> np.ndarray:
        """Return the most probable token at each position, int (B, L)."""
        return np.asarray(_argmax_tokens(params, self._sequences, self._policy.graphdef))


@functools.partial(jax.jit, static_argnames="graphdef")
def _argmax_tokens(params: Any, sequences: Sequences, graphdef: nnx.GraphDef) -> jax.Array:
    model: Decoder = nnx.merge(graphdef, params)
    hidden = model(sequences.input_ids, sequences.positions, sequences.mask)
    tokens = jnp.argmax(model.logits(hidden[:, :-1]), axis=-1)
    return jnp.pad(tokens, ((0, 0), (1, 0))).astype(jnp.int32)
