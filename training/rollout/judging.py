"""From the text of answers to what the verifier says of them."""

from __future__ import annotations

from collections.abc import Sequence

from jaxlake.language.judging import Verdict as Verdict
from jaxlake.language.judging import judge_texts
from training.rollout.instances import InstanceSet
from training.schema import Prompt


def judge_boards(boards: InstanceSet, texts: Sequence[str], prompt: Prompt) -> Verdict:
    """Parse B answers, one per board, and verify their plans in batches on the device."""
    return judge_texts(texts, boards.instances, boards.solutions, max_steps=prompt.max_steps)
