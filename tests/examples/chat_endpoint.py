"""Serve the shipped base model through OpenAI's chat API.

`python tests/examples/chat_endpoint.py` prints the port. The model was trained without a chat
template, so the last message is its whole prompt.
"""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MODEL_FOLDER = Path(__file__).resolve().parents[2] / "training/base_model"


class _Chat(BaseHTTPRequestHandler):
    model = AutoModelForCausalLM.from_pretrained(MODEL_FOLDER, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(MODEL_FOLDER)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body["messages"][-1]["content"]
        tokens = self.tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        sequences = self.model.generate(
            **tokens, max_new_tokens=40, do_sample=False, eos_token_id=self.tokenizer.eos_token_id
        )
        begin, end = tokens["input_ids"].shape[1], sequences.shape[1]
        text = self.tokenizer.decode(sequences[0, begin:], skip_special_tokens=True)
        usage = {"prompt_tokens": begin, "completion_tokens": end - begin, "total_tokens": end}
        if body.get("stream"):
            chunks = [
                self._completion("chunk", delta={"role": "assistant", "content": text}),
                self._completion("chunk", delta={}, finish_reason="stop"),
                self._completion("chunk") | {"usage": usage},
            ]
            events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
            self._answer("text/event-stream", "".join([*events, "data: [DONE]\n\n"]))
            return
        message = {"role": "assistant", "content": text}
        completion = self._completion("", message=message, finish_reason="stop") | {"usage": usage}
        self._answer("application/json", json.dumps(completion))

    def _completion(self, kind: str, **choice: object) -> dict[str, object]:
        return {
            "id": "answer",
            "object": ".".join(filter(None, ("chat.completion", kind))),
            "created": 0,
            "model": "base",
            "choices": [{"index": 0, "finish_reason": None, **choice}] if choice else [],
        }

    def _answer(self, content_type: str, text: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), _Chat)
    print(server.server_port, flush=True)
    server.serve_forever()
