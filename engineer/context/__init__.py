"""The engineer's prompt: `build` puts the parts of `blocks` together and cuts them to fit."""

from engineer.context.blocks import summary_question
from engineer.context.build import (
    BLOCKS,
    STYLES,
    BlockName,
    Context,
    ContextTooLongError,
    build_context,
)
from engineer.context.token_limit import CUTS
from engineer.context.view import ContextStyle, StageView

__all__ = [
    "BLOCKS",
    "CUTS",
    "STYLES",
    "BlockName",
    "Context",
    "ContextStyle",
    "ContextTooLongError",
    "StageView",
    "build_context",
    "summary_question",
]
