"""The oracle engineer in a run: what it tries out leaves no trace in the learner."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.design.shown import open_run
from training.phases import validate
from training.provenance import seal, verify

HERE = Path(__file__).parent
CANDIDATES = ("fixed", "hard_only")
PER_CELL = 5

# The set-up is two starts of vLLM one after the other.
pytestmark = [pytest.mark.slow, pytest.mark.vllm, pytest.mark.timeout(1200)]


def _run(folder: Path, engineer: dict[str, Any]) -> Path:
    """A tiny run with this engineer; the warm start reads what the file's own engineer would."""
    tree = yaml.safe_load((HERE / "tiny.yaml").read_text())
    tree["engineer"] |= engineer
    tree["environment"]["bounds"]["sizes"] = [3, 4]
    tree["environment"]["initial"]["sizes"] = {
        3: {"data_ratio": 0.5, "hole_ratio": 0.0, "wait_ratio": 0.0},
        4: {"data_ratio": 0.5, "hole_ratio": 0.0, "wait_ratio": 0.0},
    }
    folder.mkdir()
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(tree))
    command = [sys.executable, "-m", "training.cli", "run", str(config)]
    process = subprocess.run(
        [*command, "--run-dir", str(folder / "run")],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-3000:]
    return folder / "run"


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    choice = {"candidates": list(CANDIDATES), "updates": 2, "per_cell": PER_CELL}
    folder = tmp_path_factory.mktemp("runs") / "oracle"
    return _run(folder, {"kind": "oracle", "oracle": choice})


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


def _change_answers(run: Path, stage: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the one attempt of a stage, and make the chain's hashes those of the new files."""
    path = run / f"stages/{stage}/answers.jsonl"
    attempt = json.loads(path.read_text())
    change(attempt)
    path.write_text(json.dumps(attempt) + "\n")
    (run / "chain.jsonl").unlink()
    config, directory = open_run(run)
    seal(config, directory, validate.boards_for(config), config.stages.rounds)


def test_what_an_oracles_candidates_said_is_kept_and_its_choice_is_made_again(
    oracle: Path, tmp_path: Path
) -> None:
    attempt = json.loads((oracle / "stages/1/answers.jsonl").read_text())
    said = attempt["candidates"]
    assert [one["engineer"] for one in said] == list(CANDIDATES)
    scores = [probe["valid"] / probe["count"] for probe in _probes(oracle, 1)]
    assert [one["score"] for one in said] == scores
    assert attempt["text"] == said[scores.index(max(scores))]["text"]
    assert all(check.holds for check in verify(oracle))
    other = said[1 - scores.index(max(scores))]["text"]
    for number, change in enumerate(
        (
            lambda attempt: attempt["candidates"].pop(),
            lambda attempt: attempt["candidates"][0].update(score=1.0),
            lambda attempt: attempt["candidates"][0].update(text="no idea"),
            lambda attempt: attempt.update(text=other),
        )
    ):
        run = shutil.copytree(oracle, tmp_path / str(number))
        _change_answers(run, 1, change)
        broken = next(check for check in verify(run) if not check.holds)
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
