"""Data exchanged between the processes of a run is never executed."""

import base64
import json
import pickle
import zlib
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from training import processes
from training.rollout import instances
from training.rollout.instances import BoardRequest, draw_boards


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let this process be the second of two; it returns the list of messages of the first."""
    sent: list[str] = []
    monkeypatch.setattr(processes, "is_single_process", lambda: False)
    monkeypatch.setattr(instances, "is_single_process", lambda: False)
    monkeypatch.setattr(processes, "is_first", lambda: not sent)

    def gather_values(what: str, value: str = "") -> list[str]:
        if value:
            sent.append(value)
        return sent

    monkeypatch.setattr(processes, "gather_values", gather_values)
    return sent


def test_call_in_first_is_bitwise_exact(two_processes):
    request = BoardRequest(3, 0.1, 0.5, 4, 2)
    draw = lambda: draw_boards(jax.random.key(0), [request], max_size=4, max_candidates=2000)  # noqa: E731
    first, second = draw(), draw()
    leaves = zip(*(jax.tree.leaves(batch[0].instances) for batch in (first, second)), strict=True)
    for sent, received in [*leaves, (first[0].solutions.plan, second[0].solutions.plan)]:
        assert np.asarray(sent).dtype == received.dtype
        np.testing.assert_array_equal(sent, received)
    assert first[1] == second[1]


def test_call_in_first_unpickles_nothing(two_processes, tmp_path):
    class Attack:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "executed"), "w"))

    packed = zlib.compress(pickle.dumps((Attack(), None)))
    two_processes.append(base64.b85encode(packed).decode())
    with pytest.raises(ValueError, match=r"codec|invalid|Expecting"):
        processes.call_in_first("a value", lambda: None)
    assert not (tmp_path / "executed").exists()
    with pytest.raises(TypeError):
        json.dumps(object(), default=processes._array_to_json)


def test_join_binds_to_the_given_address(monkeypatch):
    called: dict[str, Any] = {}
    fake = SimpleNamespace(initialize=lambda *_, **options: called.update(options))
    monkeypatch.setattr(processes.jax, "distributed", fake)
    for process, bound in ((0, "10.0.0.1:1234"), (1, None)):
        processes.join(processes.ClusterSettings("10.0.0.1:1234", 2, process, 60))
        assert called["coordinator_bind_address"] == bound
