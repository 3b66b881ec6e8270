"""Out-of-memory errors end a command with one line that suggests smaller settings."""

from pathlib import Path

import jax.numpy as jnp
import pytest

from jaxlake.command_line.entry import main
from tests.paths import TINY
from training.errors import UserError
from training.memory import report_out_of_memory

NUM_LAYERS = 10**9


def test_model_beyond_memory_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run_dir = tmp_path / "run"
    setting = f"model.scratch.num_hidden_layers={NUM_LAYERS}"
    assert main(["run", str(TINY), "--run-dir", str(run_dir), "--set", setting]) == 2
    error = capsys.readouterr().err
    assert error.startswith("jaxlake: error: the weights of model.scratch must ")
    assert "must fit in this machine's memory of" in error
    assert error.count("\n") == 1
    assert not run_dir.exists()


def test_out_of_memory_message_suggests_smaller_settings():
    message = r"memory is full \(RESOURCE_EXHAUSTED.*\): smaller ones"
    with pytest.raises(UserError, match=message), report_out_of_memory("smaller ones"):
        jnp.zeros(2**50, jnp.int8).block_until_ready()
    with pytest.raises(UserError, match="memory is full"), report_out_of_memory("smaller ones"):
        raise MemoryError
