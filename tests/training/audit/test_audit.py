"""The digests of a run's stages, and the changes that `jaxlake audit` detects."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engineer import BLOCKS
from jaxlake.command_line.entry import main
from tests.training.sample_run import write_sample_run_with_tokenizer
from training.audit import audit_run, check_weight_digests, write_stage_digests
from training.errors import UserError
from training.phases.picking import get_stage_instances
from training.phases.stage_results import get_configuration, read_stage_results
from training.phases.validate import validation_set
from training.run.directory import RunDirectory

Damage = Callable[[Path], object]


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {"style": "full", "blocks": list(BLOCKS)}
    return write_sample_run_with_tokenizer(tmp_path_factory.mktemp("runs") / "sample", settings)


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(finished_run, tmp_path / "run")


def find_problems(run: Path, *, deep: bool = True) -> list[str]:
    stage_audits = audit_run(run, deep=deep)
    return [f"{stage.stage}: {problem}" for stage in stage_audits for problem in stage.problems]


def get_file(run: Path, name: str) -> Path:
    """Return the path of a run's file; 1/gate.json is in the folder of stage 1."""
    return run / "stages" / name if name[0].isdigit() else run / name


def flip_bit(name: str) -> Damage:
    """Return a function that flips a bit in the middle of a file."""

    def damage(run: Path) -> None:
        content = bytearray(get_file(run, name).read_bytes())
        content[len(content) // 2] ^= 1
        get_file(run, name).write_bytes(bytes(content))

    return damage


def edit(name: str, *keys: str | int, value: Any) -> Damage:
    """Return a function that sets a value in a file of JSON or JSON lines."""

    def damage(run: Path) -> None:
        path, is_jsonl = get_file(run, name), name.endswith("l")
        text = path.read_text()
        content = [json.loads(line) for line in text.splitlines()] if is_jsonl else json.loads(text)
        parent = content
        for key in keys[:-1]:
            parent = parent[key]
        parent[keys[-1]] = value
        texts = [json.dumps(record) for record in content] if is_jsonl else [json.dumps(content)]
        path.write_text("".join(f"{record}\n" for record in texts))

    return damage


def remove_file(name: str) -> Damage:
    return lambda run: get_file(run, name).unlink()


def copy_file(source: str, target: str) -> Damage:
    return lambda run: shutil.copy(get_file(run, source), get_file(run, target))


def rewrite_digests(run: Path) -> None:
    """Write all digests again to match the current files."""
    directory = RunDirectory(run)
    config = directory.config()
    validation = validation_set(config)
    for stage in range(config.stages.count + 1):
        digests_file = directory.stage(stage).digests
        instances = digests_file.read().instances
        digests_file.remove()
        write_stage_digests(config, directory, validation, stage)
        digests = digests_file.read().model_copy(update={"instances": instances})
        digests_file.write(digests)


def test_audit_of_unchanged_run_finds_nothing(finished_run: Path):
    answers = [
        json.loads(line)
        for stage in (1, 2, 3)
        for line in get_file(finished_run, f"{stage}/answers.jsonl").read_text().splitlines()
    ]
    assert {answer["kind"] for answer in answers} == {"accepted", "repaired", "rejected"}
    stage_audits = list(audit_run(finished_run))
    assert [audit.stage for audit in stage_audits] == [0, 1, 2, 3, None]
    assert all(audit.problems == () and audit.files for audit in stage_audits)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (flip_bit("2/episodes.jsonl"), "2: episodes.jsonl: was changed"),
        (flip_bit("0/policy/model.safetensors"), "0: policy/model.safetensors: was changed"),
        (flip_bit("1/policy/tokenizer.json"), "1: policy/tokenizer.json: was changed"),
        (remove_file("1/gate.json"), "1: gate.json: is missing"),
        (copy_file("1/gate.json", "0/gate.json"), "0: gate.json: has no digest"),
        (copy_file("1/digests.json", "2/digests.json"), "2: digests.json: is of stage 1"),
        (copy_file("1/decision.json", "2/decision.json"), "2: decision.json: was changed"),
        (remove_file("2/digests.json"), "None: stages/2/digests.json: is missing"),
        (flip_bit("3/digests.json"), "3: "),
        (edit("2/answers.jsonl", 0, "reasoning", value="So?"), "2: answers.jsonl: was changed"),
        (edit("metrics.jsonl", 30, "loss", value=0.5), "1: metrics.jsonl"),
        (edit("summary.json", "seed", value=8), "None: summary.json"),
        (lambda run: (run / "config.yaml").open("a").write("# more\n"), "0: config.yaml"),
    ],
)
def test_audit_names_changed_files(run: Path, damage: Damage, problem: str):
    damage(run)
    assert any(message.startswith(problem) for message in find_problems(run, deep=False))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (edit("1/episodes.jsonl", 0, "reward", value=0.3), "1: episodes.jsonl:1: the answer is sc"),
        (edit("1/episodes.jsonl", 4, "lake", "optimum", value=99), "1: episodes.jsonl:5: the answ"),
        (edit("1/environment.json", "3", "missing", value=1), "1: environment.json"),
        (edit("2/configuration.json", "sizes", "3", "hole_ratio", value=0.3), "2: configuration.j"),
        (edit("2/gate.json", "notice", value="It fell."), "2: gate.json"),
        (edit("1/answers.jsonl", 1, "text", value="{}"), "1: answers.jsonl:2"),
        (edit("2/answers.jsonl", 0, "kind", value="accepted"), "2: answers.jsonl:1"),
        (
            edit("2/decision.json", "configuration", "sizes", "3", "hole_ratio", value=0.0),
            "2: decision.json",
        ),
        (edit("1/digests.json", "instances", value="0" * 64), "1: training instances"),
    ],
)
def test_audit_names_contradictions_under_new_digests(run: Path, damage: Damage, problem: str):
    damage(run)
    rewrite_digests(run)
    assert any(message.startswith(problem) for message in find_problems(run))


def test_stage_digests_ignore_seconds(run: Path, finished_run: Path):
    directory, expected = RunDirectory(run), get_file(finished_run, "3/digests.json").read_bytes()
    config = directory.config()
    validation = validation_set(config)
    configuration = get_configuration(config, read_stage_results(directory, config), 3)
    boards = get_stage_instances(config, directory, 3, configuration, validation).instances
    edit("3/answers.jsonl", 0, "seconds", value=99.0)(run)
    write_stage_digests(config, directory, validation, 3, boards)
    assert get_file(run, "3/digests.json").read_bytes() == expected
    directory.stage(3).digests.remove()
    write_stage_digests(config, directory, validation, 3, boards)
    assert get_file(run, "3/digests.json").read_bytes() == expected


def test_audit_rejects_changed_weights(run: Path):
    directory = RunDirectory(run)
    check_weight_digests(directory, 1)
    flip_bit("1/policy/model.safetensors")(run)
    check_weight_digests(directory, 0)
    with pytest.raises(UserError, match=r"1/policy/model.safetensors: differs from its digest"):
        check_weight_digests(directory, 1)
    check_weight_digests(directory, 99)  # which has no digests yet


@pytest.mark.parametrize("keep_validation", [False, True])
def test_remove_dependent_files_of_lost_weights(keep_validation: bool, run: Path, capsys):
    directory = RunDirectory(run)
    directory.summary.remove()
    assert directory.remove_dependent_files(2, keep_validation=keep_validation)
    stage = directory.stage(2)
    assert stage.configuration.exists()
    assert stage.episodes.exists() == stage.gate.exists() == keep_validation
    assert not stage.decision.exists()
    assert not stage.digests.exists()
    assert not directory.stage(3).configuration.exists()
    assert not directory.remove_dependent_files(2, keep_validation=keep_validation)
    assert main(["audit", str(run), "--shallow"]) == 0
    assert capsys.readouterr().out.endswith("Holds so far: the run is in progress.\n")


def test_audit_command_prints_stages_and_problems(run: Path, capsys):
    assert main(["audit", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(re.fullmatch(r"stage \d: \d+ files hold", line) for line in lines[:4])
    assert lines[4:] == ["The run holds."]
    flip_bit("1/context.txt")(run)
    assert main(["audit", str(run)]) == 1
    assert "stage 1: context.txt: was changed" in capsys.readouterr().out
    assert main(["audit", str(run / "nowhere")]) == 2
