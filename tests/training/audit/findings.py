"""What an audit finds, for tests."""

from pathlib import Path

from training.audit import audit_run


def problem(run: Path, *, deep: bool = True) -> str | None:
    """What the audit says is wrong; only its last check may say so."""
    *holding, last = audit_run(run, deep=deep)
    assert all(check.holds for check in holding)
    return None if last.holds else str(last)
