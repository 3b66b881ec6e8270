"""The policy: a decoder, its tokenizer, and the texts that go in and come out."""

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

from jaxlake import Instance
from jaxlake.language.thinking import opening_mark
from training.errors import UserError
from training.learner.batching import pad_sequences
from training.policy import huggingface
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.kernels import kind_for
from training.policy.logprobs import token_logprobs
from training.policy.lora import add_adapters
from training.policy.parameters import SHARDING_RULES, make_mesh
from training.processes import alone, is_first, local_copy, wait_for_all
from training.prompts import board_prompt
from training.schema import Model, Prompt, RunConfig

_LONGEST_MARK = 16
"""The most tokens of a mark that begins thinking, and of blanks after it."""


@dataclass(frozen=True)
class Policy:
    """Everything of the policy but its weights, which are passed beside it as `params`."""

    graphdef: nnx.GraphDef  # the decoder
    tokenizer: Any  # as transformers loads it
    folder: Path  # the Hugging Face folder that both came from
    prompt: Prompt
    length_bucket: int  # sequences are padded to multiples of it
    stop_ids: tuple[int, ...]  # the tokens that end an answer, in every engine

    @property
    def pad_id(self) -> int:
        """The token that pads sequences; it is masked wherever it stands."""
        pad = self.tokenizer.pad_token_id
        return self.tokenizer.eos_token_id if pad is None else pad

    def encode_board(self, board: Instance) -> list[int]:
        """Return the token ids of the prompt for one unbatched board."""
        return self.encode_prompt(board_prompt(board, self.prompt))

    def encode_prompt(
        self, text: str, *, thinking: bool = False, reasoning: str | None = None
    ) -> list[int]:
        """Return the token ids of a prompt, up to where the answer begins.

        A chat template writes all special tokens itself. A plain prompt gets those that the
        tokenizer puts before any text, such as Llama's `<|begin_of_text|>`. `thinking` switches on
        a thinking mode that `prompt.thinking` leaves off, and `reasoning` is as in `prompt_text`.
        """
        from training.policy.tokenizer import prompt_text

        prompt = prompt_text(  # the rules are part of the prompt, so there is no system turn
            self.tokenizer,
            text,
            chat=self.prompt.chat,
            thinking=thinking or self.prompt.thinking,
            reasoning=reasoning,
        )
        return self.tokenizer.encode(prompt, add_special_tokens=not self.prompt.chat)

    def encode_answer(self, text: str) -> list[int]:
        """Return the token ids of a whole answer, with the token that ends it."""
        tokens = self.tokenizer.encode(text, add_special_tokens=False)
        return [*tokens, self.tokenizer.eos_token_id]

    def encode_examples(
        self, examples: Iterable[tuple[str, str]]
    ) -> list[tuple[list[int], list[int]]]:
        """Return the token ids of prompts and of the answers to imitate."""
        return [(self.encode_prompt(prompt), self.encode_answer(text)) for prompt, text in examples]

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, without any chat template."""
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int], prompt: Sequence[int] = ()) -> str:
        """Return the text of an answer, without special tokens.

        If its prompt, given as token ids, ends with the mark that begins thinking, the text begins
        with this mark.
        """
        from training.policy.tokenizer import decode_answer

        end = decode_answer(self.tokenizer, prompt[-_LONGEST_MARK:])
        return opening_mark(end) + decode_answer(self.tokenizer, token_ids)

    def logprobs(self, params: Any, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Score tokens as the trainer does, at temperature 1; see `Sampler.score`.

        Where devices share the rows and there are too few for all of them, the last sequence is
        scored more than once.
        """
        mesh = nnx.merge(self.graphdef, params).mesh
        lacking = 0 if mesh is None else -len(sequences) % mesh.shape[SHARDING_RULES["batch"]]
        rows = [*sequences, *[sequences[-1]] * lacking]
        padded = pad_sequences(
            rows, [()] * len(rows), bucket=self.length_bucket, pad_id=self.pad_id
        )
        scored = _logprobs(params, padded.input_ids, padded.positions, padded.mask, self.graphdef)
        scores = np.asarray(local_copy(scored))
        return [scores[row, : len(sequence)] for row, sequence in enumerate(sequences)]

    def tensors(self, params: Any) -> Iterable[tuple[str, Any]]:
        """Yield the weights under Hugging Face names, with an untied head, as vLLM gets them."""
        return huggingface.state_tensors(nnx.merge(self.graphdef, params), untied=True)

    def export(self, params: Any, folder: Path, *, untied: bool = False) -> None:
        """Write a Hugging Face folder that transformers and vLLM load.

        Several processes do so together: the first writes, and the folder is there for all of them.
        """
        model = nnx.merge(self.graphdef, params)
        if is_first():
            huggingface.save(model, folder, tokenizer_from=self.folder, untied=untied)
        else:
            for _ in huggingface.state_tensors(model, untied=untied):
                pass  # the first process can't put split tensors together by itself
        wait_for_all(f"the export of {folder.name}")


@functools.partial(jax.jit, static_argnames="graphdef")
def _logprobs(
    params: Any, input_ids: Any, positions: Any, mask: Any, graphdef: nnx.GraphDef
) -> jax.Array:
    return token_logprobs(nnx.merge(graphdef, params), input_ids, positions, mask)


def make_policy(
    folder: Path, settings: Model, texts: Sequence[str], *, max_len: int, seed: int
) -> None:
    """Write a policy with random weights, and a tokenizer trained on `texts`, to `folder`."""
    from training.policy.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(texts, settings.scratch.vocab_size)
    shape = settings.scratch.model_dump() | {"vocab_size": len(tokenizer)}
    config = DecoderConfig(**shape, max_position_embeddings=max_len, tie_word_embeddings=False)
    model = Decoder(config, rngs=nnx.Rngs(seed))
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer.save_pretrained(scratch)
        huggingface.save(model, folder, tokenizer_from=Path(scratch))


def load_policy(
    folder: Path, config: RunConfig, *, param_dtype: str = "float32"
) -> tuple[Policy, Any]:
    """Read the policy of a run; see `open_policy`."""
    return open_policy(
        folder,
        config.model,
        config.prompt,
        length_bucket=config.grpo.length_bucket,
        seed=config.seed,
        param_dtype=param_dtype,
    )


def open_policy(
    folder: Path,
    settings: Model,
    prompt: Prompt,
    *,
    length_bucket: int,
    seed: int = 0,
    param_dtype: str = "float32",
) -> tuple[Policy, Any]:
    """Read a Hugging Face folder: the policy, and its weights as a pytree.

    With `model.lora` the weights have adapters beside them, which change nothing yet; the seed
    decides what they begin with.

    Raises:
        UserError: The folder can't be read as a model with a tokenizer, its parts don't fit
            together (see `open_tokenizer`), there are fewer devices than the mesh needs, they
            can't share the weights equally, or some of several processes are left out of it.
    """
    from training.policy.model_check import open_tokenizer

    devices = settings.mesh.fsdp * settings.mesh.tensor
    if devices > jax.device_count():
        raise UserError(
            f"model.mesh: {settings.mesh.fsdp} x {settings.mesh.tensor} devices asked for, "
            f"{jax.device_count()} are there"
        )
    if not alone() and devices < jax.device_count():
        raise UserError(
            f"model.mesh: got {settings.mesh.fsdp} x {settings.mesh.tensor} devices, allowed are "
            f"the {jax.device_count()} that the {jax.process_count()} processes have together"
        )
    mesh = make_mesh(settings.mesh.fsdp, settings.mesh.tensor) if devices > 1 else None
    tokenizer, stop_ids = open_tokenizer(folder, prompt)
    model = huggingface.load(
        folder,
        dtype=jnp.dtype(settings.dtype),
        param_dtype=jnp.dtype(param_dtype),
        remat=settings.remat,
        mesh=mesh,
    )
    model.attention = _attention_of(model, settings)
    if settings.lora is not None:
        add_adapters(model, settings.lora, seed=seed)
    graphdef, params = nnx.split(model)
    return Policy(graphdef, tokenizer, folder, prompt, length_bucket, stop_ids), params


def _attention_of(model: Decoder, settings: Model) -> str:
    """Choose how the model attends on JAX's default device."""
    device, config = jax.devices()[0], model.config
    # To JAX, GPUs of both makers are "gpu".
    other = "rocm" in device.client.platform_version.lower()
    return kind_for(
        settings.attention,
        platform="rocm" if other else device.platform,
        dtype=model.dtype,
        head_dim=config.head_dim,
        key_heads=config.num_key_value_heads,
        tensor=settings.mesh.tensor,
    )
