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
def first_process_messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let this process be the second of two; it returns the list of messages of the first."""
    messages: list[str] = []
    monkeypatch.setattr(processes, "is_single_process", lambda: False)
    monkeypatch.setattr(instances, "is_single_process", lambda: False)
    monkeypatch.setattr(processes, "is_first", lambda: not messages)

    def gather_values(exchange: str, value: str = "") -> list[str]:
        if value:
            messages.append(value)
        return messages

    monkeypatch.setattr(processes, "gather_values", gather_values)
    return messages


def test_call_in_first_is_bitwise_exact(first_process_messages):
    request = BoardRequest(3, 0.1, 0.5, 4, 2)
    draw = lambda: draw_boards(jax.random.key(0), [request], max_size=4, max_candidates=2000)  # noqa: E731
    first, second = draw(), draw()
    leaves = zip(*(jax.tree.leaves(batch[0].instances) for batch in (first, second)), strict=True)
    for first_leaf, second_leaf in [*leaves, (first[0].solutions.plan, second[0].solutions.plan)]:
        assert np.asarray(first_leaf).dtype == second_leaf.dtype
        np.testing.assert_array_equal(first_leaf, second_leaf)
    assert first[1] == second[1]


def test_call_in_first_unpickles_nothing(first_process_messages, tmp_path):
    class Attack:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "executed"), "w"))

    payload = zlib.compress(pickle.dumps((Attack(), None)))
    first_process_messages.append(base64.b85encode(payload).decode())
    with pytest.raises(ValueError, match=r"codec|invalid|Expecting"):
        processes.call_in_first("a value", lambda: None)
    assert not (tmp_path / "executed").exists()
    with pytest.raises(TypeError):
        json.dumps(object(), default=processes._array_to_json)


def test_join_binds_to_the_given_address(monkeypatch):
    join_options: dict[str, Any] = {}
    distributed = SimpleNamespace(initialize=lambda *_, **options: join_options.update(options))
    monkeypatch.setattr(processes.jax, "distributed", distributed)
    for index, bind_address in ((0, "10.0.0.1:1234"), (1, None)):
        processes.join(processes.ClusterSettings("10.0.0.1:1234", 2, index, 60))
        assert join_options["coordinator_bind_address"] == bind_address
