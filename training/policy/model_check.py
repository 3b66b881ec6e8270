"""Checks that a model folder's tokenizer, chat template, end tokens and weights fit together."""

from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from training.errors import UserError
from training.policy.architectures import DecoderConfig
from training.policy.huggingface import read_config, read_json, require_weights
from training.policy.model_folders import CONFIG_FILE
from training.policy.tokenizer import chat_text, load_tokenizer, prompt_text
from training.run.progress import console
from training.schema import PromptConfig

GENERATION_FILE = "generation_config.json"

_QUESTION, _ANSWER = "Agent 0: DOWN or LEFT?", "Agent 0: LEFT"
_MAX_LISTED = 3


def open_tokenizer(folder: Path, prompt: PromptConfig) -> tuple[Any, tuple[int, ...]]:
    """Load the tokenizer of a model folder and check that it can render prompts.

    The check renders one prompt. The engine and the trainer share the token ids of this tokenizer,
    and all engines end an answer at the same tokens.

    Args:
        folder: A Hugging Face model folder; its weights are not read.
        prompt: The section `prompt` of the configuration.

    Returns:
        The tokenizer, and the ids of the tokens that end an answer.

    Raises:
        UserError: A file can't be read, a token exceeds the vocabulary of the weights, or the
            prompt can't be rendered, is not reproducible, omits the message, has unknown tokens, or
            ends with a token that ends an answer.
    """
    vocab_size = read_config(folder).vocab_size
    try:
        tokenizer = load_tokenizer(folder)
    except (OSError, ValueError) as error:
        file = folder / "tokenizer.json"
        problem = str(error) if file.exists() else f"{file.name} is missing"
        raise UserError(f"{folder}: its tokenizer can't be read: {problem}") from error
    if tokenizer.eos_token_id is None:
        raise UserError(
            f"{folder}: tokenizer_config.json must name an eos_token, which ends an answer"
        )
    _require_vocabulary(folder, tokenizer, vocab_size)
    stop_ids = get_stop_ids(folder, tokenizer)
    invalid_ids = [token_id for token_id in stop_ids if not 0 <= token_id < vocab_size]
    if invalid_ids:
        raise UserError(
            f"{folder}: eos_token_id must be 0 to {vocab_size - 1}, below the vocab_size of "
            f"{CONFIG_FILE}, got {invalid_ids[0]}"
        )
    _require_prompt(folder, tokenizer, prompt, stop_ids)
    return tokenizer, stop_ids


def require_loadable_policy(folder: Path, prompt: PromptConfig) -> None:
    """Raise a `UserError` if the policy can't be opened from a model folder; see `load_policy`."""
    open_tokenizer(folder, prompt)
    require_weights(folder)


def warn_of_length(shape: DecoderConfig, max_model_len: int) -> None:
    """Print a warning if a model has fewer positions than `sampling.max_model_len`."""
    if max_model_len > (max_positions := shape.max_position_embeddings):
        _warn(
            f"sampling.max_model_len is {max_model_len}, but the model has {max_positions} "
            f"positions (max_position_embeddings in {CONFIG_FILE}): answers to longer texts may be "
            "unusable"
        )


def get_stop_ids(folder: Path, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids of the tokens that end an answer, ascending.

    These are the tokenizer's `eos_token` and the `eos_token_id` of generation_config.json. If that
    file is missing, config.json is read instead, as in transformers and vLLM.

    Raises:
        UserError: A file can't be read, or its `eos_token_id` is neither an id nor a list of ids.
    """
    file = folder / GENERATION_FILE
    if not file.exists():
        file = folder / CONFIG_FILE
    value = read_json(file).get("eos_token_id") if file.exists() else None
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token_id) is int for token_id in ids):
        raise UserError(f"{file}: eos_token_id must be a token id or a list, got {value!r:.300}")
    tokenizer_id = tokenizer.eos_token_id
    return tuple(sorted({*ids, *([] if tokenizer_id is None else [tokenizer_id])}))


def _require_vocabulary(folder: Path, tokenizer: Any, vocab_size: int) -> None:
    """Raise a `UserError` if the tokenizer has tokens without a row in the embeddings."""
    vocabulary = tokenizer.get_vocab().items()
    overflow = sorted((token_id, text) for text, token_id in vocabulary if token_id >= vocab_size)
    if overflow:
        names = ", ".join(f"{text!r} ({token_id})" for token_id, text in overflow[:_MAX_LISTED])
        suffix = f" and {len(overflow) - _MAX_LISTED} more" if len(overflow) > _MAX_LISTED else ""
        raise UserError(
            f"{folder}: token ids of its tokenizer must be less than {vocab_size}, the vocab_size "
            f"of {CONFIG_FILE}, got {names}{suffix}: add rows to the embeddings, or name a token "
            "that the model knows"
        )
    if _is_missing_token(folder, tokenizer.eos_token):
        raise UserError(
            f"{folder}: eos_token must be a token of tokenizer.json, got "
            f"{tokenizer.eos_token!r:.300}"
        )


def _is_missing_token(folder: Path, token: str) -> bool:
    """Return whether a special token is missing from the vocabulary files of a fast tokenizer."""
    file, settings = folder / "tokenizer.json", folder / "tokenizer_config.json"
    if not file.exists() or Tokenizer.from_file(str(file)).token_to_id(token) is not None:
        return False
    entries = read_json(settings).get("added_tokens_decoder", {}) if settings.exists() else {}
    names = {entry["content"] for entry in entries.values()}
    added_file = folder / "added_tokens.json"
    if added_file.exists():
        names |= set(read_json(added_file))
    return token not in names


def _require_prompt(
    folder: Path, tokenizer: Any, prompt: PromptConfig, stop_ids: tuple[int, ...]
) -> None:
    """Raise a `UserError` if a prompt can't be rendered; warn if answers may not end."""
    if prompt.chat and not tokenizer.chat_template:
        raise UserError(
            f"prompt.chat must be false: the tokenizer of {folder} has no chat template"
        )

    def render() -> str:
        return prompt_text(tokenizer, _QUESTION, chat=prompt.chat, thinking=prompt.thinking)

    try:
        text = render()
        second_text = render()
    except UserError as error:
        raise UserError(f"{folder}: prompt.chat is true, but {error}") from error
    if text != second_text:
        raise UserError(f"{folder}: its chat template must render the same prompt every time")
    if _QUESTION not in text:
        raise UserError(
            f"{folder}: its chat template must contain the user's message, got {text!r:.200}"
        )
    ids = tokenizer.encode(text, add_special_tokens=not prompt.chat)
    if tokenizer.unk_token_id in ids:
        raise UserError(
            f"{folder}: its tokenizer encodes parts of {_QUESTION!r} as {tokenizer.unk_token}; it "
            "must have tokens for all characters of a prompt"
        )
    while ids and ids[-1] not in stop_ids and not tokenizer.decode(ids[-1:]).strip():
        ids.pop()
    if ids and ids[-1] in stop_ids:
        end = f"{tokenizer.convert_ids_to_tokens(ids[-1])!r} ({ids[-1]}), which ends an answer"
        cause = (
            "its chat template ignores add_generation_prompt, or eos_token_id of "
            f"{GENERATION_FILE} or {CONFIG_FILE} is wrong"
            if prompt.chat
            else "add_eos_token in tokenizer_config.json, or the post_processor of tokenizer.json"
        )
        raise UserError(f"{folder}: a prompt ends with the token {end}; possible causes: {cause}")
    if prompt.chat:
        _warn_of_turn_end(folder, tokenizer, stop_ids)


def _warn_of_turn_end(folder: Path, tokenizer: Any, stop_ids: tuple[int, ...]) -> None:
    """Print a warning if the chat template ends the model's turn with another token."""
    turns = [{"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}]
    try:
        text = chat_text(tokenizer, turns)
    except UserError:
        return  # some templates accept a single message only
    _, separator, suffix = text.rpartition(_ANSWER)
    ids = tokenizer.encode(suffix.lstrip(), add_special_tokens=False)
    if separator and ids and ids[0] not in stop_ids:
        turn_end, answer_ends = (
            ", ".join(f"{tokenizer.convert_ids_to_tokens(i)!r} ({i})" for i in token_ids)
            for token_ids in (ids[:1], stop_ids)
        )
        _warn(
            f"{folder}: its chat template ends the model's turn with {turn_end}, but answers end "
            f"at {answer_ends}; add {turn_end} to eos_token_id in {GENERATION_FILE}"
        )


@cache
def _warn(text: str) -> None:
    """Print a warning once, although a run opens its policy several times."""
    console.print(text, style="yellow", soft_wrap=True, markup=False, highlight=False)
