"""Which server answers what: shares, a server that is gone, other weights. No model is run."""

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.sampling.servers.stand_in_server import StandInServer, choice, stand_ins
from training.errors import UserError
from training.sampling.servers import client
from training.sampling.servers.client import VllmServer, deal, read_completions, read_score
from training.sampling.servers.fleet import ServerFleet
from training.sampling.servers.process import devices_of
from training.sampling.servers.sampler import ServerSampler, cores_of
from training.schema import Sampling
from training.weight_transfer.checksums import SyncError

PROMPTS = [[place, 7] for place in range(12)]


def fleet_of(servers: list[StandInServer], **limits: Any) -> ServerFleet:
    addresses = [server.address for server in servers]
    limits = {"addresses": addresses, "start_seconds": 5, **limits}
    settings = Sampling.model_validate({"engine": "servers", "servers": limits})
    return ServerFleet([VllmServer(address) for address in addresses], settings)


def ask(fleet: ServerFleet, version: str = "v1") -> list[Any]:
    requests = [{"prompt": prompt, "n": 1} for prompt in PROMPTS]
    return fleet.answer(
        requests, version, lambda place, said: read_completions(said, PROMPTS[place], 1)
    )


def first_tokens(answers: list[Any]) -> list[int]:
    return [completion.token_ids[0] for (completion,) in answers]


@pytest.fixture
def servers() -> Iterator[list[StandInServer]]:
    with stand_ins(3) as started:
        yield started


@given(st.lists(st.integers(), unique=True), st.integers(1, 9))
def test_shares_have_every_place_once_and_sizes_that_differ_by_one_at_most(
    places: list[int], servers: int
) -> None:
    shares = deal(places, servers)
    assert sorted(place for share in shares for place in share) == sorted(places)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert len(shares) == servers


def test_answers_come_in_the_order_of_the_prompts_from_all_servers(servers) -> None:
    assert first_tokens(ask(fleet_of(servers))) == list(range(12))
    assert [len(server.answered) for server in servers] == [4, 4, 4]


def test_what_a_server_that_is_gone_left_is_answered_once_by_the_others(
    servers, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks_off(prompt: list[int]) -> bool:
        """After the answers to 1 and 4 of its 1, 4, 7, 10 have been accepted."""
        if prompt[0] < 7:
            return False
        while len(servers[1].asked("/weight_info")) < 3:
            time.sleep(0.01)
        time.sleep(0.3)
        return True

    servers[1].breaks_off = breaks_off
    fleet = fleet_of(servers)
    assert first_tokens(ask(fleet)) == list(range(12))
    assert sorted(prompt[0] for prompt in servers[1].answered) == [1, 4]
    others = [prompt[0] for server in (servers[0], servers[2]) for prompt in server.answered]
    assert sorted(others) == sorted(set(range(12)) - {1, 4})
    assert f"{servers[1].address} is gone" in capsys.readouterr().out
    before = len(servers[1].calls)
    assert first_tokens(ask(fleet)) == list(range(12))
    assert len(servers[1].calls) == before  # it is lost, so nobody asks it


def test_without_any_server_left_one_error_says_why(servers) -> None:
    for server in servers:
        server.breaks_off = lambda prompt: True
    with pytest.raises(UserError, match="all 3 vLLM servers are gone") as caught:
        ask(fleet_of(servers))
    assert "\n" not in str(caught.value)
    assert all(server.address in str(caught.value) for server in servers)


def test_a_server_that_is_silent_is_given_up_and_the_others_go_on(
    servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_SECONDS_BETWEEN_CHECKS", 0.05)
    servers[0].silent = True
    fleet = fleet_of(servers, silence_seconds=0.3)
    assert first_tokens(ask(fleet)) == list(range(12))
    assert servers[0].answered == []


def test_weights_of_another_version_are_refused_by_name(servers) -> None:
    servers[2].version = "v0"
    with pytest.raises(SyncError, match="version v0, expected is v1") as caught:
        ask(fleet_of(servers))
    assert str(caught.value).startswith(servers[2].address)
    assert servers[2].answered == []


def test_an_answer_after_which_the_version_is_another_does_not_count(servers) -> None:
    def change(prompt: list[int]) -> bool:
        servers[0].version = "v2"
        return False

    servers[0].breaks_off = change
    with pytest.raises(SyncError, match="version v2, expected is v1"):
        ask(fleet_of(servers))


def test_a_lost_server_that_is_back_is_prepared_before_it_takes_part(servers) -> None:
    fleet = fleet_of(servers)
    fleet.init_weight_transfer_engine({"init_info": {}})
    servers[0].gone = True
    assert {one.address for one in fleet.call("POST", "/x")} == {
        server.address for server in servers[1:]
    }
    fleet.gather_again()
    assert len(fleet.live) == 2
    servers[0].gone = False
    assert len(fleet.live) == 2
    fleet.gather_again()
    assert len(fleet.live) == 3
    assert servers[0].asked("/init_weight_transfer_engine") == [{"init_info": {}}] * 2


def test_an_update_of_weights_that_an_earlier_run_left_open_is_ended(servers) -> None:
    servers[1].updating = True
    with pytest.raises(UserError, match="an update of weights is open"):
        fleet_of(servers).start_weight_update()
    servers[0].updating = servers[2].updating = False
    fleet = fleet_of(servers)
    fleet.init_weight_transfer_engine({})
    fleet.start_weight_update()
    assert all(server.updating for server in servers)


def test_an_answer_that_is_not_usable_is_blamed_on_its_server(servers) -> None:
    fleet = fleet_of(servers)
    with pytest.raises(UserError, match="asked was for 2") as caught:
        fleet.answer(
            [{"prompt": [3, 4], "n": 1}], "v1", lambda _, said: read_completions(said, [3, 4], 2)
        )
    assert str(caught.value).startswith(servers[0].address)


def test_the_version_is_asked_of_every_server_that_lives(servers) -> None:
    fleet = fleet_of(servers)
    fleet.require_version("v1")
    servers[2].version = "v0"
    with pytest.raises(SyncError, match=f"{servers[2].address}.*version v0, expected is v1"):
        fleet.require_version("v1")
    servers[2].gone = True
    fleet.require_version("v1")
    assert len(fleet.live) == 2


@pytest.mark.parametrize(
    ("settings", "room", "words"),
    [
        ({"dtype": "torch.bfloat16"}, 512, "has dtype bfloat16; start it with --dtype float32"),
        ({"logprobs_mode": "raw_logprobs"}, 512, "start it with --logprobs-mode processed_logprob"),
        ({}, 100, "takes 100 tokens; start it with at least --max-model-len 1024"),
        ({"dtype": None}, 2048, "has dtype None"),
    ],
)
def test_a_server_with_other_settings_than_the_runs_is_refused(
    settings: dict[str, Any], room: int, words: str, servers
) -> None:
    fleet_of(servers).connect()
    servers[1].settings |= settings
    servers[1].max_model_len = room if room == 100 else 1024
    with pytest.raises(UserError, match=words) as caught:
        fleet_of(servers).connect()
    assert str(caught.value).startswith(servers[1].address)


def test_what_is_no_vllm_server_is_named() -> None:
    http_server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=http_server.serve_forever, args=(0.02,), daemon=True).start()
    address = f"http://127.0.0.1:{http_server.server_address[1]}"
    settings = {"engine": "servers", "servers": {"addresses": [address], "start_seconds": 5}}
    try:
        with pytest.raises(UserError, match=f"{address} is no vLLM server: GET /health gives HTTP"):
            ServerSampler(Path("nowhere"), Sampling.model_validate(settings))
    finally:
        http_server.shutdown()
        http_server.server_close()


def test_a_server_that_is_not_there_in_time_is_named(servers) -> None:
    gone = servers.pop()
    gone.close()
    with pytest.raises(UserError, match=f"{gone.address} is not ready within") as caught:
        fleet_of([*servers, gone], start_seconds=0.3).connect()
    assert "start_seconds" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt_token_ids": [4]}, "another prompt was answered"),
        ({"finish_reason": "abort"}, "finish_reason abort"),
        ({"logprobs": {"token_logprobs": [-0.5]}}, "2 tokens, log-probabilities of shape"),
        ({"token_ids": None}, "lacks token ids"),
        ({"logprobs": None}, "lacks token ids or log-probabilities"),
    ],
)
def test_an_answer_that_is_not_whole_is_refused(change: dict[str, Any], words: str) -> None:
    whole = [choice([3, 4], index) for index in (1, 0)]
    first, second = read_completions({"choices": whole}, [3, 4], 2)
    assert (first.token_ids, second.token_ids) == ((3, 0), (3, 1))  # by index
    with pytest.raises(UserError, match=words):
        read_completions({"choices": [whole[0], whole[1] | change]}, [3, 4], 2)
    with pytest.raises(UserError, match="2 answers came, asked was for 3"):
        read_completions({"choices": whole}, [3, 4], 3)


def test_a_score_has_the_prompts_log_probabilities_and_that_of_the_last_token() -> None:
    tables = [None, {"4": {"logprob": -1.0}, "9": {"logprob": -0.1}}]
    last = {"top_logprobs": [{"token_id:2": -0.1, "token_id:5": -3.0}]}
    answer = {"choices": [{"prompt_logprobs": tables, "logprobs": last}]}
    np.testing.assert_array_equal(read_score(answer, [3, 4, 5]), np.float32([0, -1, -3]))
    with pytest.raises(UserError, match="lacks prompt_logprobs"):
        read_score(answer, [3, 6, 5])


def served(count: int, width: int = 1, devices: list[int] | None = None) -> Sampling:
    tree = {"engine": "servers", "servers": {"count": count}, "tensor_parallel_size": width}
    return Sampling.model_validate(tree | {"devices": devices})


@pytest.mark.parametrize(
    ("settings", "visible", "expected"),
    [
        (served(2), None, ["0", "1"]),
        (served(2, 2), None, ["0,1", "2,3"]),
        (served(2, 2, [7, 6, 1, 0]), None, ["7,6", "1,0"]),
        (served(2), "GPU-a, GPU-b", ["GPU-a", "GPU-b"]),
        (served(2, 1, [3, 2]), "4,5,6,7", ["7", "6"]),
    ],
)
def test_each_server_has_accelerators_of_its_own(
    settings: Sampling, visible: str | None, expected: list[str]
) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = [devices_of(number, settings, environ) for number in range(2)]
    assert found == [{"CUDA_VISIBLE_DEVICES": one} for one in expected]


def test_accelerators_that_are_all_hidden_stay_hidden() -> None:
    assert devices_of(0, served(2), {"CUDA_VISIBLE_DEVICES": ""}) == {}


def test_an_accelerator_that_is_not_visible_is_named() -> None:
    with pytest.raises(UserError, match=r"server 1 needs accelerators \[1\].*leaves 1"):
        devices_of(1, served(2), {"CUDA_VISIBLE_DEVICES": "5"})


def test_servers_on_cpu_share_the_cores_unless_the_user_says_otherwise() -> None:
    name, cores = "VLLM_CPU_OMP_THREADS_BIND", [2, 3, 5, 7, 11]
    found = [cores_of(number, served(2), {}, cores) for number in range(2)]
    assert found == [{name: "2,3"}, {name: "5,7"}]
    assert cores_of(1, served(2, 2), {}, cores) == {name: "5|7"}
    assert cores_of(0, served(1), {}, cores) == {}
    assert cores_of(0, served(9), {}, cores) == {}
    assert cores_of(0, served(2), {name: "0"}, cores) == {}
