"""The JAX sampler has the trainer's probabilities and documented dependencies."""

import json
import re
from dataclasses import replace
from typing import Any

import jax
import jsonschema
import numpy as np
import pytest

from tests.paths import TINY
from tests.training.sampling.untrained import add_noise
from training.learner import grpo
from training.learner.batching import pad_sequences
from training.policy.policy import Policy, load_run_policy, write_random_policy
from training.sampling.jax_sampler import JaxSampler
from training.sampling.sampler import PromptTooLongError, SamplingRequest, check_agreement
from training.schema import SamplingConfig, load
from training.weight_transfer.checksums import SyncError

PROMPTS = [[5, 6, 7, 8, 9, 10], [11, 12, 13], list(range(20, 60)), [7]]
PATTERN = r"n3 [-+=] [-+=]\nn4 [-+=] [-+=]"
SCHEMA = {
    "type": "object",
    "properties": {"holes": {"enum": [0, 5, 10]}, "waits": {"type": "boolean"}},
    "required": ["holes", "waits"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Any]:
    folder = tmp_path_factory.mktemp("jax_sampler") / "policy"
    texts = ["n3 + - =\n", json.dumps(SCHEMA)]
    write_random_policy(folder, load(TINY).model, texts, max_len=512, seed=3)
    return load_run_policy(folder, load(TINY))


@pytest.fixture(scope="module")
def sampler(model: tuple[Policy, Any]) -> JaxSampler:
    return JaxSampler(*model, SamplingConfig(engine="jax", max_model_len=128, max_num_seqs=8))


def _sample(sampler: JaxSampler, prompts: Any = PROMPTS, **changes: Any) -> list:
    request = SamplingRequest(
        prompts, 4, temperature=1.0, max_tokens=12, stop_token_ids=[2], seed=2**40
    )
    return sampler.sample(replace(request, **changes))


def _token_ids(groups: list) -> list:
    return [[completion.token_ids for completion in group] for group in groups]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_exact(temperature: float, sampler: JaxSampler, model: tuple[Policy, Any]):
    policy, params = model
    for prompt, group in zip(PROMPTS, _sample(sampler, temperature=temperature), strict=True):
        answers = [completion.token_ids for completion in group]
        rows = pad_sequences([prompt] * len(group), answers, bucket=32, pad_id=0)
        scores = grpo.logprobs(params, rows, graphdef=policy.graphdef, temperature=temperature)
        for row, answer in zip(np.asarray(scores), group, strict=True):
            expected = row[len(prompt) : len(prompt) + len(answer.token_ids)]
            np.testing.assert_allclose(answer.logprobs, expected, atol=1e-4)


def test_sampled_tokens_follow_their_probabilities(sampler: JaxSampler, model: tuple[Policy, Any]):
    policy, params = model
    (group,) = _sample(sampler, PROMPTS[:1], n=2048, max_tokens=1)
    counts = np.bincount([completion.token_ids[0] for completion in group], minlength=600)
    candidates = np.arange(len(policy.tokenizer))
    rows = pad_sequences(
        [PROMPTS[0]] * len(candidates), candidates[:, None].tolist(), bucket=32, pad_id=0
    )
    scores = grpo.logprobs(params, rows, graphdef=policy.graphdef, temperature=1.0)
    expected = 2048 * np.exp(np.asarray(scores)[:, len(PROMPTS[0])])
    assert expected.sum() == pytest.approx(2048, rel=1e-3)
    # Pearson's statistic of the tokens, in groups of which 64 are expected or more.
    order = np.argsort(-expected)
    bins = np.floor(np.cumsum(expected[order]) / 64).astype(int)
    counts = counts[: len(expected)]
    observed, expected = (np.bincount(bins, part[order]) for part in (counts, expected))
    observed, expected = (part[expected > 32] for part in (observed, expected))
    assert len(expected) > 10
    statistic = np.sum((observed - expected) ** 2 / expected)
    assert statistic < len(expected) + 4 * np.sqrt(2 * len(expected))


def test_sample_draws_within_top_k_and_top_p(sampler: JaxSampler, model: tuple[Policy, Any]):
    policy, params = model
    candidates = np.arange(len(policy.tokenizer))
    rows = pad_sequences(
        [PROMPTS[0]] * len(candidates), candidates[:, None].tolist(), bucket=32, pad_id=0
    )
    scores = grpo.logprobs(params, rows, graphdef=policy.graphdef, temperature=1.0)
    probabilities = np.exp(np.asarray(scores)[:, len(PROMPTS[0])])
    order = np.argsort(-probabilities)
    cdf = np.cumsum(probabilities[order])
    num_of_top_4 = int(np.searchsorted(cdf[:4] / cdf[3], 0.6)) + 1
    num_of_all = int(np.searchsorted(cdf, 0.1)) + 1
    assert 1 < num_of_top_4 < 4 < num_of_all < len(candidates)
    cases: list[tuple[dict[str, Any], int]] = [
        ({"top_k": 4}, 4),
        ({"top_p": 0.1}, num_of_all),
        ({"top_k": 4, "top_p": 0.6}, num_of_top_4),
    ]
    for changes, num_tokens in cases:
        (group,) = _sample(sampler, PROMPTS[:1], n=2048, max_tokens=1, **changes)
        assert {completion.token_ids[0] for completion in group} == set(order[:num_tokens].tolist())
        for completion in group[:8]:
            expected = np.log(probabilities[completion.token_ids[0]] / cdf[num_tokens - 1])
            np.testing.assert_allclose(completion.logprobs[0], expected, atol=1e-3)


def test_answer_ends_at_stop_token_or_limit(sampler: JaxSampler):
    endings = set()
    for group in _sample(sampler, n=64, stop_token_ids=[2, *range(300, 400)], max_tokens=6):
        for completion in group:
            is_stop = [token == 2 or 300 <= token < 400 for token in completion.token_ids]
            assert not any(is_stop[:-1])
            assert completion.truncated == (not is_stop[-1])
            assert len(completion.token_ids) == 6 or not completion.truncated
            assert len(completion.logprobs) == len(completion.token_ids)
            endings.add((len(completion.token_ids), completion.truncated))
    assert len(endings) > 4


def test_answer_is_independent_of_its_batch(sampler: JaxSampler, model: tuple[Policy, Any]):
    tokens = _token_ids(_sample(sampler))
    assert tokens == _token_ids(_sample(sampler))
    assert tokens != _token_ids(_sample(sampler, seed=6))
    assert len({completion for group in tokens for completion in group}) == 16
    settings = SamplingConfig(engine="jax", max_model_len=128, max_num_seqs=64)
    wide_sampler = JaxSampler(*model, settings)
    assert tokens == _token_ids(_sample(wide_sampler))
    assert tokens[:3] == _token_ids(_sample(wide_sampler, PROMPTS[:3]))
    assert _token_ids(_sample(sampler, n=2)) == [group[:2] for group in tokens]
    assert _token_ids(_sample(sampler, chosen=[2, 0])) == [tokens[2], tokens[0]]
    assert _sample(sampler, chosen=[]) == []


def test_greedy_takes_most_probable_token(sampler: JaxSampler):
    first, second = _sample(sampler, n=2, temperature=0.0)[2]
    assert first.token_ids == second.token_ids
    # Nothing that is sampled has a more probable first token.
    samples = _sample(sampler, n=256, max_tokens=1)[2]
    assert max(float(completion.logprobs[0]) for completion in samples) <= first.logprobs[0] + 1e-5


def test_new_weights_replace_all_old_ones(sampler: JaxSampler, model: tuple[Policy, Any]):
    policy, params = model
    old_tokens = _token_ids(_sample(sampler))
    new_params = add_noise(params, 0.1)
    with pytest.raises(SyncError, match="the engine and the trainer must differ"):
        check_agreement(sampler, PROMPTS, policy.logprobs(new_params, PROMPTS), 1e-3)
    old_version = sampler.weight_version
    sampler.sync(policy.tensors(new_params))
    assert sampler.weight_version != old_version
    assert check_agreement(sampler, PROMPTS, policy.logprobs(new_params, PROMPTS), 1e-3) < 1e-4
    assert _token_ids(_sample(sampler)) != old_tokens
    jax.tree.map(lambda leaf: leaf.delete(), new_params)  # as an optimizer step does: it has copies
    _sample(sampler)
    sampler.sync(policy.tensors(params))
    assert sampler.weight_version == old_version
    assert _token_ids(_sample(sampler)) == old_tokens


def test_constrained_answers_match_their_pattern(sampler: JaxSampler, model: tuple[Policy, Any]):
    policy, _ = model
    texts = set()
    for group in _sample(sampler, form=PATTERN, max_tokens=40):
        for completion in group:
            text = policy.decode(completion.token_ids)
            assert not completion.truncated
            assert re.fullmatch(PATTERN, text)
            texts.add(text)
    assert len(texts) > 8
    for group in _sample(sampler, PROMPTS[:1], form=SCHEMA, max_tokens=60):
        for completion in group:
            jsonschema.validate(json.loads(policy.decode(completion.token_ids)), SCHEMA)


def test_prompt_without_room_is_rejected(sampler: JaxSampler):
    with pytest.raises(PromptTooLongError, match=r"max_model_len must be at least 160, .* got 128"):
        _sample(sampler, max_tokens=120)


class FixedScorer:
    """Gives the same scores to whatever is asked."""

    def __init__(self, *scores: np.ndarray) -> None:
        self._scores = list(scores)

    def score(self, sequences: Any) -> list[np.ndarray]:
        return self._scores


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_log_probability_is_detected_anywhere(value: float):
    zeros, invalid_scores = np.zeros(500, np.float32), np.zeros(500, np.float32)
    invalid_scores[7] = value
    cases = [([zeros, invalid_scores], zeros), ([invalid_scores, zeros], zeros)]
    for replies, scores in (*cases, ([zeros] * 2, invalid_scores)):
        with pytest.raises(SyncError, match="got nan and nan"):
            check_agreement(FixedScorer(*replies), [[1] * 500] * 2, [scores] * 2, 1e-3)
    with pytest.raises(SyncError, match="got nan and nan"):  # no token is compared
        check_agreement(FixedScorer(np.zeros(1)), [[1]], [np.zeros(1)], 1e-3)


def test_sampler_gap_tolerates_rare_small_outliers():
    expected = np.zeros(1001, np.float32)
    for gap, num_outliers, is_rejected in ((9e-3, 1, False), (11e-3, 1, True), (2e-3, 11, True)):
        scores = expected.copy()
        scores[1 : 1 + num_outliers] = gap
        if is_rejected:
            with pytest.raises(SyncError, match=r"sampling\.gap_tolerance = 0\.001"):
                check_agreement(FixedScorer(scores), [[1] * 1001], [expected], 1e-3)
        else:
            largest_gap = check_agreement(FixedScorer(scores), [[1] * 1001], [expected], 1e-3)
            assert largest_gap == pytest.approx(gap)
