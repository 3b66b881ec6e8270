"""The one place where answers become scores, whatever the environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.environments.protocol import Judged, TrainingEnvironment
from training.errors import UserError


def judge(environment: TrainingEnvironment, instances: Any, texts: Sequence[str]) -> Judged:
    """Let an environment judge B answers, one per instance, and refuse scores that can't be used.

    Raises:
        UserError: A reward is not finite, or an answer is best without being valid or valid without
            being parsed: learning from such scores would go wrong in silence.
    """
    judged = environment.judge(instances, texts)
    rewards, valid, best, parsed, _ = judged.scores
    for problem, rows in (
        ("its reward is not finite", ~np.isfinite(rewards)),
        ("it is best, but not valid", best & ~valid),
        ("it is valid, but not parsed", valid & ~parsed),
    ):
        if rows.any():
            row = int(np.flatnonzero(rows)[0])
            raise UserError(
                f"environment {environment.domain.name}: score of the answer {texts[row]!r:.100}: "
                f"{problem} (reward {rewards[row]}, valid {bool(valid[row])}, "
                f"best {bool(best[row])}, parsed {bool(parsed[row])})"
            )
    return judged
