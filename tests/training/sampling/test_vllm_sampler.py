"""A real vLLM engine: the same answers twice, the trainer's weights, and a stale one caught.

And a model folder behind vLLM's server, which may have the engineer's role.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest

from engineer import answer_schema
from engineer.edits import edits_pattern
from engineer.lake import Bounds, lake_domain
from tests.paths import TINY as TINY_FILE
from training.errors import UserError
from training.learner import grpo
from training.learner.batching import pad_sequences
from training.policy.policy import Policy, load_policy, make_policy
from training.sampling.model_server import OtherModels, TextQuestion
from training.sampling.sampler import Question, check_agreement
from training.sampling.vllm_sampler import VllmSampler
from training.schema import EngineerChoice, Sampling, load
from training.threads import in_thread
from training.weight_transfer.checksums import SyncError
from training.weight_transfer.transport import InProcessTransport

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

TINY = load(TINY_FILE)
PATTERN = edits_pattern(lake_domain(Bounds(sizes=(3, 4))))
PROMPT = [5, 30, 31, 90, 120, 7, 8]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Any]:
    folder = tmp_path_factory.mktemp("policy") / "initial"
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT", '{"3":{"data_ratio":0.5,"hole_ratio":0.25}}'] * 4
    make_policy(folder, TINY.model, texts, max_len=512, seed=0)
    return load_policy(folder, TINY)


@pytest.fixture(scope="module")
def sampler(policy: tuple[Policy, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    folder = tmp_path_factory.mktemp("engine") / "engine"
    made, params = policy
    made.export(params, folder, untied=True)
    engine = VllmSampler(folder, Sampling(max_model_len=512, max_num_seqs=64), seed=0)
    yield engine
    engine.close()


@pytest.fixture
def synced(sampler: VllmSampler, policy: tuple[Policy, Any]) -> VllmSampler:
    """The engine with the policy's weights."""
    made, params = policy
    sampler.sync(made.tensors(params))
    return sampler


def _sample(sampler: VllmSampler, **changes: Any) -> list:
    prompts = [PROMPT, PROMPT[:4], PROMPT * 3]
    question = Question(prompts, 4, temperature=1.0, max_tokens=12, stop_token_ids=[2], seed=5)
    return sampler.sample(replace(question, **changes))


def _moved(params: Any, scale: float, only: str = "") -> Any:
    keys = iter(jax.random.split(jax.random.key(9), 64))

    def move(path: Any, leaf: Any) -> Any:
        noise = scale * jax.random.normal(next(keys), leaf.shape)
        return leaf + noise * (only in jax.tree_util.keystr(path))

    return jax.tree_util.tree_map_with_path(move, params)


def test_another_model_answers_in_one_process_of_its_own_as_the_policy_would(
    policy: tuple[Policy, Any],
):
    folder = policy[0].folder
    schema = answer_schema(Bounds(sizes=(3,)))
    choice = EngineerChoice(kind="model", model=str(folder), max_tokens=200, summary_tokens=7)
    assert policy[0].tokenizer.chat_template
    plain = TextQuestion("edits\n", chat=False, seed=1, form=schema)
    with OtherModels(TINY.sampling, choice) as models:
        first = models.ask(str(folder), plain)
        jsonschema.validate(json.loads(first.text), schema)
        assert first.tokens <= 200
        loaded = models._server
        assert models.ask(str(folder), plain) == first
        templated = models.ask(str(folder), replace(plain, chat=True))
        assert templated != first
        assert models.ask(str(folder), replace(plain, chat=None)) == templated
        note = models.ask(str(folder), replace(plain, form=None))
        assert 0 < len(note.text) < len(first.text)
        assert note.tokens <= 7
        edits = models.ask(str(folder), replace(plain, form=PATTERN))
        assert re.fullmatch(PATTERN, edits.text)
        assert models._server is loaded is not None
    assert not loaded._process.running


def test_equal_seeds_give_equal_answers_and_others_do_not(sampler: VllmSampler):
    first, again, other = _sample(sampler), _sample(sampler), _sample(sampler, seed=6)
    tokens = [[one.token_ids for one in group] for group in first]
    assert tokens == [[one.token_ids for one in group] for group in again]
    assert tokens != [[one.token_ids for one in group] for group in other]
    assert len({one.token_ids for group in first for one in group}) > 6


def test_sampled_logprobs_are_the_trainers_at_the_sampling_temperature(
    synced: VllmSampler, policy: tuple[Policy, Any]
):
    made, params = policy
    for temperature in (1.0, 0.7):
        completion = _sample(synced, temperature=temperature)[0][0]
        sequences = pad_sequences([PROMPT], [completion.token_ids], bucket=32, pad_id=0)
        scores = grpo.logprobs(params, sequences, graphdef=made.graphdef, temperature=temperature)
        ours = np.asarray(scores)[0, len(PROMPT) : len(PROMPT) + len(completion.token_ids)]
        np.testing.assert_allclose(completion.logprobs, ours, atol=1e-3)


@pytest.mark.parametrize("round_", [1, 2])
def test_weights_follow_the_trainer_within_a_thousandth_of_a_nat(
    round_: int, sampler: VllmSampler, policy: tuple[Policy, Any]
):
    made, params = policy
    moved = _moved(params, 0.2 * round_)
    sequences = [PROMPT, PROMPT * 4]
    sampler.sync(made.tensors(moved))
    gap = check_agreement(sampler, sequences, made.logprobs(moved, sequences), 1e-3)
    assert gap <= 1e-3
    assert (
        np.abs(made.logprobs(moved, sequences)[0] - made.logprobs(params, sequences)[0]).max() > 0.1
    )


@pytest.mark.parametrize("only", ["", "lm_head", "embed_tokens", "down_proj"])
def test_a_stale_weight_is_caught(only: str, synced: VllmSampler, policy: tuple[Policy, Any]):
    made, params = policy
    newer = _moved(params, 0.1, only)
    sequences = [PROMPT, PROMPT * 4]
    with pytest.raises(SyncError, match="the engine and the trainer disagree"):
        check_agreement(synced, sequences, made.logprobs(newer, sequences), 1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
        "model.norm.weight",
    ],
)
def test_one_weight_that_is_stale_by_an_ulp_stops_the_sync_by_the_tensors_name(
    name: str,
    synced: VllmSampler,
    policy: tuple[Policy, Any],
    monkeypatch: pytest.MonkeyPatch,
):
    made, params = policy
    transport = InProcessTransport(synced._engine)

    class Stale:
        def send(self, tensors: Any) -> None:
            transport.send(
                (each, _older(array) if each == name else array) for each, array in tensors
            )

    monkeypatch.setattr(synced, "_transport", Stale())
    with pytest.raises(SyncError, match=rf"1 of \d+ weight tensors .* checksums: {name}$"):
        synced.sync(made.tensors(params))


def _older(array: jax.Array) -> jax.Array:
    flat = np.array(array)
    flat[0] = np.nextafter(flat[0], np.inf)
    return jnp.asarray(flat)


def test_weights_that_the_engine_multiplies_with_are_read_and_not_what_was_sent(
    synced: VllmSampler, policy: tuple[Policy, Any], monkeypatch: pytest.MonkeyPatch
):
    made, params = policy

    class Lost:
        def send(self, tensors: Any) -> None:
            assert list(tensors)

    monkeypatch.setattr(synced, "_transport", Lost())
    synced.sync(made.tensors(params))  # the engine has these
    with pytest.raises(SyncError, match=r"mlp\.down_proj\.weight$"):
        synced.sync(made.tensors(_moved(params, 0.1, "layers']['down_proj")))


def test_weights_that_are_not_numbers_are_caught(synced: VllmSampler):
    with pytest.raises(SyncError):
        check_agreement(synced, [PROMPT], [np.full(len(PROMPT), jnp.nan, np.float32)], 1e-3)


def test_a_weight_that_is_not_a_number_in_the_engine_only_stops_the_sync(
    synced: VllmSampler, policy: tuple[Policy, Any], monkeypatch: pytest.MonkeyPatch
):
    made, params = policy
    transport, name = InProcessTransport(synced._engine), "model.layers.0.mlp.up_proj.weight"

    class Broken:
        def send(self, tensors: Any) -> None:
            transport.send(
                (each, array.at[0, 0].set(jnp.nan) if each == name else array)
                for each, array in tensors
            )

    monkeypatch.setattr(synced, "_transport", Broken())
    with pytest.raises(SyncError, match=re.escape(name)):
        synced.sync(made.tensors(params))


def test_a_sequence_that_fills_the_engine_is_scored(
    synced: VllmSampler, policy: tuple[Policy, Any]
):
    made, params = policy
    longest = (PROMPT * 80)[: synced.max_model_len]
    sequences = [longest, PROMPT[:1], PROMPT, PROMPT[:2]]
    scores = synced.score(sequences)
    assert [len(score) for score in scores] == [512, 1, 7, 2]
    for score, expected in zip(scores, made.logprobs(params, sequences), strict=True):
        np.testing.assert_allclose(score, expected, atol=1e-4)
    (only,) = synced.score([PROMPT[:1]])
    assert only.tolist() == [0.0]


def test_weights_that_devices_share_reach_an_engine_in_the_same_process(tmp_path: Path):
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    assert "done" in _spread_engine(tmp_path, two, fsdp=2, workers=1)


def test_weights_reach_both_workers_of_an_engine_and_a_stale_one_is_noticed(tmp_path: Path):
    own = {"VLLM_CPU_OMP_THREADS_BIND": "0|1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
    assert "done" in _spread_engine(tmp_path, own, fsdp=1, workers=2)


def test_an_engine_that_is_killed_while_it_answers_is_named_and_leaves_no_process(tmp_path: Path):
    own = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    printed = json.loads(_in_own_process(own, "killed_engine", str(tmp_path)).splitlines()[-1])
    named = rf"EngineCore \({printed['core']}\) was killed by signal 9 \(SIGKILL\); .* same command"
    assert re.search(named, printed["message"])
    assert printed["seconds"] < 20
    assert printed["left"] == []


def _spread_engine(folder: Path, own: dict[str, str], *, fsdp: int, workers: int) -> str:
    return _in_own_process(own, "spread_engine", str(folder), str(fsdp), str(workers))


def _in_own_process(own: dict[str, str], script: str, *arguments: str) -> str:
    # An engine in this process, of an earlier test, has set it for the processes to come.
    inherited = {k: v for k, v in os.environ.items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    environment = {**inherited, "JAX_PLATFORMS": "cpu", **own}
    ended = subprocess.run(
        [sys.executable, "-m", f"tests.training.sampling.{script}", *arguments],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


def test_a_rollout_in_another_thread_has_the_same_answers(sampler: VllmSampler):
    ahead = in_thread(lambda: _sample(sampler), "Prefetch").result(timeout=60)
    for drawn, expected in zip(ahead, _sample(sampler), strict=True):
        assert [one.token_ids for one in drawn] == [one.token_ids for one in expected]
        for one, other in zip(drawn, expected, strict=True):
            np.testing.assert_array_equal(one.logprobs, other.logprobs)


def test_a_closed_engine_gives_up_what_another_thread_samples(
    policy: tuple[Policy, Any], tmp_path: Path
):
    made, params = policy
    made.export(params, tmp_path / "engine", untied=True)
    engine = VllmSampler(tmp_path / "engine", Sampling(max_model_len=512, max_num_seqs=64))
    endless: dict[str, Any] = {"max_tokens": 480, "n": 64, "stop_token_ids": []}
    rollout = in_thread(lambda: _sample(engine, **endless), "Prefetch")
    with pytest.raises(TimeoutError):
        rollout.result(timeout=1)
    engine.close()
    with pytest.raises(UserError, match="closed while it answered"):
        rollout.result(timeout=20)
    engine.close()  # a second time does nothing


def test_a_schema_constrains_even_an_untrained_model(
    synced: VllmSampler, policy: tuple[Policy, Any]
):
    schema = answer_schema(Bounds(sizes=(3, 4)))
    complete = 0
    for group in _sample(synced, max_tokens=400, form=schema):
        for completion in group:
            if not completion.truncated:
                answer = policy[0].decode(completion.token_ids)
                jsonschema.validate(json.loads(answer), schema)
                complete += 1
    assert complete >= 6


def test_a_pattern_constrains_even_an_untrained_model(
    synced: VllmSampler, policy: tuple[Policy, Any]
):
    answers = set()
    for group in _sample(synced, max_tokens=60, form=PATTERN):
        for completion in group:
            assert not completion.truncated
            answer = policy[0].decode(completion.token_ids)
            assert re.fullmatch(PATTERN, answer)
            answers.add(answer)
    assert len(answers) > 6


def test_a_prompt_that_does_not_fit_is_a_clear_error(sampler: VllmSampler):
    with pytest.raises(UserError, match=r"sampling\.max_model_len: 512 is too small"):
        _sample(sampler, max_tokens=510)
