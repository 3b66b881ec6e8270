"""Where a run's results come from: a chain of hashes over its stages, written and checked.

`digests.py` says what is hashed and how, `links.py` writes a link a stage, `verification.py`
follows the chain, `derivation.py` derives again what the files of a stage follow from.
"""

from training.provenance.links import Link, seal
from training.provenance.verification import Check, checks, finished, verify

__all__ = ["Check", "Link", "checks", "finished", "seal", "verify"]
