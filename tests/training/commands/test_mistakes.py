"""Errors in arguments and configurations are reported before heavy imports."""

import json
import subprocess
import sys

import pytest

from jaxlake.command_line.catalogue import LAKE_COMMANDS, LOOP_COMMANDS
from tests.paths import ROOT

DATASET_ACTIONS = {"make", "benchmark", "info", "convert"}
ENGINEER_ACTIONS = {"apply", "context", "replay"}
HEAVY_PACKAGES = {"jax", "torch", "vllm", "transformers", "flax", "optax", "matplotlib"}

REPORT = "study configs/study_sizes.yaml --study-dir docs --report-only"
DRY_RUN = "run configs/miniature.yaml --dry-run --set"
NEW_RUN_SET = "run configs/miniature.yaml --run-dir nowhere --set"  # the usual one may be there
NEW_RUN, EVALUATE = NEW_RUN_SET.removesuffix(" --set"), "evaluate configs/miniature.yaml"
ENDPOINT_RUN = (
    "run configs/miniature.yaml --run-dir nowhere --set engineer.kind=endpoint engineer.model=x"
    " engineer.base_url=http://localhost:1"
)

MAKE_DATA = "dataset make nowhere --agents 2 --hole-ratio 0.2 --wait-ratio 0 --seed 1 --count 9"

MISTAKES = {
    "run configs/study_sizes.yaml": "so it is a file for `jaxlake study`",
    "study configs/miniature.yaml": "so it is a file for `jaxlake run`",
    "run nowhere.yaml": "nowhere.yaml: can't be read: No such file or directory\n",
    "check nowhere.md": "nowhere.md: can't be read: No such file or directory\n",
    "run configs/miniature.yaml --run-dir docs --heartbeat 5": "--heartbeat is 5; it needs",
    "run configs/miniature.yaml --dry-run --stop-after 1": "--stop-after must "
    "not be set with --dry-run, which ignores it, got 1",
    f"{NEW_RUN} --coordinator host": "got 'host'; it must be HOST:PORT or auto",
    f"{REPORT} --jobs 2": "--jobs must not be set with --report-only, which ignores it, got 2",
    "study configs/study_sizes.yaml --dry-run --output x": "--output must not be set",
    f"{DRY_RUN} grpo.lerning_rate=3": "--set grpo.lerning_rate: unknown key",
    f"{DRY_RUN} grpo.prompts_per_update=4096": "--set grpo.prompts_per_update: stages.instances",
    f"{DRY_RUN} sampling.engine=vlm": "did you mean vllm?",
    f"{DRY_RUN} engineer.kind=shuffled:rul": "did you mean shuffled:rule?",
    f"{DRY_RUN} environment.kind=lke": "environment: kind must be one of lake and package",
    f"{DRY_RUN} environment.kind=nothing:Here": "--set environment.kind: environment: "
    "kind: the module of nothing:Here can't be imported",
    f"{DRY_RUN} environment.num_agents=5": "but 5 agents need 10 for their starts and goals",
    "study configs/study_sizes.yaml --engineers fixd --dry-run": "did you mean fixed?",
    "study configs/study_sizes.yaml --cluster-set a=b": "--cluster-set needs --cluster",
    "evaluate configs/miniature.yaml --model m --stage 3": "--stage is 3; it needs --run-dir",
    f"{EVALUATE} --model x --limit 3": "--limit is 3; it needs --benchmark",
    f"{EVALUATE} --endpoint http://h/v1": "is http://h/v1; it needs --benchmark",
    f"{EVALUATE} --model x --benchmark d --name m": "--name is m; it needs --endpoint",
    f"{EVALUATE} --endpoint http://h/v1 --benchmark d": "--name must be set",
    "evaluate configs/miniature.yaml --run-dir nowhere": "nowhere: is not a run's directory",
    "engineer context nowhere": "nowhere: is not a run's directory",
    "engineer replay nowhere --engineers rule,lernability": "--engineers: got 'lernability'",
    "designbench --groups 3": "--groups must be one of 2, 4, 8, got 3",
    "designbench --engineer rul": "did you mean rule?",
    "report nowhere": "nowhere: is not a run's directory: it does not exist",
    "solve nowhere.jsonl": "nowhere.jsonl: can't be read: No such file",
    "check README.md --output nowhere/out": "nowhere/out: can't be written",
    f"{NEW_RUN_SET} model.pretrained=nowhere": "model.pretrained: model must be a folder",
    f"{DRY_RUN} model.pretrained=docs": "got 'docs' without config.json",
    f"{NEW_RUN_SET} model.pretrained=jaxlake-bse": "did you mean jaxlake-base?",
    "run configs/miniature.yaml --run-dir README.md": "--run-dir must be a new or existing folder",
    "run configs/miniature.yaml --run-dir docs": "docs: is not empty and contains no run",
    "study configs/study_sizes.yaml --study-dir docs": "docs: is not empty and holds no study",
    "study configs/study_sizes.yaml --study-dir README.md": "--study-dir must be a new or existing",
    "evaluate configs/miniature.yaml --model nowhere": "model must be a folder with",
    "evaluate configs/miniature.yaml --model jaxlake-base --output docs": "docs: can't be written",
    f"{EVALUATE} --model jaxlake-base --benchmark nowhere": "--benchmark must be a folder",
    "engineer apply configs/miniature.yaml nowhere --current README.md": "nowhere: can't be read",
    "audit nowhere": "nowhere: is not a run's directory",
    "report configs": "configs: is not a run's directory: it has no config.yaml",
    "render nowhere.jsonl": "nowhere.jsonl: can't be read: No such file",
    "check tests": "tests: can't be read: Is a directory",
    "completion bsh": "invalid choice: 'bsh'",
    "doctor now": "unrecognized arguments: now",
    "feasibility --agents two": "--agents: must be a whole number from 1 to 5, got 'two'",
    "feasibility --agents 6": "--agents: must be from 1 to 5, got 6",
    "feasibility --hole-ratios nan": "--hole-ratios: must be from 0 to 1, got nan",
    f"{MAKE_DATA} --size 40": "size must be in [2, 32], got 40",
    f"{MAKE_DATA} --size 3 --hole-ratio 0.9": "but 2 agents need 4 for their starts and goals",
    f"{MAKE_DATA} --size 4 --worker 8/3": "must be I/N with I from 0 to N - 1, got 8/3",
    "dataset info nowhere": "nowhere: must be the folder of a set, but manifest.json is missing",
    "dataset info tests": "tests: must be the folder of a set, but manifest.json is missing",
    "dataset benchmark nowhere --check": "nowhere: is not a folder",
    "dataset convert nowhere out.jsonl": "nowhere: no such file or folder",
    "dataset convert nowhere.scen out.jsonl": "--map and --agents must be set for a .scen file",
    "dataset convert tests out.jsonl --agents 2": "--agents must not be set",
    "sweep nowhere.yaml --out nowhere": "nowhere.yaml: can't be read: No such file",
    "sweep README.md": "--out must be a folder",
    f"{ENDPOINT_RUN} engineer.api_key_env=NO_SUCH_KEY": "variable NO_SUCH_KEY must hold",
    "generate --size 3 --hole-ratio 0.9 --wait-ratio 0 --count 1 --seed 1": "has 8 holes and 1",
}

PROGRAM = """
import contextlib, io, json, sys
from jaxlake.command_line.entry import main
heavy = set(json.loads(sys.argv[2]))
for line in json.loads(sys.argv[1]):
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        try:
            status = main(line.split())
        except SystemExit as end:
            status = end.code
    print(json.dumps([status, err.getvalue(), sorted(heavy & set(sys.modules))]))
"""


@pytest.fixture(scope="module")
def results() -> dict[str, tuple[int, str, list[str]]]:
    """Return the exit status, message and imported heavy packages of each mistaken command."""
    arguments = [json.dumps(list(MISTAKES)), json.dumps(sorted(HEAVY_PACKAGES))]
    completed_process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return dict(zip(MISTAKES, map(json.loads, completed_process.stdout.splitlines()), strict=True))


def test_every_command_has_a_case():
    commands = [line.split() for line in MISTAKES]
    assert {words[0] for words in commands} == set(LOOP_COMMANDS | LAKE_COMMANDS)
    assert {words[1] for words in commands if words[0] == "dataset"} == DATASET_ACTIONS
    assert {words[1] for words in commands if words[0] == "engineer"} == ENGINEER_ACTIONS


@pytest.mark.parametrize("line", MISTAKES)
def test_invalid_arguments_fail_before_heavy_imports(line, results):
    status, message, packages = results[line]
    assert status == 2
    assert MISTAKES[line] in message
    assert packages == []
    assert not (ROOT / "nowhere").exists()
