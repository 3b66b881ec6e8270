"""Steps that may have made weights NaN end the run before anything of them is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from training.errors import UserError


def require_finite(step: str, metrics: Mapping[str, Any], *, help: str) -> None:
    """Raise a `UserError` if a metric of an optimizer step is not a finite number.

    Its `loss` and `grad_norm` are enough: a NaN in a gradient reaches all weights through the clip
    of its norm, and every later loss. `help` names what may help.
    """
    wrong = [f"{name} {value:g}" for name, value in metrics.items() if not np.isfinite(value)]
    if wrong:
        raise UserError(
            f"{step} can't be used: {', '.join(wrong)}, allowed are finite numbers. The last "
            f"checkpoint has none of it; {help} may help, in a run of its own"
        )
