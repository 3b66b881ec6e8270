"""The prompt of a board, as the section `prompt` of the configuration asks for it."""

from __future__ import annotations

from jaxlake import Instance
from jaxlake.language.prompts import render
from jaxlake.user_code import import_function, names_code
from training.errors import UserError, shortened
from training.schema import Prompt
from training.schema.lake_sections import TEMPLATES


def board_prompt(board: Instance, prompt: Prompt) -> str:
    """Write the prompt for one unbatched board, without any chat template.

    Raises:
        UserError: The function that `prompt.template` names returns something else than a text.
    """
    template = prompt.template
    if not names_code(template):
        return render(board, prompt.style, template=template)
    text = import_function(template, TEMPLATES)(board)
    if not isinstance(text, str) or not text:
        raise UserError(f"prompt.template: {template} returned {shortened(text)}, a text is needed")
    return text
