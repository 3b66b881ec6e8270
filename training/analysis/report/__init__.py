"""The report of a run: one self-contained HTML page from a run directory."""

from training.analysis.report.build import build_report

__all__ = ["build_report"]
