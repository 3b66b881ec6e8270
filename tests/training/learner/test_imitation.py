"""Imitation batches: shares per kind, one length per batch, and reproducibility."""

import numpy as np
import pytest

from training.learner.imitation import LENGTH_STEP, ExamplePool

PAD = 0


def make_examples(rng: np.random.Generator, num_examples: int, first_token: int):
    """Pairs of token ids; the first token tells each one apart."""
    rows = []
    for index in range(num_examples):
        prompt = [first_token + index, *rng.integers(10, 99, int(rng.integers(1, 60))).tolist()]
        rows.append((prompt, rng.integers(10, 99, int(rng.integers(1, 30))).tolist()))
    return rows


def make_pool(num_plans: int = 50, num_designs: int = 20):
    rng = np.random.default_rng(0)
    plans, designs = make_examples(rng, num_plans, 1000), make_examples(rng, num_designs, 5000)
    return ExamplePool(plans, designs, pad_id=PAD), [*plans, *designs]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_mixed_batches_respect_shares_over_time(share):
    pool, examples = make_pool()
    rng = np.random.default_rng(1)
    counts_by_token: dict[int, int] = {}
    num_designs = num_examples = 0
    for _ in range(1500):
        batch = pool.draw(rng, 16, share)
        num_designs += int(batch.is_design.sum())
        num_examples += 16
        for token in np.asarray(batch.sequences.input_ids)[:, 0].tolist():
            counts_by_token[token] = counts_by_token.get(token, 0) + 1
    assert num_designs / num_examples == pytest.approx(share, abs=0.04)
    first_tokens = {prompt[0] for prompt, _ in examples}
    assert set(counts_by_token) <= first_tokens
    assert len(counts_by_token) == {0.0: 50, 1.0: 20}.get(share, len(first_tokens))
    for token, count in counts_by_token.items():
        expected = num_examples * (share / 20 if token >= 5000 else (1 - share) / 50)
        assert 0.5 * expected < count < 1.6 * expected


def test_batch_has_one_length_and_a_loss_mask():
    pool, examples = make_pool()
    examples_by_token = {prompt[0]: (prompt, answer) for prompt, answer in examples}
    rng = np.random.default_rng(2)
    lengths = set()
    for _ in range(60):
        batch = pool.draw(rng, 8, 0.5)
        ids = np.asarray(batch.sequences.input_ids)
        assert ids.shape[0] == 8
        assert ids.shape[1] % LENGTH_STEP == 0
        lengths.add(ids.shape[1])
        for row, mask, targets, is_design in zip(
            ids,
            np.asarray(batch.sequences.mask),
            np.asarray(batch.sequences.is_target),
            batch.is_design,
            strict=True,
        ):
            prompt, answer = examples_by_token[row[0]]
            sequence = [*prompt, *answer]
            assert row[: len(sequence)].tolist() == sequence
            assert (row[len(sequence) :] == PAD).all()
            assert len(sequence) > len(row) - LENGTH_STEP
            assert row[targets].tolist() == answer
            assert mask.sum() == len(sequence)
            assert is_design == (row[0] >= 5000)
    assert len(lengths) > 3
