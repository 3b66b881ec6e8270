"""Mistakes in arguments and configurations are told before anything heavy is imported."""

import json
import subprocess
import sys

import pytest

from tests.paths import ROOT

HEAVY = {"jax", "torch", "vllm", "transformers", "flax", "optax", "matplotlib"}

RUN = "run configs/miniature.yaml --dry-run --set"

MISTAKES = {
    "run configs/study_sizes.yaml": "so it is a file for `jaxlake study`",
    "run configs/base.yaml": "so it is a file for `jaxlake pretrain`",
    "study configs/miniature.yaml": "so it is a file for `jaxlake run`",
    "pretrain configs/miniature.yaml": "so it is a file for `jaxlake run`",
    "run nowhere.yaml": "nowhere.yaml: can't be read",
    "run configs/miniature.yaml --compile-for h100:8": "--compile-for: got no --dry-run",
    f"{RUN} grpo.lerning_rate=3": "--set grpo.lerning_rate: unknown key",
    f"{RUN} seed=2 grpo.lerning_rate=3": "did you mean learning_rate?",
    f"{RUN} stages.instances=3": "--set stages.instances: got 3",
    f"{RUN} grpo.prompts_per_update=4096": "--set grpo.prompts_per_update: stages.instances: got",
    f"{RUN} sampling.engine=vlm": "did you mean vllm?",
    f"{RUN} engineer.kind=shuffled:rul": "did you mean shuffled:rule?",
    f"{RUN} environment.kind=lke": "environment: kind: got 'lke', allowed are lake, and package",
    f"{RUN} environment.kind=nothing:Here": "--set environment.kind: environment: "
    "kind: got nothing:Here, whose module can't be imported",
    f"{RUN} environment.num_agents=5": "but 5 agents need 10 for their starts and goals",
    "study configs/study_sizes.yaml --engineers fixd --dry-run": "did you mean fixed?",
    "study configs/study_sizes.yaml --cluster-set a=b": "--cluster-set: got parameters of a job",
    "evaluate configs/miniature.yaml --model m --stage 3": "--stage: needs --run-dir",
    "evaluate configs/miniature.yaml --run-dir nowhere": "nowhere: is not a run's directory",
    "engineer context nowhere": "nowhere: is not a run's directory",
    "engineer atlas nowhere": "nowhere: is not a run's directory",
    "engineer replay nowhere --engineers rule,lernability": "--engineers: got 'lernability'",
    "engineer ablate nowhere --engineer checkpont": "did you mean checkpoint?",
    "report nowhere": "nowhere: is not a run's directory",
    "solve nowhere.jsonl": "nowhere.jsonl: can't be read: No such file",
    "check README.md --output nowhere/out": "nowhere/out: can't be written",
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
def told() -> dict[str, tuple[int, str, list[str]]]:
    """Status, message, and heavy packages that the process had imported by then, one by one."""
    words = [json.dumps(list(MISTAKES)), json.dumps(sorted(HEAVY))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return dict(zip(MISTAKES, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_before_anything_heavy_is_imported(line, told):
    status, message, imported = told[line]
    assert status == 2
    assert MISTAKES[line] in message
    assert imported == []
