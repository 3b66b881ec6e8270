"""The policy: a decoder with its tokenizer, which encodes prompts and decodes answers."""

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
from jaxlake.language.thinking import opening_tag
from training.errors import UserError
from training.learner.batching import pad_sequences
from training.policy import huggingface
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.kernels import select_attention
from training.policy.logprobs import token_logprobs
from training.policy.lora import add_adapters
from training.policy.parameters import SHARDING_RULES, make_mesh
from training.processes import is_first, is_single_process, local_copy, wait_for_all
from training.prompts import board_prompt
from training.schema import ModelConfig, PromptConfig, RunConfig

_MAX_MARK_TOKENS = 16
"""Maximum number of tokens of an opening thinking mark and the whitespace after it."""


@dataclass(frozen=True)
class Policy:
    """A policy without its weights, which are passed separately as `params`."""

    graphdef: nnx.GraphDef  # the decoder
    tokenizer: Any  # as transformers loads it
    folder: Path  # the Hugging Face folder of both
    prompt: PromptConfig
    length_bucket: int  # sequence lengths are padded to multiples of this
    stop_ids: tuple[int, ...]  # the tokens that end an answer, in every engine

    @property
    def pad_id(self) -> int:
        """The padding token, which is always masked."""
        pad_token_id = self.tokenizer.pad_token_id
        return self.tokenizer.eos_token_id if pad_token_id is None else pad_token_id

    def encode_board(self, board: Instance) -> list[int]:
        """Return the token ids of the prompt for one unbatched board."""
        return self.encode_prompt(board_prompt(board, self.prompt))

    def encode_prompt(
        self, text: str, *, thinking: bool = False, reasoning: str | None = None
    ) -> list[int]:
        """Return the token ids of a prompt, up to the start of the answer.

        A chat template writes all special tokens itself. Plain prompts get the tokenizer's initial
        tokens, such as Llama's `<|begin_of_text|>`. `thinking` takes precedence over
        `prompt.thinking`. `prompt_text` explains `reasoning`.
        """
        from training.policy.tokenizer import prompt_text

        prompt = prompt_text(  # includes the rules, so no system turn is needed
            self.tokenizer,
            text,
            chat=self.prompt.chat,
            thinking=thinking or self.prompt.thinking,
            reasoning=reasoning,
        )
        return self.tokenizer.encode(prompt, add_special_tokens=not self.prompt.chat)

    def encode_answer(self, text: str) -> list[int]:
        """Return the token ids of a complete answer, including its end token."""
        tokens = self.tokenizer.encode(text, add_special_tokens=False)
        return [*tokens, self.tokenizer.eos_token_id]

    def encode_examples(
        self, examples: Iterable[tuple[str, str]]
    ) -> list[tuple[list[int], list[int]]]:
        """Return the token ids of pairs of a prompt and an answer to imitate."""
        return [(self.encode_prompt(prompt), self.encode_answer(text)) for prompt, text in examples]

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text without a chat template."""
        return len(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int], prompt: Sequence[int] = ()) -> str:
        """Return the text of an answer without special tokens.

        If the prompt ends with an opening thinking mark, the text starts with this mark.
        """
        from training.policy.tokenizer import decode_answer

        prompt_end = decode_answer(self.tokenizer, prompt[-_MAX_MARK_TOKENS:])
        return opening_tag(prompt_end) + decode_answer(self.tokenizer, token_ids)

    def logprobs(self, params: Any, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Return the trainer's log-probabilities at temperature 1, float32 per sequence, nats.

        The last sequence is repeated to fill all devices. See `Sampler.score`.
        """
        mesh = nnx.merge(self.graphdef, params).mesh
        num_padding = 0 if mesh is None else -len(sequences) % mesh.shape[SHARDING_RULES["batch"]]
        rows = [*sequences, *[sequences[-1]] * num_padding]
        batch = pad_sequences(rows, [()] * len(rows), bucket=self.length_bucket, pad_id=self.pad_id)
        logprobs = _logprobs(params, batch.input_ids, batch.positions, batch.mask, self.graphdef)
        array = np.asarray(local_copy(logprobs))
        return [array[row, : len(sequence)] for row, sequence in enumerate(sequences)]

    def tensors(self, params: Any) -> Iterable[tuple[str, Any]]:
        """Yield the weights by Hugging Face's names, with an untied head, as vLLM expects them."""
        return huggingface.state_tensors(nnx.merge(self.graphdef, params), untied=True)

    def export(self, params: Any, folder: Path, *, untied: bool = False) -> None:
        """Write a Hugging Face folder for transformers and vLLM.

        In a run of several processes, all of them must call this. Process 0 writes, and the others
        wait until the folder is complete.
        """
        model = nnx.merge(self.graphdef, params)
        if is_first():
            huggingface.save(model, folder, tokenizer_from=self.folder, untied=untied)
        else:
            for _ in huggingface.state_tensors(model, untied=untied):
                pass  # gathering sharded tensors needs all processes
        wait_for_all(f"the export of {folder.name}")


@functools.partial(jax.jit, static_argnames="graphdef")
def _logprobs(
    params: Any, input_ids: Any, positions: Any, mask: Any, graphdef: nnx.GraphDef
) -> jax.Array:
    return token_logprobs(nnx.merge(graphdef, params), input_ids, positions, mask)


def write_random_policy(
    folder: Path, settings: ModelConfig, texts: Sequence[str], *, max_len: int, seed: int
) -> None:
    """Write a policy with random weights and a tokenizer trained on `texts` to `folder`."""
    from training.policy.tokenizer import train_tokenizer

    tokenizer = train_tokenizer(texts, settings.scratch.vocab_size)
    shape = settings.scratch.model_dump() | {"vocab_size": len(tokenizer)}
    config = DecoderConfig(**shape, max_position_embeddings=max_len, tie_word_embeddings=False)
    model = Decoder(config, rngs=nnx.Rngs(seed))
    with tempfile.TemporaryDirectory() as tokenizer_folder:
        tokenizer.save_pretrained(tokenizer_folder)
        huggingface.save(model, folder, tokenizer_from=Path(tokenizer_folder))


def load_run_policy(
    folder: Path, config: RunConfig, *, param_dtype: str = "float32"
) -> tuple[Policy, Any]:
    """Check that the model supports `sampling.max_model_len`, and load the policy of a run."""
    from training.policy.model_check import warn_of_length

    warn_of_length(huggingface.read_config(folder), config.sampling.max_model_len)
    return load_policy(
        folder,
        config.model,
        config.prompt,
        length_bucket=config.grpo.length_bucket,
        seed=config.seed,
        param_dtype=param_dtype,
    )


def load_policy(
    folder: Path,
    settings: ModelConfig,
    prompt: PromptConfig,
    *,
    length_bucket: int,
    seed: int = 0,
    param_dtype: str = "float32",
) -> tuple[Policy, Any]:
    """Load a policy and its weights from a Hugging Face folder.

    With `model.lora`, new adapters are added, which don't change the output. Sequences are padded
    to multiples of `length_bucket`.

    Raises:
        UserError: The folder is not a valid model with a tokenizer (see `open_tokenizer`), or the
            mesh does not match the devices or the weights.
    """
    from training.policy.model_check import open_tokenizer

    num_devices = settings.mesh.fsdp * settings.mesh.tensor
    if num_devices > jax.device_count():
        raise UserError(
            f"model.mesh must have at most {jax.device_count()} devices, got "
            f"{settings.mesh.fsdp} x {settings.mesh.tensor}"
        )
    if not is_single_process() and num_devices < jax.device_count():
        raise UserError(
            f"model.mesh must use all {jax.device_count()} devices of the {jax.process_count()} "
            f"processes, got {settings.mesh.fsdp} x {settings.mesh.tensor}"
        )
    mesh = make_mesh(settings.mesh.fsdp, settings.mesh.tensor) if num_devices > 1 else None
    tokenizer, stop_ids = open_tokenizer(folder, prompt)
    model = huggingface.load(
        folder,
        dtype=jnp.dtype(settings.dtype),
        param_dtype=jnp.dtype(param_dtype),
        remat=settings.remat,
        mesh=mesh,
    )
    model.attention = _select_attention(model, settings)
    if settings.lora is not None:
        add_adapters(model, settings.lora, seed=seed)
    graphdef, params = nnx.split(model)
    return Policy(graphdef, tokenizer, folder, prompt, length_bucket, stop_ids), params


def _select_attention(model: Decoder, settings: ModelConfig) -> str:
    """Return the kind of attention for JAX's default device."""
    device, config = jax.devices()[0], model.config
    # JAX calls both NVIDIA and AMD devices "gpu".
    is_amd = "rocm" in device.client.platform_version.lower()
    return select_attention(
        settings.attention,
        platform="rocm" if is_amd else device.platform,
        dtype=model.dtype,
        head_dim=config.head_dim,
        num_key_heads=config.num_key_value_heads,
        tensor_axis_size=settings.mesh.tensor,
    )
