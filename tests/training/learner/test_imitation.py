"""Imitation batches: shares per kind, one length per batch, and reproducibility."""

import numpy as np
import pytest

from training.learner.imitation import LENGTH_STEP, ExamplePool

PAD = 0


def examples(rng: np.random.Generator, count: int, first: int, longest: int = 60):
    """Pairs of token ids; the first token tells each one apart."""
    rows = []
    for number in range(count):
        prompt = [first + number, *rng.integers(10, 99, int(rng.integers(1, longest))).tolist()]
        rows.append((prompt, rng.integers(10, 99, int(rng.integers(1, 30))).tolist()))
    return rows


def pool(plans: int = 50, designs: int = 20):
    rng = np.random.default_rng(0)
    sides = examples(rng, plans, 1000), examples(rng, designs, 5000)
    return ExamplePool(*sides, pad_id=PAD), [*sides[0], *sides[1]]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_mixed_batches_respect_shares_over_time(share):
    mixture, examples_by_kind = pool()
    rng = np.random.default_rng(1)
    counts: dict[int, int] = {}
    designs = total = 0
    for _ in range(1500):
        batch = mixture.draw(rng, 16, share)
        designs += int(batch.is_design.sum())
        total += 16
        for first in np.asarray(batch.sequences.input_ids)[:, 0].tolist():
            counts[first] = counts.get(first, 0) + 1
    assert designs / total == pytest.approx(share, abs=0.04)
    allowed = {prompt[0] for prompt, _ in examples_by_kind}
    assert set(counts) <= allowed
    assert len(counts) == {0.0: 50, 1.0: 20}.get(share, len(allowed))
    for first, count in counts.items():
        expected = total * (share / 20 if first >= 5000 else (1 - share) / 50)
        assert 0.5 * expected < count < 1.6 * expected


def test_batch_has_one_length_and_a_loss_mask():
    mixture, examples_by_kind = pool()
    by_first = {prompt[0]: (prompt, answer) for prompt, answer in examples_by_kind}
    rng = np.random.default_rng(2)
    lengths = set()
    for _ in range(60):
        batch = mixture.draw(rng, 8, 0.5)
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
            prompt, answer = by_first[row[0]]
            sequence = [*prompt, *answer]
            assert row[: len(sequence)].tolist() == sequence
            assert (row[len(sequence) :] == PAD).all()
            assert len(sequence) > len(row) - LENGTH_STEP
            assert row[targets].tolist() == answer
            assert mask.sum() == len(sequence)
            assert is_design == (row[0] >= 5000)
    assert len(lengths) > 3
