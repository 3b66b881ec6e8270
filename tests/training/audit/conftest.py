"""A finished run to audit."""

import shutil
from pathlib import Path

import pytest

from engineer import BLOCKS
from tests.training.sample_run import write_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    limit = 4_600  # tokens, fewer than the context of stage 3 would have
    choice = {"style": "full", "blocks": list(BLOCKS), "max_context_tokens": limit}
    return write_run(tmp_path_factory.mktemp("runs") / "sample", choice)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(finished, tmp_path / "run")
