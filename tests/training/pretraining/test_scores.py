"""Reading, measured: what is written at each place against the rule's edits and their swaps."""

import numpy as np
import pytest

from training.policy.policy import make_policy, open_policy
from training.pretraining.designs import draw_swaps
from training.pretraining.schema import Designs
from training.pretraining.scores import ReadingTest
from training.schema import Model, Prompt

SETTINGS = Designs(sizes=(3, 4, 5), groups=(1, 3), count=100)
EACH = 8


@pytest.fixture(scope="module")
def pairs():
    return draw_swaps(np.random.default_rng(0), SETTINGS, EACH)


@pytest.fixture(scope="module")
def opened(pairs, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy") / "initial"
    texts = [text for pair in pairs for side in (pair.plain, pair.swapped) for text in side] * 4
    model = Model(scratch=tiny.scratch)
    make_policy(folder, model, texts, max_len=512, seed=0)
    return open_policy(folder, model, Prompt(max_tokens=48, max_steps=32), length_bucket=16)


@pytest.fixture
def reading(opened, pairs):
    return ReadingTest(opened[0], pairs)


def writes(reading: ReadingTest, monkeypatch, change) -> None:
    """Let the model write what `change` makes of the sides' true tokens, (2 N, L) each."""
    truth = np.asarray(reading._sequences.input_ids)
    monkeypatch.setattr(reading, "_written", lambda params: change(truth.copy()))


def test_who_writes_the_rule_s_answers_has_all_edits_right_and_all_flips(reading, monkeypatch):
    writes(reading, monkeypatch, lambda truth: truth)
    scores = reading.scores(None)
    assert scores.edits_right == 1.0
    assert set(scores.flips.values()) == {1.0}
    assert len(scores.flips) == 6


def test_flips_are_shares_of_the_edits_of_the_rule_that_change(reading, monkeypatch, pairs):
    writes(reading, monkeypatch, lambda truth: truth)
    expected = dict.fromkeys((pair.fact for pair in pairs), 0)
    for pair in pairs:
        words = zip(pair.plain.answer.split(), pair.swapped.answer.split(), strict=True)
        expected[pair.fact] += sum(one != other for one, other in words)
    assert reading.scores(None).turned == expected
    assert min(expected.values()) > 0


def test_who_does_not_see_the_swap_flips_nothing(reading, monkeypatch, pairs):
    count = len(pairs)
    writes(reading, monkeypatch, lambda truth: np.concatenate([truth[:count], truth[:count]]))
    scores = reading.scores(None)
    assert set(scores.flips.values()) == {0.0}
    # All edits of one side are right, and those of the other that the swap left alone.
    signs = [[side.answer.split() for side in (pair.plain, pair.swapped)] for pair in pairs]
    right = [a == b for one, other in signs for a, b in zip(one, other, strict=True) if a in "-=+"]
    assert scores.edits_right == pytest.approx((len(right) + sum(right)) / (2 * len(right)))


def test_a_flip_to_a_wrong_edit_is_a_flip_and_no_right_edit(reading, monkeypatch, opened, pairs):
    sign = {
        one: opened[0].tokenizer.encode(f" {one}", add_special_tokens=False)[0] for one in "-=+"
    }
    turned = {sign["-"]: sign["="], sign["="]: sign["+"], sign["+"]: sign["-"]}

    def change(truth):
        for row in truth:
            row[:] = [turned.get(token, token) for token in row.tolist()]
        return truth

    writes(reading, monkeypatch, change)
    scores = reading.scores(None)
    assert scores.edits_right == 0.0
    assert set(scores.flips.values()) == {1.0}


def test_what_is_written_outside_of_edits_does_not_count(reading, monkeypatch):
    edits = np.asarray(reading._edits)
    writes(reading, monkeypatch, lambda truth: np.where(edits, truth, 7))
    scores = reading.scores(None)
    assert scores.edits_right == 1.0
    assert set(scores.flips.values()) == {1.0}
    writes(reading, monkeypatch, lambda truth: np.where(edits, 7, truth))
    assert reading.scores(None)[:2] == (0.0, dict.fromkeys(scores.flips, 0.0))


def test_the_places_of_edits_are_those_of_the_answers_alone(reading, pairs):
    sides = [pair.plain for pair in pairs] + [pair.swapped for pair in pairs]
    for row, side in zip(np.asarray(reading._edits), sides, strict=True):
        assert row.sum() == sum(word in ("-", "=", "+") for word in side.answer.split())


def test_a_model_with_random_weights_neither_reads_nor_knows(reading, opened):
    scores = reading.scores(opened[1])
    assert scores.edits_right < 0.4
    # What it writes hangs on the context somehow, as a hash does.
    assert np.mean(list(scores.flips.values())) < 0.5
    assert reading.scores(opened[1]) == scores


def test_what_is_written_is_the_most_probable_token_after_each_prefix(reading, opened):
    import jax
    import jax.numpy as jnp
    from flax import nnx

    policy, params = opened
    written = reading._written(params)
    sequences = reading._sequences
    assert written.shape == sequences.input_ids.shape
    model = nnx.merge(policy.graphdef, params)
    for row in (0, len(written) - 1):
        one = jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], sequences)
        logits = model.logits(model(one.input_ids, one.positions, one.mask))
        best = np.asarray(jnp.argmax(logits, axis=-1))[0]
        length = int(one.mask.sum())
        np.testing.assert_array_equal(written[row, 1:length], best[: length - 1])
