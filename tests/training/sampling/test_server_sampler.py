"""A real local vLLM server: its answers, its weights, and its death.

The server is started once. The test that kills it is the last one.
"""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import pytest

from tests.training.sampling.engine_process import corrupt_norm
from tests.training.sampling.untrained import add_noise, open_untrained_policy
from training.errors import UserError
from training.policy.policy import Policy
from training.sampling.sampler import Completion, SamplingRequest, check_agreement
from training.sampling.server_sampler import ServerSampler
from training.sampling.vllm_sampler import VllmSampler
from training.schema import SamplingConfig
from training.weight_transfer import transport
from training.weight_transfer.checksums import SyncError

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1800)]

PROMPTS = [[5, 30, 31, 90, 120, 7, 8], [5, 30, 31, 90], [44, 3], [9, 10, 11] * 7, [12], [13, 14]]
REQUEST = SamplingRequest(PROMPTS, 3, temperature=1.0, max_tokens=24, stop_token_ids=[2], seed=5)
SEQUENCES = [PROMPTS[0] * times for times in (1, 4)]
ENGINE_SETTINGS = {"max_model_len": 512, "max_num_seqs": 64}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Any]:
    return open_untrained_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def folder(model: tuple[Policy, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    policy, params = model
    folder = tmp_path_factory.mktemp("engine") / "engine"
    policy.export(params, folder, untied=True)
    return folder


def server_settings(**section: Any) -> SamplingConfig:
    return SamplingConfig.model_validate({"engine": "server", "server": section, **ENGINE_SETTINGS})


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerSampler]:
    sampler = ServerSampler(folder, server_settings())
    yield sampler
    sampler.close()


@pytest.fixture(scope="module")
def in_process_engine(folder: Path) -> Iterator[VllmSampler]:
    engine = VllmSampler(folder, SamplingConfig.model_validate(ENGINE_SETTINGS))
    yield engine
    engine.close()


@pytest.fixture
def synced_server(server: ServerSampler, model: tuple[Policy, Any]) -> ServerSampler:
    """The server with the policy's weights."""
    policy, params = model
    server.sync(policy.tensors(params))
    return server


def list_token_ids(groups: list[list[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[completion.token_ids for completion in group] for group in groups]


@pytest.mark.parametrize("changes", [{"n": 1, "temperature": 0.0}, {}, {"top_p": 0.5, "top_k": 9}])
def test_server_matches_the_in_process_engine(
    changes: dict[str, Any], synced_server: ServerSampler, in_process_engine: VllmSampler
) -> None:
    request = replace(REQUEST, **changes)
    expected_groups, groups = in_process_engine.sample(request), synced_server.sample(request)
    assert list_token_ids(groups) == list_token_ids(expected_groups)
    for expected_group, group in zip(expected_groups, groups, strict=True):
        for completion, served_completion in zip(expected_group, group, strict=True):
            np.testing.assert_allclose(served_completion.logprobs, completion.logprobs, atol=1e-4)
            assert served_completion.truncated == completion.truncated


def test_selected_prompts_get_equal_answers(synced_server: ServerSampler) -> None:
    all_tokens = list_token_ids(synced_server.sample(REQUEST))
    selected_tokens = list_token_ids(synced_server.sample(replace(REQUEST, chosen=[4, 1])))
    assert selected_tokens == [all_tokens[4], all_tokens[1]]
    assert synced_server.sample(replace(REQUEST, chosen=[])) == []


def test_constrained_answers_match_their_pattern(
    synced_server: ServerSampler, model: tuple[Policy, Any]
) -> None:
    groups = synced_server.sample(replace(REQUEST, form="(UP|DOWN)"))
    texts = {model[0].decode(completion.token_ids) for group in groups for completion in group}
    assert texts == {"UP", "DOWN"}


def test_new_weights_reach_server(synced_server: ServerSampler, model: tuple[Policy, Any]) -> None:
    policy, params = model
    old_version, new_params = synced_server.weight_version, add_noise(params, 0.2)
    synced_server.sync(policy.tensors(new_params))
    assert synced_server.weight_version != old_version
    expected = policy.logprobs(new_params, SEQUENCES)
    assert check_agreement(synced_server, SEQUENCES, expected, 1e-3) <= 1e-3


def test_failed_sync_stops_later_answers(
    synced_server: ServerSampler, model: tuple[Policy, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, params = model
    with monkeypatch.context() as patch:
        patch.setattr(transport, "add_checksums", corrupt_norm)
        with pytest.raises(SyncError):
            synced_server.sync(policy.tensors(add_noise(params, 0.2)))
    with pytest.raises(SyncError, match="has not received weights, or their sync failed"):
        synced_server.sample(REQUEST)
    synced_server.sync(policy.tensors(params))
    synced_server.sample(REQUEST)


def test_foreign_server_weights_are_rejected(synced_server: ServerSampler) -> None:
    address, version = synced_server._server.address, synced_server.weight_version
    body = {"new_version": "of another run"}
    httpx2.post(f"{address}/update_weight_version", json=body, timeout=60).raise_for_status()
    with pytest.raises(SyncError, match=f"must be {version}, got of another run"):
        synced_server.sample(REQUEST)


def test_remote_server_receives_weights_by_folder(
    server: ServerSampler, model: tuple[Policy, Any], folder: Path, tmp_path: Path
) -> None:
    """It is the one that was started here, found by its address."""
    policy, params = model
    settings = server_settings(address=server._server.address, folder=str(tmp_path / "shared"))
    remote_server = ServerSampler(folder, settings)
    assert remote_server._transfer_folder == tmp_path / "shared"
    new_params = add_noise(params, 0.1)
    remote_server.sync(policy.tensors(new_params))
    expected = policy.logprobs(new_params, SEQUENCES)
    assert check_agreement(remote_server, SEQUENCES, expected, 1e-3) <= 1e-3
    remote_server.close()


def test_server_death_during_a_request_is_named(synced_server: ServerSampler) -> None:
    """Its engine is killed, and the process that speaks HTTP is not."""
    process = synced_server._server.process
    assert process is not None

    def kill_engine() -> None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()

    def sample_forever() -> None:
        while True:
            synced_server.sample(replace(REQUEST, max_tokens=300, stop_token_ids=[]))

    threading.Timer(0.5, kill_engine).start()
    with pytest.raises(UserError, match=r"is gone: .* resumes the run from its last checkpoint"):
        sample_forever()
