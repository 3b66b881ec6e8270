"""A real vLLM engine: reproducible answers, the trainer's weights, and stale weights.

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

import jsonschema
import numpy as np
import pytest

from engineer import answer_schema
from engineer.edits import edits_pattern
from engineer.engineers.language_model import TextRequest
from engineer.lake import Bounds, lake_domain
from tests.paths import TINY
from tests.training.sampling.engine_process import corrupt_norm
from tests.training.sampling.untrained import add_noise, open_untrained_policy
from training.errors import UserError
from training.learner import grpo
from training.learner.batching import pad_sequences
from training.policy.policy import Policy
from training.sampling.model_server import ModelServer
from training.sampling.sampler import SamplingRequest, check_agreement
from training.sampling.vllm_sampler import VllmSampler
from training.schema import EngineerConfig, SamplingConfig, engineer_section, load
from training.threads import run_in_thread
from training.weight_transfer import transport
from training.weight_transfer.checksums import SyncError

pytestmark = pytest.mark.vllm

CONFIG = load(TINY)
SCHEMA = answer_schema(Bounds(sizes=(3, 4)))
PATTERN = edits_pattern(lake_domain(Bounds(sizes=(3, 4))))
PROMPT = [5, 30, 31, 90, 120, 7, 8]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Any]:
    return open_untrained_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def sampler(model: tuple[Policy, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    folder = tmp_path_factory.mktemp("engine") / "engine"
    policy, params = model
    policy.export(params, folder, untied=True)
    engine = VllmSampler(folder, SamplingConfig(max_model_len=512, max_num_seqs=64), seed=0)
    yield engine
    engine.close()


@pytest.fixture
def synced_sampler(sampler: VllmSampler, model: tuple[Policy, Any]) -> VllmSampler:
    """The engine with the policy's weights."""
    policy, params = model
    sampler.sync(policy.tensors(params))
    return sampler


def _sample(sampler: VllmSampler, **changes: Any) -> list:
    prompts = [PROMPT, PROMPT[:4], PROMPT * 3]
    request = SamplingRequest(
        prompts, 4, temperature=1.0, max_tokens=12, stop_token_ids=[2], seed=5
    )
    return sampler.sample(replace(request, **changes))


@pytest.mark.slow
def test_model_server_answers_in_every_form(
    model: tuple[Policy, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engineer_section, "NOTE_TOKENS", 7)
    folder = model[0].folder
    schema = answer_schema(Bounds(sizes=(3,)))
    engineer_config = EngineerConfig(kind="model", model=str(folder), max_tokens=200)
    assert model[0].tokenizer.chat_template
    request = TextRequest("edits\n", seed=1, form=schema)
    with ModelServer(CONFIG.sampling, engineer_config) as server:
        answer = server.ask(str(folder), request, chat=False)
        jsonschema.validate(json.loads(answer.text), schema)
        assert answer.tokens <= 200
        server_process = server._server
        assert server.ask(str(folder), request, chat=False) == answer
        reasoning_request = replace(request, form=None, max_tokens=20)
        reasoning = server.ask(str(folder), reasoning_request, chat=False)
        assert reasoning.tokens <= 20
        assert server.ask(str(folder), reasoning_request, chat=True) != reasoning
        assert server.ask(str(folder), reasoning_request) == reasoning  # style compact is plain
        continued_request = replace(request, reasoning=reasoning.text)
        jsonschema.validate(json.loads(server.ask(str(folder), continued_request).text), schema)
        note = server.ask(str(folder), replace(request, form=None), chat=False)
        assert 0 < len(note.text) < len(answer.text)
        assert note.tokens <= 7
        edits = server.ask(str(folder), replace(request, form=PATTERN), chat=False)
        assert re.fullmatch(PATTERN, edits.text)
        assert server._server is server_process is not None
    assert server_process.get_exit_message()


@pytest.mark.slow
def test_answers_depend_on_the_seed(sampler: VllmSampler):
    groups, same_groups, other_groups = _sample(sampler), _sample(sampler), _sample(sampler, seed=6)
    tokens = [[completion.token_ids for completion in group] for group in groups]
    assert tokens == [[completion.token_ids for completion in group] for group in same_groups]
    assert tokens != [[completion.token_ids for completion in group] for group in other_groups]
    assert len({completion.token_ids for group in groups for completion in group}) > 6


@pytest.mark.slow
def test_sampled_logprobs_match_the_trainer(synced_sampler: VllmSampler, model: tuple[Policy, Any]):
    policy, params = model
    for temperature in (1.0, 0.7):
        completion = _sample(synced_sampler, temperature=temperature)[0][0]
        sequences = pad_sequences([PROMPT], [completion.token_ids], bucket=32, pad_id=0)
        scores = grpo.logprobs(params, sequences, graphdef=policy.graphdef, temperature=temperature)
        expected = np.asarray(scores)[0, len(PROMPT) : len(PROMPT) + len(completion.token_ids)]
        np.testing.assert_allclose(completion.logprobs, expected, atol=1e-3)


def test_new_weights_reach_the_engine(sampler: VllmSampler, model: tuple[Policy, Any]):
    policy, params = model
    sequences = [PROMPT, PROMPT * 4]
    versions = set()
    for scale in (0.0, 0.2, 0.4):
        new_params = add_noise(params, scale)
        sampler.sync(policy.tensors(new_params))
        versions.add(sampler.weight_version)
        expected = policy.logprobs(new_params, sequences)
        assert check_agreement(sampler, sequences, expected, 1e-3) <= 1e-3
    assert len(versions) == 3
    assert np.abs(expected[0] - policy.logprobs(params, sequences)[0]).max() > 0.1


@pytest.mark.slow
def test_sync_stops_on_a_weight_changed_by_one_ulp(
    synced_sampler: VllmSampler, model: tuple[Policy, Any], monkeypatch: pytest.MonkeyPatch
):
    policy, params = model
    version = synced_sampler.weight_version
    monkeypatch.setattr(transport, "add_checksums", corrupt_norm)
    with pytest.raises(SyncError, match=r"of 1 of \d+ weight tensors .*: model.norm.weight"):
        synced_sampler.sync(policy.tensors(params))
    assert synced_sampler.weight_version == version


@pytest.mark.slow
def test_longest_sequence_is_scored(synced_sampler: VllmSampler, model: tuple[Policy, Any]):
    policy, params = model
    longest_sequence = (PROMPT * 80)[: synced_sampler.max_model_len]
    sequences = [longest_sequence, PROMPT[:1], PROMPT, PROMPT[:2]]
    scores = synced_sampler.score(sequences)
    assert [len(score) for score in scores] == [512, 1, 7, 2]
    for score, expected in zip(scores, policy.logprobs(params, sequences), strict=True):
        np.testing.assert_allclose(score, expected, atol=1e-4)
    (single_score,) = synced_sampler.score([PROMPT[:1]])
    assert single_score.tolist() == [0.0]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "max_tokens"), [(SCHEMA, 400), (PATTERN, 60)])
def test_constrained_answers_match_their_pattern(
    form: Any, max_tokens: int, synced_sampler: VllmSampler, model: tuple[Policy, Any]
):
    groups = _sample(synced_sampler, max_tokens=max_tokens, form=form)
    complete_answers = [
        completion.token_ids for group in groups for completion in group if not completion.truncated
    ]
    answers = {model[0].decode(token_ids) for token_ids in complete_answers}
    assert len(answers) >= 6
    for answer in answers:
        if isinstance(form, str):
            assert re.fullmatch(form, answer)
        else:
            jsonschema.validate(json.loads(answer), form)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "fsdp", "num_workers"),
    [
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, 2, 1),
        ({"VLLM_CPU_OMP_THREADS_BIND": "0|1", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}, 1, 2),
    ],
)
def test_split_weights_reach_workers(
    environment: dict[str, str], fsdp: int, num_workers: int, tmp_path: Path
):
    arguments = ["sync", str(tmp_path), str(fsdp), str(num_workers)]
    assert "done" in _run_engine_process(environment, *arguments)


@pytest.mark.slow
def test_killed_engine_is_named_without_orphans(tmp_path: Path):
    environment = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    report = json.loads(_run_engine_process(environment, "kill", str(tmp_path)).splitlines()[-1])
    message = rf"EngineCore \({report['core']}\) was killed by signal 9 \(Killed\); .* same command"
    assert re.search(message, report["message"])
    assert report["seconds"] < 20
    assert report["left"] == []


def _run_engine_process(environment: dict[str, str], *arguments: str) -> str:
    # An engine in this process, of an earlier test, has set it for the processes to come.
    variables = {k: v for k, v in os.environ.items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    result = subprocess.run(
        [sys.executable, "-m", "tests.training.sampling.engine_process", *arguments],
        env={**variables, "JAX_PLATFORMS": "cpu", **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


@pytest.mark.slow
def test_closed_engine_stops_sampling(model: tuple[Policy, Any], tmp_path: Path):
    policy, params = model
    policy.export(params, tmp_path / "engine", untied=True)
    engine = VllmSampler(tmp_path / "engine", SamplingConfig(max_model_len=512, max_num_seqs=64))
    changes: dict[str, Any] = {"max_tokens": 480, "n": 64, "stop_token_ids": []}
    rollout = run_in_thread(lambda: _sample(engine, **changes), "Prefetch")
    with pytest.raises(TimeoutError):
        rollout.result(timeout=1)
    engine.close()
    with pytest.raises(UserError, match="closed while it answered"):
        rollout.result(timeout=20)
    engine.close()  # a second time does nothing
