"""The prompt of a board, in the format of the section `prompt` of the configuration."""

from jaxlake import Instance
from jaxlake.language.prompts import render
from jaxlake.user_code import import_function, is_code_name
from training.errors import UserError, shorten
from training.schema import PromptConfig
from training.schema.lake_sections import TEMPLATES


def board_prompt(board: Instance, prompt: PromptConfig) -> str:
    """Return the prompt of one unbatched board, without a chat template."""
    template = prompt.template
    if not is_code_name(template):
        return render(board, prompt.style, template=template)
    text = import_function(template, TEMPLATES)(board)
    if not isinstance(text, str) or not text:
        raise UserError(f"prompt.template: {template} must return a text, got {shorten(text)}")
    return text
