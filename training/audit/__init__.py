"""Provenance of a run's results: digests of each stage, and their audit."""

from training.audit.auditor import audit_run
from training.audit.digests import (
    record_digests,
    require_sealed_weights,
    require_started_weights,
    seal,
)

__all__ = [
    "audit_run",
    "record_digests",
    "require_sealed_weights",
    "require_started_weights",
    "seal",
]
