"""Two real vLLM servers on this machine: the engine's answers, its weights, and one of them killed.

The servers are started once. The tests that kill them are the last ones, in this order.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jax
import numpy as np
import psutil
import pytest

from tests.paths import TINY as TINY_FILE
from training.errors import UserError
from training.policy.policy import Policy, load_policy, make_policy
from training.sampling.sampler import Completion, check_agreement
from training.sampling.servers.sampler import ServerSampler
from training.sampling.vllm_sampler import VllmSampler
from training.schema import Sampling, load
from training.weight_transfer.checksums import SyncError
from training.weight_transfer.transport import FolderTransport

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1800)]

TINY = load(TINY_FILE)
PROMPTS = [[5, 30, 31, 90, 120, 7, 8], [5, 30, 31, 90], [44, 3], [9, 10, 11] * 7, [12], [13, 14]]
SEQUENCES = [PROMPTS[0] * times for times in (1, 4)]
ENGINE = {"max_model_len": 512, "max_num_seqs": 64}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Any]:
    folder = tmp_path_factory.mktemp("policy") / "initial"
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT", '{"3":{"data_ratio":0.5,"hole_ratio":0.25}}'] * 4
    make_policy(folder, TINY.model, texts, max_len=512, seed=0)
    return load_policy(folder, TINY)


@pytest.fixture(scope="module")
def folder(policy: tuple[Policy, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, params = policy
    folder = tmp_path_factory.mktemp("engine") / "engine"
    made.export(params, folder, untied=True)
    return folder


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[ServerSampler]:
    section = {"count": 2, "start_seconds": 1200}
    settings = Sampling.model_validate({"engine": "servers", "servers": section, **ENGINE})
    sampler = ServerSampler(folder, settings)
    yield sampler
    sampler.close()


@pytest.fixture(scope="module")
def in_process(folder: Path) -> Iterator[VllmSampler]:
    engine = VllmSampler(folder, Sampling.model_validate(ENGINE))
    yield engine
    engine.close()


@pytest.fixture
def synced(servers: ServerSampler, policy: tuple[Policy, Any]) -> ServerSampler:
    """The servers with the policy's weights."""
    made, params = policy
    servers.sync(made.tensors(params))
    return servers


def draw(sampler: Any, **changes: Any) -> list[list[Completion]]:
    arguments: dict[str, Any] = {"n": 3, "temperature": 1.0, "max_tokens": 24, "seed": 5}
    return sampler.sample(PROMPTS, **(arguments | {"stop_token_ids": [2]} | changes))


def tokens(groups: list[list[Completion]]) -> list[list[tuple[int, ...]]]:
    return [[one.token_ids for one in group] for group in groups]


def moved(params: Any, scale: float = 0.2) -> Any:
    keys = iter(jax.random.split(jax.random.key(9), 64))
    return jax.tree.map(
        lambda leaf: leaf + scale * jax.random.normal(next(keys), leaf.shape), params
    )


def process_of(sampler: ServerSampler, place: int) -> Any:
    return sampler._fleet._servers[place].process


@pytest.mark.parametrize("changes", [{"n": 1, "temperature": 0.0}, {}, {"temperature": 0.7}])
def test_servers_answer_as_the_engine_in_process_does(
    changes: dict[str, Any], synced: ServerSampler, in_process: VllmSampler
) -> None:
    ours, theirs = draw(in_process, **changes), draw(synced, **changes)
    assert tokens(theirs) == tokens(ours)
    for one, other in zip(ours, theirs, strict=True):
        for completion, served in zip(one, other, strict=True):
            np.testing.assert_allclose(served.logprobs, completion.logprobs, atol=1e-4)
            assert served.truncated == completion.truncated


def test_chosen_places_are_answered_as_among_all(synced: ServerSampler) -> None:
    everything = tokens(draw(synced))
    assert tokens(draw(synced, chosen=[4, 1])) == [everything[4], everything[1]]
    assert tokens(draw(synced, seed=6)) != everything
    assert draw(synced, chosen=[]) == []


def test_a_form_is_kept_to(synced: ServerSampler, policy: tuple[Policy, Any]) -> None:
    groups = draw(synced, form="(UP|DOWN)", n=2)
    texts = {policy[0].decode(one.token_ids) for group in groups for one in group}
    assert texts == {"UP", "DOWN"}


def test_weights_reach_both_servers_bit_by_bit_and_both_say_so(
    synced: ServerSampler, policy: tuple[Policy, Any], in_process: VllmSampler
) -> None:
    made, params = policy
    first, before = synced.weight_version, tokens(draw(synced, temperature=0.0, n=1))
    new = moved(params)
    synced.sync(made.tensors(new))
    assert synced.weight_version != first
    versions = synced._fleet.call("GET", "/weight_info")
    assert [one["weight_version"] for one in versions.values()] == [synced.weight_version] * 2
    assert check_agreement(synced, SEQUENCES, made.logprobs(new, SEQUENCES), 1e-3) <= 1e-3
    in_process.sync(made.tensors(new))
    assert in_process.weight_version == synced.weight_version
    greedy = {"temperature": 0.0, "n": 1}
    expected = tokens(draw(in_process, **greedy))
    assert expected != before
    # Each prompt by each server: the second time round, shares are exchanged.
    assert tokens(draw(synced, **greedy)) == expected
    synced._fleet._servers.reverse()
    try:
        assert tokens(draw(synced, **greedy)) == expected
    finally:
        synced._fleet._servers.reverse()
        in_process.sync(made.tensors(params))


def test_a_server_that_misses_an_update_stops_the_sync_by_its_name(
    synced: ServerSampler, policy: tuple[Policy, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, params = policy
    fleet = synced._fleet
    left_out = fleet._servers[1]
    update = fleet.update_weights

    def update_the_first(request: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(fleet, "_servers", fleet._servers[:1])
            update(request)

    monkeypatch.setattr(fleet, "update_weights", update_the_first)
    with pytest.raises(SyncError, match="weight tensors in the engine are not the tr") as caught:
        synced.sync(made.tensors(moved(params)))
    assert str(caught.value).startswith(left_out.address)
    with pytest.raises(SyncError, match="were not given weights, or a sync of them failed"):
        draw(synced)
    monkeypatch.undo()
    synced.sync(made.tensors(params))
    draw(synced)


def test_weights_that_somebody_else_gave_a_server_are_refused_by_version(
    synced: ServerSampler,
) -> None:
    stale, held = synced._fleet._servers[0], synced.weight_version
    body = {"new_version": "of another run"}
    httpx2.post(f"{stale.address}/update_weight_version", json=body, timeout=60).raise_for_status()
    with pytest.raises(SyncError, match=f"version of another run, expected is {held}") as caught:
        draw(synced)
    assert str(caught.value).startswith(stale.address)


def test_servers_elsewhere_get_their_weights_through_a_folder(
    servers: ServerSampler, policy: tuple[Policy, Any], folder: Path, tmp_path: Path
) -> None:
    """They are those that were started here, found by their addresses."""
    made, params = policy
    addresses = [server.address for server in servers._fleet._servers]
    section = {"addresses": addresses, "folder": str(tmp_path / "shared")}
    settings = Sampling.model_validate({"engine": "servers", "servers": section, **ENGINE})
    elsewhere = ServerSampler(folder, settings)
    assert isinstance(elsewhere._transport, FolderTransport)
    new = moved(params, 0.1)
    elsewhere.sync(made.tensors(new))
    assert check_agreement(elsewhere, SEQUENCES, made.logprobs(new, SEQUENCES), 1e-3) <= 1e-3
    elsewhere.close()
    short = settings.model_copy(update={"max_model_len": 4096})
    with pytest.raises(UserError, match="takes 512 tokens; start it with at least"):
        ServerSampler(folder, short)


def test_a_server_killed_while_it_answers_leaves_nothing_unanswered(
    synced: ServerSampler, policy: tuple[Policy, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    made, params = policy
    prompts = [[5, 30, place] for place in range(3, 67)]
    question: dict[str, Any] = {"n": 1, "temperature": 0.0, "max_tokens": 200, "seed": 1}
    question["stop_token_ids"] = []
    expected = tokens(synced.sample(prompts, **question))
    synced.drop_cache()
    victim = process_of(synced, 0)
    killed: list[float] = []

    def kill() -> None:
        os.killpg(victim.pid, signal.SIGKILL)
        killed.append(time.monotonic())

    timer = threading.Timer(0.5, kill)
    timer.start()
    found = synced.sample(prompts, **question)
    assert killed, "all was answered before the kill"
    assert time.monotonic() > killed[0]
    timer.join()
    assert tokens(found) == expected
    assert f"{victim.address} is gone" in capsys.readouterr().out
    # Syncs and answers go on with the other one.
    synced.sync(made.tensors(moved(params)))
    assert len(synced._fleet.live) == 1
    draw(synced)


def test_without_any_server_left_one_line_says_so(servers: ServerSampler) -> None:
    """The engine of the last one is killed, and the process that speaks HTTP is not."""
    (last,) = servers._fleet.live

    def kill() -> None:
        assert last.process is not None
        for child in psutil.Process(last.process.pid).children(recursive=True):
            child.kill()

    def ask_for_ever() -> None:
        while True:
            draw(servers, max_tokens=300, stop_token_ids=[])

    threading.Timer(0.5, kill).start()
    with pytest.raises(UserError, match="all 2 vLLM servers are gone") as caught:
        ask_for_ever()
    assert "\n" not in str(caught.value)
    assert "goes on from its last checkpoint" in str(caught.value)
