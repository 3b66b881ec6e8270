"""The oracle engineer in a run: what it tries out leaves no trace in the learner."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import TINY
from tests.training.audit import forging
from tests.training.stand_in_sampler import without_vllm
from training import loop
from training.audit import audit_run
from training.schema import RunConfig

pytestmark = pytest.mark.slow

CANDIDATES = ("fixed", "hard_only")
PER_CELL = 5


def _run(folder: Path, engineer: dict[str, Any], **grpo: Any) -> Path:
    """A tiny run with this engineer; the warm start reads what the file's own engineer would."""
    tree = yaml.safe_load(TINY.read_text())
    tree["engineer"] |= engineer
    tree["grpo"] |= grpo
    tree["environment"]["bounds"]["sizes"] = [3, 4]
    tree["environment"]["initial"]["sizes"] = {
        size: {"data_ratio": 0.5, "hole_ratio": 0.0, "wait_ratio": 0.0} for size in (3, 4)
    }
    with without_vllm():
        loop.run(RunConfig.model_validate(tree), folder)
    return folder


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    choice = {"candidates": list(CANDIDATES), "updates": 2, "per_cell": PER_CELL}
    return _run(tmp_path_factory.mktemp("runs") / "oracle", {"kind": "oracle", "oracle": choice})


def _probes(run: Path, stage: int) -> list[dict[str, Any]]:
    lines = (run / f"stages/{stage}/probes.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _decision(run: Path, stage: int) -> dict[str, Any]:
    return json.loads((run / f"stages/{stage}/decision.json").read_text())


def test_the_oracle_takes_what_its_branches_scored_best_and_counts_their_cost(oracle: Path) -> None:
    for stage in (1, 2):
        probes = _probes(oracle, stage)
        assert len(probes) == len(CANDIDATES)
        assert len({json.dumps(probe["configuration"]) for probe in probes}) == len(CANDIDATES)
        best = max(probes, key=lambda probe: probe["valid"])
        decision = _decision(oracle, stage)
        assert decision["configuration"] == best["configuration"]
        assert decision["spent"]["probe_instances"] == 2 * 16
        cells = 2 * 2 * 1  # sizes, hole ratios, wait ratios of the validation set
        for probe in probes:
            assert probe["instances"] == 2 * 8  # updates, prompts an update
            assert probe["rollouts"] == 2 * 8 * 4 + probe["count"]  # four completions a prompt
            assert 0 < probe["count"] <= cells * PER_CELL
        assert decision["spent"]["probe_rollouts"] == sum(probe["rollouts"] for probe in probes)


def test_what_an_oracles_candidates_said_is_kept_and_its_choice_is_made_again(
    oracle: Path, tmp_path: Path
) -> None:
    attempt = json.loads((oracle / "stages/1/answers.jsonl").read_text())
    said = attempt["candidates"]
    assert [one["engineer"] for one in said] == list(CANDIDATES)
    scores = [probe["valid"] / probe["count"] for probe in _probes(oracle, 1)]
    assert [one["score"] for one in said] == scores
    assert attempt["text"] == said[scores.index(max(scores))]["text"]
    assert all(check.holds for check in audit_run(oracle))
    other = said[1 - scores.index(max(scores))]["text"]
    changes = (
        lambda attempt: attempt["candidates"].pop(),
        lambda attempt: attempt["candidates"][0].update(score=1.0),
        lambda attempt: attempt["candidates"][0].update(text="no idea"),
        lambda attempt: attempt.update(text=other),
    )
    for number, change in enumerate(changes):
        run = shutil.copytree(oracle, tmp_path / str(number))
        forging.change("1/answers.jsonl", lambda answers, how=change: how(answers[0]))(run)
        forging.rehash(run)
        broken = next(check for check in audit_run(run) if not check.holds)
        assert (broken.stage, broken.part) == (1, "answers.jsonl")


def test_a_run_after_probes_is_the_run_of_the_engineer_that_they_chose(
    oracle: Path, tmp_path: Path
) -> None:
    chosen = _decision(oracle, 1)["configuration"]
    names = {
        json.dumps(probe["configuration"]): name
        for name, probe in zip(CANDIDATES, _probes(oracle, 1), strict=True)
    }
    plain = _run(tmp_path / "plain", {"kind": names[json.dumps(chosen)]})
    for name in ("metrics.jsonl", "stages/2/episodes.jsonl", "stages/2/policy/model.safetensors"):
        assert (oracle / name).read_bytes() == (plain / name).read_bytes(), name


def test_boards_that_a_branch_answers_to_replace_others_are_counted_and_paid_for(
    tmp_path: Path,
) -> None:
    choice = {"candidates": list(CANDIDATES), "updates": 2, "per_cell": PER_CELL}
    run = _run(tmp_path / "run", {"kind": "oracle", "oracle": choice}, resamples=1)
    beyond = 0
    for stage in (1, 2):
        probes = _probes(run, stage)
        for probe in probes:
            assert 2 * 8 <= probe["instances"] <= 2 * (8 + 8)
            assert probe["rollouts"] == probe["instances"] * 4 + probe["count"]
            beyond += probe["instances"] - 2 * 8
        spent = _decision(run, stage)["spent"]
        assert spent["probe_instances"] == sum(probe["instances"] for probe in probes)
        assert spent["probe_rollouts"] == sum(probe["rollouts"] for probe in probes)
    assert beyond > 0  # else nothing was replaced
    assert all(check.holds for check in audit_run(run))
