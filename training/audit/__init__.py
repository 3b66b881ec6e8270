"""Provenance of a run's results: digests of each stage, and their audit."""

from training.audit.auditor import audit_run
from training.audit.digests import (
    check_inherited_weights,
    check_weight_digests,
    record_digests,
    write_stage_digests,
)

__all__ = [
    "audit_run",
    "check_inherited_weights",
    "check_weight_digests",
    "record_digests",
    "write_stage_digests",
]
