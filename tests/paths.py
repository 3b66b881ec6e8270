"""Paths of the repository and of files that several tests share."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "training" / "tiny.yaml"
SCRATCH = ROOT / "configs" / "scratch.yaml"
