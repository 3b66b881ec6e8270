"""The engineer's prompt: a module for each block, what is always there, and what is cut first."""

from engineer.context.budget import CUTS
from engineer.context.build import (
    BLOCKS,
    STYLES,
    BlockName,
    Context,
    ContextTooLongError,
    Style,
    build_context,
)
from engineer.context.view import View

__all__ = [
    "BLOCKS",
    "CUTS",
    "STYLES",
    "BlockName",
    "Context",
    "ContextTooLongError",
    "Style",
    "View",
    "build_context",
]
