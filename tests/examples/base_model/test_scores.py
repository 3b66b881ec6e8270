"""The reading score: written edits against the rule's edits and their swaps."""

import numpy as np
import pytest

from examples.base_model.designs import draw_swaps
from examples.base_model.recipe import Designs
from examples.base_model.scores import ReadingTest
from training.policy.policy import load_policy, write_random_policy
from training.schema import ModelConfig, PromptConfig

SETTINGS = Designs(sizes=(3, 4, 5), groups=(1, 3), count=100)
PAIRS_PER_FACT = 8


@pytest.fixture(scope="module")
def pairs():
    return draw_swaps(np.random.default_rng(0), SETTINGS, PAIRS_PER_FACT)


@pytest.fixture(scope="module")
def opened(pairs, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy") / "initial"
    texts = [text for pair in pairs for side in (pair.plain, pair.swapped) for text in side] * 4
    model = ModelConfig(scratch=tiny.scratch)
    write_random_policy(folder, model, texts, max_len=512, seed=0)
    return load_policy(folder, model, PromptConfig(max_tokens=48, max_steps=32), length_bucket=16)


@pytest.fixture
def reading(opened, pairs):
    return ReadingTest(opened[0], pairs)


def replace_predictions(reading: ReadingTest, monkeypatch, change) -> None:
    """Replace the model's predictions by `change` of the true tokens, (2 N, L)."""
    truth = np.asarray(reading._sequences.input_ids)
    monkeypatch.setattr(reading, "_predict_tokens", lambda params: change(truth.copy()))


def test_rule_has_full_agreement_and_flips(reading, monkeypatch):
    replace_predictions(reading, monkeypatch, lambda truth: truth)
    edits_right, flips = reading.scores(None)
    assert edits_right == 1.0
    assert set(flips.values()) == {1.0}
    assert len(flips) == 6


def test_blind_reader_flips_no_edit(reading, monkeypatch, pairs):
    count = len(pairs)
    replace_predictions(
        reading, monkeypatch, lambda truth: np.concatenate([truth[:count], truth[:count]])
    )
    edits_right, flips = reading.scores(None)
    assert set(flips.values()) == {0.0}
    # Correct are all edits of the plain side, and those of the swapped side that are unchanged.
    signs = [[side.answer.split() for side in (pair.plain, pair.swapped)] for pair in pairs]
    right = [
        a == b
        for plain, swapped in signs
        for a, b in zip(plain, swapped, strict=True)
        if a in "-=+"
    ]
    assert edits_right == pytest.approx((len(right) + sum(right)) / (2 * len(right)))


def test_wrong_flip_counts_as_flip_but_not_as_correct(reading, monkeypatch, opened, pairs):
    sign = {
        text: opened[0].tokenizer.encode(f" {text}", add_special_tokens=False)[0] for text in "-=+"
    }
    wrong_sign = {sign["-"]: sign["="], sign["="]: sign["+"], sign["+"]: sign["-"]}

    def change(truth):
        for row in truth:
            row[:] = [wrong_sign.get(token, token) for token in row.tolist()]
        return truth

    replace_predictions(reading, monkeypatch, change)
    edits_right, flips = reading.scores(None)
    assert edits_right == 0.0
    assert set(flips.values()) == {1.0}


def test_greedy_decoding_takes_most_probable_token(reading, opened):
    import jax
    import jax.numpy as jnp
    from flax import nnx

    policy, params = opened
    predicted = reading._predict_tokens(params)
    sequences = reading._sequences
    assert predicted.shape == sequences.input_ids.shape
    model = nnx.merge(policy.graphdef, params)
    for row in (0, len(predicted) - 1):
        sequence = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], sequences)
        logits = model.logits(model(sequence.input_ids, sequence.positions, sequence.mask))
        best = np.asarray(jnp.argmax(logits, axis=-1))[0]
        length = int(sequence.mask.sum())
        np.testing.assert_array_equal(predicted[row, 1:length], best[: length - 1])
