"""Where the repository and the files that several tests share are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "tests" / "training" / "tiny.yaml"
SCRATCH = ROOT / "configs" / "scratch.yaml"
