"""A server that speaks OpenAI's protocol and answers with the base model, sampled in JAX.

As a program it writes its address to the file that it is given, and serves until it is killed.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jaxlake.files import write_text_whole
from tests.paths import ROOT
from training.analysis.evaluation import frozen_policy, model_folder
from training.sampling.sampler import Question
from training.schema import load

SETTINGS = ["sampling.engine=jax", "validation.temperature=0", "sampling.max_num_seqs=32"]
"""Of the miniature, under which the base model answers."""

KEY = "sk-kept-out-of-every-file-and-message"


class ModelServer(ThreadingHTTPServer):
    """Answers /v1/completions; each request is sampled by itself."""

    daemon_threads = True

    def __init__(self, policy: Any, sampler: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.policy, self.sampler = policy, sampler
        self.lock = threading.Lock()
        self.bodies: list[dict[str, Any]] = []
        self.refuse_after: int | None = None  # answers, after which every request is refused
        self.busy = 0  # requests that are still to be told to come again
        self.answered = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def reply(self, path: str, authorization: str | None, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the status and the body of a response."""
        with self.lock:
            self.bodies.append(body)
            if authorization != f"Bearer {KEY}":
                return 401, {"error": f"not the key: {authorization}"}
            if self.busy:
                self.busy -= 1
                return 503, {"error": "busy"}
            if self.refuse_after is not None and self.answered >= self.refuse_after:
                return 400, {"error": f"the model of {authorization} was taken away"}
            if path != "/v1/completions":
                return 404, {"error": path}
            question = Question(
                prompts=[self.policy.encode_prompt(body["prompt"])],
                n=1,
                temperature=body["temperature"],
                max_tokens=body["max_tokens"],
                stop_token_ids=self.policy.stop_ids,
                seed=body["seed"],
            )
            ((completion,),) = self.sampler.sample(question)
            self.answered += 1
        text = self.policy.decode(completion.token_ids)
        usage = {"completion_tokens": len(completion.token_ids)}
        return 200, {"choices": [{"text": text}], "usage": usage}


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, content = self.server.reply(self.path, self.headers.get("authorization"), body)
        encoded = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[ModelServer]:
    """Serve the base model until the block ends."""
    config = load(ROOT / "configs/miniature.yaml", SETTINGS)
    with frozen_policy(config, model_folder("jaxlake-base")) as (policy, sampler):
        server = ModelServer(policy, sampler)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def main(address: str) -> None:
    with serving() as server:
        write_text_whole(Path(address), server.url)
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
