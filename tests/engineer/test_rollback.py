"""What a run's gate restores, and what a context says that can't be cut to fit."""

import json
from pathlib import Path
from typing import Any

import pytest

from engineer.design import writable
from tests.training.sample_run import CONFIG, DESIGNS, write_sample_run
from training.cli import main
from training.config import RunConfig
from training.language.tokenizer import train_tokenizer


def trained_on(run: Path, stage: int) -> Any:
    return json.loads((run / f"stages/{stage}/configuration.json").read_text())


@pytest.mark.parametrize("rollback", ["configuration", "checkpoint"])
def test_what_was_taken_back_is_not_what_a_second_fall_restores(tmp_path, rollback):
    config = RunConfig.model_validate(CONFIG | {"engineer": {"gate": {"rollback": rollback}}})
    run = write_sample_run(tmp_path / "run", config, skill=(0.3, 0.9, 0.5, 0.1))
    gates = [json.loads((run / f"stages/{stage}/gate.json").read_text()) for stage in (1, 2, 3)]
    assert [gate["restored"] for gate in gates] == [None, rollback, rollback]
    assert len({json.dumps(trained_on(run, stage)) for stage in (1, 2, 3)}) == 3
    assert [gate["configuration"] for gate in gates] == [trained_on(run, 1)] * 3


def test_a_context_that_no_cut_makes_fit_is_an_error_that_names_the_key(tmp_path, capsys):
    choice = {"style": "full", "max_context_tokens": 5_000}
    config = RunConfig.model_validate(CONFIG | {"engineer": choice})
    tokenizer = train_tokenizer([writable(text) for answers in DESIGNS for text in answers], 300)
    run = write_sample_run(tmp_path / "run", config)
    tokenizer.save_pretrained(run / "stages/3/policy")
    written = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(written.replace(": 5000\n", ": 5\n"))
    (run / "stages/3/context.txt").unlink()
    assert main(["engineer", "context", str(run), "--stage", "3"]) == 2
    assert "engineer.max_context_tokens: max_tokens: got 5, but" in capsys.readouterr().err
