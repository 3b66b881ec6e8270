"""Column addition as an environment to be engineered: a second one, to show what one has to bring.

`python -m engineer.sums` runs Train, Validate and Design on it; `docs/your_environment.md` walks
through the modules.
"""

from engineer.sums.configuration import DigitKnobs, SumsBounds, SumsConfiguration
from engineer.sums.domain import sums_domain
from engineer.sums.evidence import sums_evidence
from engineer.sums.feasibility import NearestPossible
from engineer.sums.generator import existing, generate, quotas, statistics
from engineer.sums.instance import Kind, Sum
from engineer.sums.verifier import Verdict, verify

__all__ = [
    "DigitKnobs",
    "Kind",
    "NearestPossible",
    "Sum",
    "SumsBounds",
    "SumsConfiguration",
    "Verdict",
    "existing",
    "generate",
    "quotas",
    "statistics",
    "sums_domain",
    "sums_evidence",
    "verify",
]
