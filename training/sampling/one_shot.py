"""One answer from another model, in a process of its own: its memory is free again afterwards.

Run as `python -m training.sampling.one_shot`: a JSON request on standard input, the answer as JSON
on the last line of standard output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from engineer import EngineerError
from training.config import EngineerChoice, Sampling
from training.environment import prepare


def generate_elsewhere(
    model: str,
    text: str,
    *,
    settings: Sampling,
    choice: EngineerChoice,
    seed: int,
    json_schema: dict[str, Any],
) -> str:
    """Start `model` (hub name or folder) in vLLM, ask it once, and let it go.

    Raises:
      EngineerError: it could not be started, or did not answer within `choice.timeout_seconds`.
    """
    request = {
        "model": model,
        "text": text,
        "settings": settings.model_dump(mode="json"),
        "temperature": choice.temperature,
        "max_tokens": choice.max_tokens,
        "seed": seed,
        "json_schema": json_schema,
    }
    try:
        process = subprocess.run(
            [sys.executable, "-m", "training.sampling.one_shot"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=choice.timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineerError(
            f"{model}: no answer within engineer.timeout_seconds = {choice.timeout_seconds:g}"
        ) from error
    if process.returncode:
        problem = process.stderr.strip().splitlines()[-1:] or ["no message"]
        raise EngineerError(f"{model}: exit status {process.returncode}: {problem[0]}")
    return json.loads(process.stdout.splitlines()[-1])["answer"]


def _answer(request: dict[str, Any]) -> str:
    from transformers import AutoTokenizer

    from training.language.prompts import chat_messages
    from training.model import huggingface
    from training.sampling.vllm_sampler import VllmSampler

    folder = huggingface.resolve(request["model"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = request["text"]
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(
            chat_messages(text), tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
    sampler = VllmSampler(folder, Sampling(**request["settings"]), seed=0)
    ((completion,),) = sampler.sample(
        [tokenizer.encode(text, add_special_tokens=False)],
        n=1,
        temperature=request["temperature"],
        max_tokens=request["max_tokens"],
        stop_token_ids=[tokenizer.eos_token_id],
        seed=request["seed"],
        json_schema=request["json_schema"],
    )
    return str(tokenizer.decode(list(completion.token_ids), skip_special_tokens=True))


def main() -> int:
    """Answer the request on standard input."""
    prepare()
    from training.errors import UserError

    try:
        answer = _answer(json.load(sys.stdin))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps({"answer": answer}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
