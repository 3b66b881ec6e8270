"""Where a run's results come from: a chain of hashes over its stages, written and audited.

`chain.py` says what is hashed and how, writes one link per stage and reads it. `auditor.py` follows
the chain, and `rederivation.py` makes again what follows from other files.
"""

from training.audit.auditor import audit_run
from training.audit.chain import records_digests, require_sealed_weights, seal
from training.audit.checks import Check

__all__ = ["Check", "audit_run", "records_digests", "require_sealed_weights", "seal"]
