"""The engineer's prompt: one module per block, `question` for what is always there."""

from engineer.context.build import (
    BLOCKS,
    STYLES,
    BlockName,
    Context,
    ContextStyle,
    ContextTooLongError,
    build_context,
)
from engineer.context.token_limit import CUTS
from engineer.context.view import StageView

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
]
