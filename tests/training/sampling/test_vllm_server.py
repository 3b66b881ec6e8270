"""The client of a vLLM server without a model: answers, retries, and a server that dies."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.training.sampling.stand_in_server import StandInServer, make_choice
from training.errors import UserError
from training.sampling.server_sampler import read_completions, read_score
from training.sampling.vllm_server import VllmServer
from training.schema import SamplingConfig
from training.weight_transfer.checksums import SyncError

REQUESTS = [{"prompt": [index, 7], "n": 1} for index in range(12)]


@pytest.fixture
def stand_in() -> Iterator[StandInServer]:
    with StandInServer() as server:
        yield server
        server.is_closing = True
        server.shutdown()


@pytest.fixture
def server(stand_in: StandInServer) -> VllmServer:
    return VllmServer(stand_in.address)


def list_first_tokens(replies: list[Any]) -> list[int]:
    return [reply["choices"][0]["token_ids"][0] for reply in replies]


def test_answers_keep_request_order(server) -> None:
    assert list_first_tokens(server.answer(REQUESTS)) == list(range(12))


@pytest.mark.parametrize("status", [0, 503])
def test_failed_completions_are_retried(status: int, stand_in, server) -> None:
    failed_bodies: list[Any] = []

    def fail_once(path: str, body: Any) -> int | None:
        if path == "/v1/completions" and body["prompt"][0] == 3 and not failed_bodies:
            failed_bodies.append(body)
            return status
        return None

    stand_in.get_status = fail_once
    assert list_first_tokens(server.answer(REQUESTS)) == list(range(12))
    assert failed_bodies


def test_calls_with_side_effects_are_not_retried(stand_in, server) -> None:
    stand_in.get_status = lambda path, body: 400 if path == "/collective_rpc" else None
    with pytest.raises(UserError, match=r"POST /collective_rpc: HTTP 400 .*refused"):
        server.collective_rpc("receive_weights", {})
    assert len(stand_in.get_bodies("/collective_rpc")) == 1


@pytest.mark.parametrize("status", [0, 500])
def test_dead_engine_is_named(status: int, stand_in, server) -> None:
    stand_in.get_status = lambda path, body: status
    message = f"{stand_in.address} is gone: .* last checkpoint"
    with pytest.raises(UserError, match=message) as error_info:
        server.answer(REQUESTS)
    assert "\n" not in str(error_info.value)


def test_weights_of_another_version_are_rejected(stand_in, server) -> None:
    server.require_version("v1")
    stand_in.replies["/weight_info"] = {"weight_version": "v0"}
    with pytest.raises(SyncError, match=f"{stand_in.address}.*must be v1, got v0"):
        server.require_version("v1")


@pytest.mark.parametrize(
    ("settings", "max_model_len", "message"),
    [
        ({"dtype": "torch.bfloat16"}, 1024, "has dtype bfloat16; start it with --dtype float32"),
        ({"logprobs_mode": "raw_logprobs"}, 1024, "with --logprobs-mode processed_logprobs"),
        ({}, 100, "has max-model-len 100; start it with --max-model-len 1024"),
    ],
)
def test_server_with_other_settings_is_rejected(
    settings: dict[str, Any], max_model_len: int, message: str, stand_in, server
) -> None:
    server.require_settings(SamplingConfig())
    stand_in.settings |= settings
    stand_in.replies["/v1/models"]["data"][0]["max_model_len"] = max_model_len
    with pytest.raises(UserError, match=f"^{stand_in.address}: .*{message}"):
        server.require_settings(SamplingConfig())
    stand_in.replies["/server_info"] = {}
    with pytest.raises(UserError, match="started with VLLM_SERVER_DEV_MODE=1"):
        server.require_settings(SamplingConfig())


def test_server_start_timeout_is_named(stand_in, server) -> None:
    server.wait_until_ready(5)
    stand_in.get_status = lambda path, body: 404
    with pytest.raises(UserError, match=f"{stand_in.address}: is not ready within .*HTTP 404"):
        server.wait_until_ready(0.3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt_token_ids": [4]}, "the answer to another prompt"),
        ({"finish_reason": "abort"}, "finish_reason abort"),
        ({"logprobs": {"token_logprobs": [-0.5]}}, "2 tokens, log-probabilities of shape"),
        ({"token_ids": None}, "complete answers with token ids"),
    ],
)
def test_incomplete_answer_is_rejected(changes: dict[str, Any], message: str) -> None:
    choices = [make_choice([3, 4], index) for index in (1, 0)]
    first, second = read_completions({"choices": choices}, [3, 4], 2)
    assert (first.token_ids, second.token_ids) == ((3, 0), (3, 1))  # by index
    with pytest.raises(UserError, match=message):
        read_completions({"choices": [choices[0], choices[1] | changes]}, [3, 4], 2)
    with pytest.raises(UserError, match="got 2 of 3 answers"):
        read_completions({"choices": choices}, [3, 4], 3)


def test_score_returns_log_probabilities_and_last_tokens() -> None:
    prompt_logprobs = [None, {"4": {"logprob": -1.0}, "9": {"logprob": -0.1}}]
    logprobs = {"top_logprobs": [{"token_id:2": -0.1, "token_id:5": -3.0}]}
    answer = {"choices": [{"prompt_logprobs": prompt_logprobs, "logprobs": logprobs}]}
    np.testing.assert_array_equal(read_score(answer, [3, 4, 5]), np.float32([0, -1, -3]))
    with pytest.raises(UserError, match="lacks prompt_logprobs"):
        read_score(answer, [3, 6, 5])
