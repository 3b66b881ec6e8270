"""The Design phase of a run without weights: requests, and files that it does not touch."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engineer import (
    Costs,
    DesignSettings,
    Engineer,
    GeneratedText,
    LanguageModelEngineer,
    TextRequest,
    answer_text,
    run_design,
)
from engineer.engineers.baselines import FixedEngineer
from tests.training.sample_run import write_sample_run_with_tokenizer
from training.phases import design as phase
from training.phases.stage_results import make_stage_view, read_stage_results
from training.run.directory import RunDirectory
from training.run.records import UpdateMetrics
from training.schema import RehearsalConfig, load


def test_design_requests_and_counts_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"blocks": ["summary"], "style": "full"}
    run_path = write_sample_run_with_tokenizer(tmp_path / "run", settings)
    folder = run_path / "stages/3"
    (folder / "decision.json").unlink()
    for name in ("summary.txt", "summary_prompt.txt"):
        (folder / name).write_text("left by a design that was killed\n")
    config = load(run_path / "config.yaml")

    def make_engineer(*arguments: Any, **options: Any) -> Engineer:
        def generate(request: TextRequest) -> GeneratedText:
            text = answer_text(config.environment.initial) if request.form else "More holes."
            return GeneratedText(text, len(text))

        return LanguageModelEngineer(generate)

    monkeypatch.setattr(phase, "make_engineer", make_engineer)
    run: Any = SimpleNamespace(
        config=config,
        directory=RunDirectory(run_path),
        policy=SimpleNamespace(count_tokens=len),
        log_duration=lambda phase, stage: nullcontext(),
        seed=lambda *key: 0,
    )
    placeholder: Any = None
    phase.design(run, placeholder, read_stage_results(run.directory, config))
    assert (folder / "summary.txt").read_text() == "More holes."
    assert "Write notes to yourself" in (folder / "summary_prompt.txt").read_text()
    spent_tokens = json.loads((folder / "decision.json").read_text())["spent"]["engineer_tokens"]
    assert spent_tokens == len(answer_text(config.environment.initial)) + len("More holes.")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("no idea", "kept (checkpoint): 3 answers were refused: the answer holds no complete JSON"),
        ("", "unchanged (checkpoint): the answer is the configuration in force"),
    ],
)
def test_design_prints_why_nothing_changed(tmp_path, monkeypatch, capsys, answer, message):
    run_path = write_sample_run_with_tokenizer(tmp_path / "run", {"style": "full"})
    (run_path / "stages/3/decision.json").unlink()
    config = load(run_path / "config.yaml")
    results = read_stage_results(RunDirectory(run_path), config)
    current = answer_text(make_stage_view(config, results, 3).current)
    engineer = LanguageModelEngineer(lambda request: GeneratedText(answer or current, 1))
    monkeypatch.setattr(phase, "make_engineer", lambda *arguments, **options: engineer)
    run: Any = SimpleNamespace(
        config=config,
        directory=RunDirectory(run_path),
        policy=SimpleNamespace(count_tokens=len),
        log_duration=lambda phase, stage: nullcontext(),
        seed=lambda *key: 0,
    )
    capsys.readouterr()
    phase.design(run, cast(Any, None), results)
    assert f"stage 3: design: {message}" in capsys.readouterr().out


def test_ledger_counts_resampled_boards(tmp_path: Path) -> None:
    """Of `grpo.resamples`; designs are rehearsed per update, however many boards that took."""
    run_path = write_sample_run_with_tokenizer(tmp_path / "run", {"style": "full"})
    directory = RunDirectory(run_path)
    config = directory.config()
    config = config.model_copy(update={"rehearsal": RehearsalConfig(contexts=2)})

    def compute_costs() -> Costs:
        view = make_stage_view(config, read_stage_results(directory, config), 2)
        design = run_design(FixedEngineer(view.current), view, DesignSettings())
        return phase.add_costs(config, design, view, Costs()).spent

    costs_before = compute_costs()
    metrics = directory.metrics.read()
    updates = [
        record for record in metrics if isinstance(record, UpdateMetrics) and record.stage == 2
    ]
    index = metrics.index(updates[0])
    metrics[index] = updates[0].model_copy(update={"resampled_boards": 5, "replaced_boards": 1})
    directory.metrics.write(metrics)
    costs_after = compute_costs()
    assert costs_before.training_instances == len(updates) * config.grpo.prompts_per_update
    assert costs_after.training_instances == costs_before.training_instances + 5
    assert costs_after.rehearsed_designs == costs_before.rehearsed_designs == 2 * len(updates)
