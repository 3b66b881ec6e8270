"""The policy: a Qwen3 decoder, its tokenizer, and the words that go in and come out."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from training.config import Model, Prompt
from training.errors import UserError
from training.language.prompts import chat_messages
from training.learning.packing import pack
from training.model import huggingface
from training.model.qwen3 import Qwen3, Qwen3Config, make_mesh, token_logprobs


@dataclass(frozen=True)
class Policy:
    """Everything of the policy but its weights, which are passed beside it as `params`."""

    graphdef: nnx.GraphDef
    tokenizer: Any
    folder: Path  # the Hugging Face folder it came from
    prompt: Prompt
    length_bucket: int

    @property
    def stop_ids(self) -> list[int]:
        """The tokens that end an answer."""
        return [self.tokenizer.eos_token_id]

    @property
    def pad_id(self) -> int:
        """The token that fills rows up; it is masked wherever it stands."""
        pad = self.tokenizer.pad_token_id
        return self.tokenizer.eos_token_id if pad is None else pad

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids of a task or a context, up to where the answer begins."""
        if self.prompt.chat:
            text = self.tokenizer.apply_chat_template(
                chat_messages(text),
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=self.prompt.thinking,
            )
        return self.tokenizer.encode(text, add_special_tokens=False)

    def encode_answer(self, text: str) -> list[int]:
        """Token ids of a whole answer, with the token that ends it."""
        return [*self.tokenizer.encode(text, add_special_tokens=False), *self.stop_ids]

    def count_tokens(self, text: str) -> int:
        """How many tokens a text is, without any template."""
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""
        return self.tokenizer.decode(token_ids, skip_special_tokens=True)

    def logprobs(self, params: Any, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """The trainer's log-probability of each token given those before it, temperature 1.

        Returns: for each sequence float32 (len(sequence),), nats; the first entry is 0.
        """
        packed = pack(
            sequences, [()] * len(sequences), bucket=self.length_bucket, pad_id=self.pad_id
        )
        scores = np.asarray(
            _logprobs(params, packed.input_ids, packed.positions, packed.mask, self.graphdef)
        )
        return [scores[row, : len(sequence)] for row, sequence in enumerate(sequences)]

    def tensors(self, params: Any) -> Iterable[tuple[str, Any]]:
        """The weights under Hugging Face names, with a head of their own, as vLLM gets them."""
        return huggingface.state_tensors(nnx.merge(self.graphdef, params), untied=True)

    def export(self, params: Any, folder: Path, *, untied: bool = False) -> None:
        """Write a Hugging Face folder that transformers and vLLM load."""
        huggingface.save(
            nnx.merge(self.graphdef, params), folder, tokenizer_from=self.folder, untied=untied
        )


@functools.partial(jax.jit, static_argnames="graphdef")
def _logprobs(
    params: Any, input_ids: Any, positions: Any, mask: Any, graphdef: nnx.GraphDef
) -> jax.Array:
    return token_logprobs(nnx.merge(graphdef, params), input_ids, positions, mask)[0]


def make(folder: Path, settings: Model, texts: Sequence[str], *, max_len: int, seed: int) -> None:
    """Write a policy with random weights, and a tokenizer trained on `texts`, to `folder`."""
    from training.language.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(texts, settings.scratch.vocab_size)
    shape = settings.scratch.model_dump() | {"vocab_size": len(tokenizer)}
    config = Qwen3Config(**shape, max_position_embeddings=max_len, tie_word_embeddings=False)
    model = Qwen3(config, rngs=nnx.Rngs(seed), param_dtype=jnp.dtype(settings.param_dtype))
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.save_pretrained(scratch)
        huggingface.save(model, folder, tokenizer_from=Path(scratch))


def load(
    folder: Path, settings: Model, prompt: Prompt, *, length_bucket: int
) -> tuple[Policy, Any]:
    """Read a Hugging Face folder: the policy, and its weights as a pytree.

    Raises:
      UserError: the folder can't be read as a Qwen3 model with a tokenizer.
    """
    from transformers import AutoTokenizer

    devices = settings.mesh.fsdp * settings.mesh.tensor
    if devices > jax.device_count():
        raise UserError(
            f"model.mesh: {settings.mesh.fsdp} x {settings.mesh.tensor} devices asked for, "
            f"{jax.device_count()} are there"
        )
    mesh = make_mesh(settings.mesh.fsdp, settings.mesh.tensor) if devices > 1 else None
    try:
        model = huggingface.load(
            folder,
            dtype=jnp.dtype(settings.dtype),
            param_dtype=jnp.dtype(settings.param_dtype),
            remat=settings.remat,
            mesh=mesh,
        )
    except huggingface.ModelFolderError as error:
        raise UserError(str(error)) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: its tokenizer can't be read: {error}") from error
    if prompt.chat and not tokenizer.chat_template:
        raise UserError(f"prompt.chat: true, but the tokenizer of {folder} has no chat template")
    graphdef, params = nnx.split(model)
    return Policy(graphdef, tokenizer, folder, prompt, length_bucket), params
