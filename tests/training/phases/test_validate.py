"""The Validate phase: requests to the engine, and prompts that are encoded only once."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.paths import TINY
from training.phases import validate as phase
from training.phases.validate import CHUNK, encode_prompts, generate_answers
from training.sampling.sampler import Completion, SamplingRequest
from training.schema import load

CONFIG = load(TINY)
NUM_BOARDS = CHUNK + 3


class _Policy:
    """Encodes a text as its length and its number, and counts how often."""

    stop_ids = (1,)

    def __init__(self) -> None:
        self.num_encoded = 0

    def encode_prompt(self, text: str) -> list[int]:
        self.num_encoded += 1
        return [len(text), int(text.split()[0])]

    def decode(self, tokens: Any, prompt: Any) -> str:
        return " ".join(map(str, tokens))


class _EchoSampler:
    """A sampler that answers each prompt with its tokens and the seed, and keeps its requests."""

    def __init__(self) -> None:
        self.requests: list[SamplingRequest] = []

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        self.requests.append(request)
        return [
            [Completion((*prompt, request.seed), np.zeros(3, np.float32), truncated=False)]
            for prompt in request.prompts
        ]


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> range:
    environment = SimpleNamespace(prompts=lambda boards: [f"{row} board" for row in boards])
    monkeypatch.setattr(phase, "get_environment", lambda config: environment)
    return range(NUM_BOARDS)


def test_cached_prompts_give_equal_answers(boards: range):
    validation = CONFIG.validation.model_copy(update={"temperature": 0.3, "seed": 70})
    config = CONFIG.model_copy(update={"validation": validation})
    policy, engine, other_engine = _Policy(), _EchoSampler(), _EchoSampler()
    prompts = encode_prompts(config, policy, boards)  # type: ignore[arg-type]
    cached_answers = generate_answers(config, policy, engine, boards, title="", prompts=prompts)  # type: ignore[arg-type]
    assert policy.num_encoded == NUM_BOARDS
    uncached_answers = generate_answers(config, policy, other_engine, boards, title="")  # type: ignore[arg-type]
    assert policy.num_encoded == 2 * NUM_BOARDS
    assert cached_answers == uncached_answers
    assert engine.requests == other_engine.requests
    requests = [
        (request.seed, request.temperature, request.n, len(request.prompts))
        for request in engine.requests
    ]
    assert requests == [(70, 0.3, 1, CHUNK), (70 + CHUNK, 0.3, 1, 3)]
    assert len(set(cached_answers)) == NUM_BOARDS
