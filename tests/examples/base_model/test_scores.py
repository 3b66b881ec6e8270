"""The reading score: written edits against the rule's edits and their swaps."""

import numpy as np
import pytest

from examples.base_model.designs import draw_swaps
from examples.base_model.recipe import Designs
from examples.base_model.scores import EvidenceTest
from training.policy.policy import load_policy, write_random_policy
from training.schema import ModelConfig, PromptConfig

SETTINGS = Designs(sizes=(3, 4, 5), groups=(1, 3), count=100)
PAIRS_PER_FACT = 8


@pytest.fixture(scope="module")
def pairs():
    return draw_swaps(np.random.default_rng(0), SETTINGS, PAIRS_PER_FACT)


@pytest.fixture(scope="module")
def policy_and_params(pairs, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy") / "initial"
    texts = [text for pair in pairs for side in (pair.plain, pair.swapped) for text in side] * 4
    model = ModelConfig(scratch=recipe.scratch)
    write_random_policy(folder, model, texts, max_len=512, seed=0)
    return load_policy(folder, model, PromptConfig(max_tokens=48, max_steps=32), length_bucket=16)


@pytest.fixture
def evidence_test(policy_and_params, pairs):
    return EvidenceTest(policy_and_params[0], pairs)


def replace_predictions(evidence_test: EvidenceTest, monkeypatch, transform) -> None:
    """Replace the model's predictions by `transform` of the true tokens, (2 N, L)."""
    true_tokens = np.asarray(evidence_test._sequences.input_ids)
    monkeypatch.setattr(
        evidence_test, "_predict_tokens", lambda params: transform(true_tokens.copy())
    )


def test_rule_has_full_agreement_and_flips(evidence_test, monkeypatch):
    replace_predictions(evidence_test, monkeypatch, lambda tokens: tokens)
    edit_accuracy, flip_rates = evidence_test.compute_scores(None)
    assert edit_accuracy == 1.0
    assert set(flip_rates.values()) == {1.0}
    assert len(flip_rates) == 6


def test_blind_reader_flips_no_edit(evidence_test, monkeypatch, pairs):
    num_pairs = len(pairs)
    replace_predictions(
        evidence_test,
        monkeypatch,
        lambda tokens: np.concatenate([tokens[:num_pairs], tokens[:num_pairs]]),
    )
    edit_accuracy, flip_rates = evidence_test.compute_scores(None)
    assert set(flip_rates.values()) == {0.0}
    # Correct are all edits of the plain side, and those of the swapped side that are unchanged.
    signs = [[side.answer.split() for side in (pair.plain, pair.swapped)] for pair in pairs]
    matches = [
        a == b
        for plain_signs, swapped_signs in signs
        for a, b in zip(plain_signs, swapped_signs, strict=True)
        if a in "-=+"
    ]
    assert edit_accuracy == pytest.approx((len(matches) + sum(matches)) / (2 * len(matches)))


def test_wrong_flip_counts_as_flip_but_not_as_correct(
    evidence_test, monkeypatch, policy_and_params
):
    encode = policy_and_params[0].tokenizer.encode
    minus, equal, plus = (encode(f" {sign}", add_special_tokens=False)[0] for sign in "-=+")
    wrong_ids = {minus: equal, equal: plus, plus: minus}

    def replace_signs(tokens):
        for row in tokens:
            row[:] = [wrong_ids.get(token, token) for token in row.tolist()]
        return tokens

    replace_predictions(evidence_test, monkeypatch, replace_signs)
    edit_accuracy, flip_rates = evidence_test.compute_scores(None)
    assert edit_accuracy == 0.0
    assert set(flip_rates.values()) == {1.0}


def test_greedy_decoding_takes_most_probable_token(evidence_test, policy_and_params):
    import jax
    import jax.numpy as jnp
    from flax import nnx

    policy, params = policy_and_params
    predicted_tokens = evidence_test._predict_tokens(params)
    sequences = evidence_test._sequences
    assert predicted_tokens.shape == sequences.input_ids.shape
    model = nnx.merge(policy.graphdef, params)
    for row in (0, len(predicted_tokens) - 1):
        sequence = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], sequences)
        logits = model.logits(model(sequence.input_ids, sequence.positions, sequence.mask))
        best_tokens = np.asarray(jnp.argmax(logits, axis=-1))[0]
        length = int(sequence.mask.sum())
        np.testing.assert_array_equal(predicted_tokens[row, 1:length], best_tokens[: length - 1])
