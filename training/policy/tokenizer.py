"""A byte-level BPE tokenizer for a policy made from scratch, trained on its own prompts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from engineer.engineers.language_model import close_reasoning
from jaxlake.board.grids import FROZEN_SYMBOL, GOAL_SYMBOLS, HOLE_SYMBOL, START_SYMBOLS
from jaxlake.language.thinking import MARKS, opening_mark
from training.errors import UserError

PAD = "<|endoftext|>"
START = "<|im_start|>"
END = "<|im_end|>"
SPECIAL_TOKENS = (PAD, START, END)

# A template that writes today's date writes this one, so that prompts are the same on every day.
_DATE = datetime(2024, 7, 26)

_THINKING_MARKS = {mark.lower() for pair in MARKS.items() for mark in pair}

NUM_BYTES = 256

# A word or one digit keeps the space before it, punctuation stays apart from both, and a line break
# joins nothing, so that every number is read digit by digit and every cell of a board is one token.
# Only a small number right after a word stays with it: the symbols of a compact context are one
# token each (`engineer.context.symbols`).
_PIECES = (
    r" ?[a-z]+(?:10|[0-9])(?![\p{L}\p{N}])"
    r"| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\n|[^\S\n]+(?!\S)|[^\S\n]"
)

# Turns alternate between user and policy, so that a miniature needn't spend tokens on their names.
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


def prompt_text(
    tokenizer: Any, text: str, *, chat: bool, thinking: bool = False, reasoning: str | None = None
) -> str:
    """Return a prompt up to where the answer begins, in the tokenizer's chat template or without.

    With `reasoning`, which a model wrote before, the answer is the configuration that follows it.

    Raises:
        UserError: The chat template can't write the prompt.
    """
    if chat:
        messages = [{"role": "user", "content": text}]
        text = chat_text(tokenizer, messages, add_generation_prompt=True, enable_thinking=thinking)
    if reasoning is None:
        return text
    # A template may have opened the thinking block itself, at the end of the prompt.
    opening = opening_mark(text) if chat else ""
    reasoning = reasoning.removeprefix(opening)
    return text + reasoning + close_reasoning(opening + reasoning)


def chat_text(tokenizer: Any, messages: Sequence[Mapping[str, str]], **options: Any) -> str:
    """Return messages in the tokenizer's chat template, which gets the options.

    Raises:
        UserError: There is no template, several without a default, or it fails.
    """
    try:
        return str(
            tokenizer.apply_chat_template(
                messages, tokenize=False, strftime_now=_DATE.strftime, **options
            )
        )
    except Exception as error:  # whatever Jinja and the expressions of a template raise
        reason = " ".join(str(error).split())
        raise UserError(
            f"the chat template can't write a prompt ({type(error).__name__}: {reason:.200}); "
            "allowed is one Jinja template, named default if there are several, that takes a "
            "message by the user"
        ) from error


def decode_answer(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Return the text of tokens, without special ones except marks of thinking blocks."""
    hidden = _hidden_tokens(tokenizer)
    if hidden is None:
        return str(tokenizer.decode(token_ids, skip_special_tokens=True))
    shown = [token for token in token_ids if token not in hidden]
    return str(tokenizer.decode(shown, skip_special_tokens=False))


def has_special_marks(tokenizer: Any) -> bool:
    """Return whether marks of thinking blocks are special tokens, which decoding leaves out."""
    return _hidden_tokens(tokenizer) is not None


@lru_cache(maxsize=8)
def _hidden_tokens(tokenizer: Any) -> frozenset[int] | None:
    """Return the special tokens that are not marks of thinking; None if no mark is special."""
    special = {n: token for n, token in tokenizer.added_tokens_decoder.items() if token.special}
    hidden = {n for n, token in special.items() if token.content.lower() not in _THINKING_MARKS}
    return frozenset(hidden) if len(hidden) < len(special) else None


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer (Sennrich et al. 2016; on bytes, Radford et al. 2019).

    The same texts in the same order give the same tokenizer. Any text that holds no special token
    comes back unchanged from its ids. The letters of a board weigh as much as if each text held
    them once, so that boards with more agents than those in the texts still cost one token per
    cell. The vocabulary has at most `vocab_size` entries, of which the special tokens are first.

    Raises:
        ValueError: There are no texts, or the bytes and special tokens don't fit in `vocab_size`.
    """
    smallest = NUM_BYTES + len(SPECIAL_TOKENS)
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size: got {vocab_size}, at least {smallest} are needed "
            f"({NUM_BYTES} bytes and {len(SPECIAL_TOKENS)} special tokens)"
        )
    corpus = list(texts)
    if not corpus:
        raise ValueError("texts: got none, at least one is needed")
    letters = "".join(f" {x}" for x in FROZEN_SYMBOL + HOLE_SYMBOL + START_SYMBOLS + GOAL_SYMBOLS)

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
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
    tokenizer.train_from_iterator([*corpus, *[letters] * len(corpus)], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        clean_up_tokenization_spaces=False,
        chat_template=_CHAT_TEMPLATE,
    )


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a Hugging Face folder, a `PreTrainedTokenizerBase`.

    `AutoTokenizer` would do for all folders, but its import takes seconds, since it brings torch.
    So a tokenizer that was made by `train_tokenizer` is loaded by the class that it names.

    Raises:
        OSError: The folder holds no tokenizer.
        ValueError: The tokenizer's files can't be read.
    """
    try:
        return _load(folder)
    except (OSError, ValueError):
        raise
    except Exception as error:  # whatever transformers meets in files that hold something else
        raise ValueError(f"{type(error).__name__}: {' '.join(str(error).split()):.200}") from error


def _load(folder: Path) -> Any:
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        if settings["tokenizer_class"] == PreTrainedTokenizerFast.__name__:
            return PreTrainedTokenizerFast.from_pretrained(folder)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass  # AutoTokenizer says what is wrong, or knows the class
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
