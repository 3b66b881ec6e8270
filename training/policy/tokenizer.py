"""Functions that load tokenizers, render prompts, and train tokenizers for new policies."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from engineer.engineers.language_model import make_reasoning_suffix
from jaxlake.board.grids import FROZEN_SYMBOL, GOAL_SYMBOLS, HOLE_SYMBOL, START_SYMBOLS
from jaxlake.language.thinking import THINKING_TAGS, opening_tag
from training.errors import UserError

PAD = "<|endoftext|>"
START = "<|im_start|>"
END = "<|im_end|>"
SPECIAL_TOKENS = (PAD, START, END)

# Chat templates see this date as today's, so that prompts are reproducible. transformers passes no
# callables to templates. A macro therefore replaces each code that `strftime` documents.
_DATE = datetime(2024, 7, 26)
_DATE_MACRO = (
    "{% macro strftime_now(format) %}{{ format"
    + "".join(f" | replace('%{code}', '{_DATE:%{code}}')" for code in "aAwdbBmyYHIpMSfjUWcxX")
    + " }}{% endmacro %}\n"
)

_THINKING_TAGS = {mark.lower() for pair in THINKING_TAGS.items() for mark in pair}

NUM_BYTES = 256

# A token is at most a word or a digit with its leading space, punctuation, or a line break. Numbers
# are therefore split into digits, and every cell of a board is one token. A number up to 10 right
# after a word belongs to its token, because compact contexts have such symbols
# (`engineer.context.symbols`).
_TOKEN_PATTERN = (
    r" ?[a-z]+(?:10|[0-9])(?![\p{L}\p{N}])"
    r"| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\n|[^\S\n]+(?!\S)|[^\S\n]"
)

# Turns alternate between user and policy, so small models need no tokens for the roles' names.
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


def prompt_text(
    tokenizer: Any, text: str, *, chat: bool, thinking: bool = False, reasoning: str | None = None
) -> str:
    """Return a prompt, up to the start of the answer.

    With `chat`, the template of the tokenizer is applied. `reasoning` was written by the model
    earlier: the prompt includes it, and the answer is the configuration that follows.

    Raises:
        UserError: The chat template can't render the prompt.
    """
    if chat:
        messages = [{"role": "user", "content": text}]
        text = chat_text(tokenizer, messages, add_generation_prompt=True, enable_thinking=thinking)
    if reasoning is None:
        return text
    # Some templates open the thinking block at the end of the prompt.
    open_tag = opening_tag(text) if chat else ""
    reasoning = reasoning.removeprefix(open_tag)
    return text + reasoning + make_reasoning_suffix(open_tag + reasoning)


def chat_text(tokenizer: Any, messages: Sequence[Mapping[str, str]], **options: Any) -> str:
    """Return messages rendered with the tokenizer's chat template.

    `options` are variables of the template.

    Raises:
        UserError: The tokenizer has no template, or several without a default, or the template
            fails.
    """
    try:
        return str(
            tokenizer.apply_chat_template(
                messages,
                chat_template=_DATE_MACRO + tokenizer.get_chat_template(),
                tokenize=False,
                **options,
            )
        )
    except Exception as error:  # Jinja and expressions in a template may raise anything
        reason = " ".join(str(error).split())
        raise UserError(
            f"the chat template can't render a prompt ({type(error).__name__}: {reason:.200}); "
            "it must be a Jinja template that accepts a user message, and be named default if "
            "there are several"
        ) from error


def decode_answer(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Return the text of tokens without special tokens, but with thinking marks."""
    hidden_ids = _get_hidden_ids(tokenizer)
    if hidden_ids is None:
        return str(tokenizer.decode(token_ids, skip_special_tokens=True))
    visible_ids = [token for token in token_ids if token not in hidden_ids]
    return str(tokenizer.decode(visible_ids, skip_special_tokens=False))


def has_special_marks(tokenizer: Any) -> bool:
    """Return whether thinking marks are special tokens, which ordinary decoding omits."""
    return _get_hidden_ids(tokenizer) is not None


@lru_cache(maxsize=8)
def _get_hidden_ids(tokenizer: Any) -> frozenset[int] | None:
    """Return the special tokens except thinking marks, or None if no mark is special."""
    specials = {n: token for n, token in tokenizer.added_tokens_decoder.items() if token.special}
    hidden_ids = {n for n, token in specials.items() if token.content.lower() not in _THINKING_TAGS}
    return frozenset(hidden_ids) if len(hidden_ids) < len(specials) else None


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer (Sennrich et al. 2016; on bytes, Radford et al. 2019).

    The result is deterministic. Decoding inverts encoding for texts without special tokens. All
    symbols of boards are added once per text, so that every cell is one token even if the texts
    have fewer agents. Special tokens come first in the vocabulary.

    Raises:
        ValueError: `texts` is empty, or the bytes and special tokens don't fit in `vocab_size`.
    """
    min_size = NUM_BYTES + len(SPECIAL_TOKENS)
    if vocab_size < min_size:
        raise ValueError(
            f"vocab_size must be at least {min_size} ({NUM_BYTES} bytes and {len(SPECIAL_TOKENS)} "
            f"special tokens), got {vocab_size}"
        )
    corpus = list(texts)
    if not corpus:
        raise ValueError("texts must not be empty")
    symbols = FROZEN_SYMBOL + HOLE_SYMBOL + START_SYMBOLS + GOAL_SYMBOLS
    symbol_text = "".join(f" {symbol}" for symbol in symbols)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_TOKEN_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*corpus, *[symbol_text] * len(corpus)], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        clean_up_tokenization_spaces=False,
        chat_template=_CHAT_TEMPLATE,
    )


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a Hugging Face folder, a `PreTrainedTokenizerBase`.

    `AutoTokenizer` works for all folders, but importing it takes seconds because it imports torch.
    Folders that name `PreTrainedTokenizerFast` are therefore loaded with this class directly.

    Raises:
        OSError: The folder contains no tokenizer.
        ValueError: The tokenizer's files are invalid.
    """
    try:
        return _load(folder)
    except (OSError, ValueError):
        raise
    except Exception as error:  # transformers may raise anything for invalid files
        raise ValueError(f"{type(error).__name__}: {' '.join(str(error).split()):.200}") from error


def _load(folder: Path) -> Any:
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        if settings["tokenizer_class"] == PreTrainedTokenizerFast.__name__:
            return PreTrainedTokenizerFast.from_pretrained(folder)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass  # AutoTokenizer knows more classes, and raises a better error
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
