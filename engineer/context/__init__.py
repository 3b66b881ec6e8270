"""The engineer's prompt: `build` assembles the parts of `blocks` and cuts them to fit."""

from engineer.context.blocks import summary_question
from engineer.context.build import STYLES, Context, ContextTooLongError

__all__ = ["STYLES", "Context", "ContextTooLongError", "summary_question"]
