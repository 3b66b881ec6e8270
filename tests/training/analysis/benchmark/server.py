"""A server that speaks OpenAI's protocol and answers with the base model, sampled in JAX."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.paths import ROOT
from tests.training.sampling.stand_in_server import StandInServer
from training.analysis.evaluation import open_frozen_policy
from training.policy.model_folders import resolve_model
from training.sampling.sampler import SamplingRequest
from training.schema import load

SETTINGS = ["sampling.engine=jax", "validation.temperature=0", "sampling.max_num_seqs=32"]
"""Overrides of the miniature configuration for the base model's answers."""

API_KEY = "sk-kept-out-of-every-file-and-message"


class ModelServer(StandInServer):
    """Answers /v1/completions; each request is sampled by itself."""

    def __init__(self, policy: Any, sampler: Any) -> None:
        self._policy, self._sampler, self._lock = policy, sampler, threading.Lock()
        super().__init__()
        self.get_status, self.error_body = self._refuse, f"the model of {API_KEY} was taken away"
        self.reset()

    @property
    def url(self) -> str:
        return f"{self.address}/v1"

    def reset(self) -> None:
        self.num_busy = self.num_served = 0  # requests to reject as busy; answers so far
        self.max_served: int | None = None  # number of answers before all requests fail
        self.calls.clear()

    def _refuse(self, path: str, body: Any) -> int | None:
        if self.num_busy:
            self.num_busy -= 1
            return 503
        return 400 if self.max_served is not None and self.num_served >= self.max_served else None

    def answer(self, path: str, body: Any) -> Any:
        request = SamplingRequest(
            prompts=[self._policy.encode_prompt(body["prompt"])],
            n=1,
            temperature=body["temperature"],
            max_tokens=body["max_tokens"],
            stop_token_ids=self._policy.stop_ids,
            seed=body["seed"],
        )
        with self._lock:
            ((completion,),) = self._sampler.sample(request)
            self.num_served += 1
        text = self._policy.decode(completion.token_ids)
        usage = {"completion_tokens": len(completion.token_ids)}
        return {"choices": [{"text": text}], "usage": usage}


@contextmanager
def serve_model() -> Iterator[ModelServer]:
    """Serve the base model until the block ends."""
    config = load(ROOT / "configs/miniature.yaml", SETTINGS)
    frozen_policy = open_frozen_policy(config, resolve_model("jaxlake-base"))
    with frozen_policy as (policy, sampler), ModelServer(policy, sampler) as server:
        yield server
        server.shutdown()
