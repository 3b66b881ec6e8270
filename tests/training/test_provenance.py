"""The chain over a run's stages, and what `jaxlake verify` finds of every way to break it.

Hashes are computed here on their own (`canonical`, `sha256`), as docs/provenance.md states them.
"""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from engineer import BLOCKS, build_context
from tests.training.sample_run import write_run
from training.cli import main
from training.config import load
from training.design.shown import context_shown
from training.errors import UserError
from training.phases import validate
from training.phases.boards import draw_boards
from training.provenance import Check, seal, verify
from training.provenance.differences import first_difference
from training.run.directory import RunDirectory
from training.run.records import configuration_for, view_of

AFTER_EVERY_STAGE = ("evidence.json", "validation.json", "episodes.jsonl", "failures.jsonl")
OF_A_ROUND = (
    *AFTER_EVERY_STAGE,
    "configuration.json",
    "environment.json",
    "shortfalls.json",
    "gate.json",
    "context.txt",
    "summary.txt",
    "summary_prompt.txt",
    "answers.jsonl",
    "decision.json",
)

MAX_CONTEXT_TOKENS = 4_600
"""Less than the last round would take."""


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def sha256(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "sample"
    choice = {
        "style": "full",
        "blocks": list(BLOCKS),
        "max_context_tokens": MAX_CONTEXT_TOKENS,
    }
    return write_run(path, choice)


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(finished, tmp_path / "run")


def links_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "chain.jsonl").read_text().splitlines()]


def write_links(run: Path, links: list[dict[str, Any]]) -> None:
    (run / "chain.jsonl").write_text("".join(canonical(link) + "\n" for link in links))


def rehash(run: Path, links: list[dict[str, Any]] | None = None) -> None:
    """Make the chain's hashes agree with the files as they are now, as a careful forger would."""
    links = links_of(run) if links is None else links
    previous = sha256((run / "config.yaml").read_bytes())
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for stage, link in enumerate(links):
        folder = run / "stages" / str(stage)
        link["files"] = {name: hash_of_file(folder / name) for name in link["files"]}
        link["metrics"] = sha256(
            "".join(canonical(one) + "\n" for one in metrics if stage_of(one) == stage)
        )
        weights = {
            one.name: sha256(one.read_bytes()) for one in folder.glob("policy/*.safetensors")
        }
        link["checkpoint"] = sha256(canonical(weights))
        link["previous"] = previous
        rest = {name: value for name, value in link.items() if name != "hash"}
        previous = link["hash"] = sha256(canonical(rest))
    write_links(run, links)


def hash_of_file(path: Path) -> str:
    if path.name != "answers.jsonl":
        return sha256(path.read_bytes())
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        record.pop("seconds", None)
    return sha256("".join(canonical(record) + "\n" for record in records))


def stage_of(record: dict[str, Any]) -> int:
    return 0 if record["phase"] == "warm_start" else record["stage"]


def change_json(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value, indent=2) + "\n")


def change_lines(path: Path, change: Callable[[list[Any]], None]) -> None:
    values = [json.loads(line) for line in path.read_text().splitlines()]
    change(values)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def broken(run: Path, *, deep: bool = False) -> Check:
    """The check that fails, which is the last one made and the only one that fails."""
    *holding, last = verify(run, deep=deep)
    assert all(check.holds for check in holding)
    assert not last.holds, "the damage was not found"
    return last


def place(check: Check) -> tuple[int | None, str, bool]:
    return check.stage, check.part, check.derived


def test_an_untouched_run_holds_and_everything_that_can_be_is_derived_again(
    finished: Path,
) -> None:
    checks = verify(finished)
    assert [str(check) for check in checks if not check.holds] == []
    derived: dict[int | None, list[str]] = {}
    for check in checks:
        if check.derived:
            derived.setdefault(check.stage, []).append(check.part)
    validated = ["validation_set", "episodes.jsonl", "failures.jsonl", *AFTER_EVERY_STAGE[:2]]
    of_a_round = [
        "configuration.json",
        "configuration.yaml",
        "generator",
        "instances",
        "environment.json",
        "shortfalls.json",
        *validated,
        "gate.json",
        "context.txt",
        "answers.jsonl",
        "decision.json",
        "summary_prompt.txt",
    ]
    assert derived == {
        0: ["instances", *validated],
        1: of_a_round,
        2: of_a_round,
        3: of_a_round,
        None: ["summary.json"],
    }


def test_a_shallow_check_compares_hashes_and_derives_nothing(finished: Path) -> None:
    checks = verify(finished, deep=False)
    assert all(check.holds for check in checks)
    assert not any(check.derived for check in checks)
    parts = {check.part for check in checks if check.stage == 2}
    assert parts >= {"link", "hash", "previous", "metrics", "checkpoint", *OF_A_ROUND}


def test_the_chain_is_what_the_documented_hashes_of_the_files_give(run: Path) -> None:
    before = (run / "chain.jsonl").read_bytes()
    rehash(run)
    assert (run / "chain.jsonl").read_bytes() == before


def test_the_sample_reaches_what_is_checked(finished: Path) -> None:
    """Notes in some rounds only, refused and repaired answers, a context that had to be cut."""
    assert [(finished / f"stages/{stage}/summary.txt").exists() for stage in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    answers = [
        json.loads(line)
        for stage in (1, 2, 3)
        for line in (finished / f"stages/{stage}/answers.jsonl").read_text().splitlines()
    ]
    assert {answer["kind"] for answer in answers} == {"accepted", "repaired", "rejected"}
    assert any(answer["cut"] for answer in answers)


def test_a_run_with_rollbacks_floors_and_bounded_steps_holds(tmp_path: Path) -> None:
    choice = {
        "max_step": 0.05,
        "gate": {"rollback": "checkpoint", "protect_from": 0.5, "protect_share": 0.3},
    }
    run = write_run(tmp_path / "run", choice, skill=(0.3, 0.8, 0.3, 0.9))
    gates = [json.loads((run / f"stages/{stage}/gate.json").read_text()) for stage in (1, 2, 3)]
    assert [gate["restored"] for gate in gates] == [None, "checkpoint", None]
    assert gates[2]["reference"] == 1
    assert "bounded_step" in (run / "stages/1/decision.json").read_text()
    assert [str(check) for check in verify(run) if not check.holds] == []


@pytest.mark.parametrize("max_context_tokens", [None, 2_000])
def test_a_shuffled_run_holds_what_its_engineer_saw(
    tmp_path: Path, max_context_tokens: int | None
) -> None:
    choice = {"kind": "shuffled:checkpoint", "max_context_tokens": max_context_tokens}
    run = write_run(tmp_path / "run", choice)
    config, directory = load(run / "config.yaml"), RunDirectory(run)
    context = (run / "stages/2/context.txt").read_text()
    true = build_context(view_of(config, directory, 2), blocks=config.engineer.blocks).text
    assert context != true
    assert context in (run / "stages/2/answers.jsonl").read_text().encode().decode("unicode_escape")
    assert [str(check) for check in verify(run) if not check.holds] == []
    (run / "stages/2/context.txt").unlink()
    assert context_shown(run, 2) == context


@pytest.mark.parametrize("tokens", [0, 5])
def test_a_run_whose_budget_ended_the_asking_holds(tmp_path: Path, tokens: int) -> None:
    run = write_run(tmp_path / "run", {"budget": {"engineer_tokens": tokens}})
    decision = json.loads((run / "stages/3/decision.json").read_text())
    assert decision["reason"].startswith(f"kept after {min(tokens, 1)} attempts, the budget is")
    assert [str(check) for check in verify(run) if not check.holds] == []


def test_a_link_names_its_boards_by_what_they_are_drawn_from(finished: Path) -> None:
    config = load(finished / "config.yaml")
    first, *rounds = links_of(finished)
    assert first["generator"] is None
    assert first["instances"] is None
    for stage, link in enumerate(rounds, start=1):
        configuration = json.loads((finished / f"stages/{stage}/configuration.json").read_text())
        assert link["generator"]["configuration"] == configuration
        assert link["generator"]["count"] == config.stages.instances
    assert len({link["generator"]["key"] for link in rounds}) == len(rounds)
    assert len({link["instances"] for link in rounds}) == len(rounds)
    assert len({link["validation_set"] for link in [first, *rounds]}) == 1


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def raise_a_digit(path: Path) -> None:
    text = path.read_text()
    at = next(at for at, letter in enumerate(text) if letter.isdecimal())
    path.write_text(f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}")


def drop_the_last_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))


def remove(path: Path) -> None:
    path.unlink()


def damages() -> Iterator[tuple[int, str, Callable[[Path], None]]]:
    for stage, names in ((0, AFTER_EVERY_STAGE), (2, OF_A_ROUND)):
        for name in names:
            for damage in (flip, raise_a_digit, drop_the_last_line, remove):
                if name != "shortfalls.json" or damage is not raise_a_digit:  # it holds no digit
                    yield stage, name, damage


@pytest.mark.parametrize(
    ("stage", "name", "damage"),
    [pytest.param(*case, id=f"{case[0]}-{case[1]}-{case[2].__name__}") for case in damages()],
)
def test_a_damaged_file_is_named(
    run: Path, stage: int, name: str, damage: Callable[[Path], None]
) -> None:
    damage(run / "stages" / str(stage) / name)
    check = broken(run)
    assert place(check) == (stage, name, False)
    assert check.expected == links_of(run)[stage]["files"][name]


def test_the_damage_that_comes_first_is_named_also_where_it_takes_a_derivation(
    run: Path,
) -> None:
    flip(run / "stages/2/validation.json")
    change_json(run / "stages/1/gate.json", lambda gate: gate["comparison"].update(gained=1))
    links = links_of(run)
    rehash(run, links[:2])
    links = links_of(run) + links[2:]
    links[2]["previous"] = links[1]["hash"]
    write_links(run, links)
    assert place(broken(run)) == (2, "hash", False)
    assert place(broken(run, deep=True)) == (1, "gate.json", True)


def test_a_flipped_bit_anywhere_in_what_is_hashed_breaks_the_chain(finished: Path) -> None:
    """Nothing may be passed over, and nothing may make the check itself fail."""
    rng = random.Random(0)
    files = [
        finished / "config.yaml",
        finished / "chain.jsonl",
        finished / "metrics.jsonl",
        *(finished / "stages/0" / name for name in AFTER_EVERY_STAGE),
        *(finished / "stages/2" / name for name in OF_A_ROUND if name != "answers.jsonl"),
        finished / "stages/2/policy/model.safetensors",
    ]
    for path in files:
        before = path.read_bytes()
        try:
            for _ in range(8):
                content = bytearray(before)
                at = rng.randrange(len(content))
                content[at] ^= 1 << rng.randrange(8)
                path.write_bytes(bytes(content))
                last = verify(finished, deep=False)[-1]
                assert not last.holds, f"{path.name}, byte {at}: {before[at]} -> {content[at]}"
        finally:
            path.write_bytes(before)


@pytest.mark.parametrize(
    ("candidates", "budget", "probed"),
    [
        (["fixed", "shuffled:checkpoint", "checkpoint"], None, 2),
        (["fixed", "copy_previous"], 500, 0),
        (["fixed", "checkpoint"], 99, 0),
        (["fixed", "checkpoint"], 199, 1),
    ],
)
def test_an_oracles_choices_hold_whatever_its_budget_let_it_try_out(
    tmp_path: Path, candidates: list[str], budget: int | None, probed: int
) -> None:
    choice = {
        "kind": "oracle",
        "oracle": {"candidates": candidates},
        "budget": {"probe_rollouts": budget},
        "attempts": 1,
    }
    run = write_run(tmp_path / "run", choice)
    probes = run / "stages/2/probes.jsonl"
    assert (len(probes.read_text().splitlines()) if probes.exists() else 0) == probed
    assert [str(check) for check in verify(run) if not check.holds] == []


def test_notes_slipped_in_later_are_named(run: Path) -> None:
    (run / "stages/3/summary.txt").write_text("All is well.")
    assert place(broken(run)) == (3, "files", False)


def test_the_seconds_of_an_answer_are_outside_of_the_chain(run: Path) -> None:
    change_lines(run / "stages/2/answers.jsonl", lambda answers: answers[0].update(seconds=123.4))
    assert all(check.holds for check in verify(run, deep=False))


def swap(lines: list[str]) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def take_out(lines: list[str]) -> None:
    del lines[1]


def repeat(lines: list[str]) -> None:
    lines.insert(3, lines[2])


def truncate(lines: list[str]) -> None:
    del lines[2:]


def cut(lines: list[str]) -> None:
    lines[3] = lines[3][: len(lines[3]) // 2]


def cut_line_end(lines: list[str]) -> None:
    lines[3] = lines[3].rstrip("\n")


def no_json(lines: list[str]) -> None:
    lines[2] = "nothing to see here\n"


def with_blanks(lines: list[str]) -> None:
    lines[2] = json.dumps(json.loads(lines[2])) + "\n"


def with_a_field(lines: list[str]) -> None:
    lines[2] = canonical(json.loads(lines[2]) | {"note": "trust me"}) + "\n"


def without_a_field(lines: list[str]) -> None:
    link = json.loads(lines[2])
    del link["metrics"]
    lines[2] = canonical(link) + "\n"


def other_metrics(lines: list[str]) -> None:
    lines[2] = canonical(json.loads(lines[2]) | {"metrics": "0" * 64}) + "\n"


def other_hash(lines: list[str]) -> None:
    lines[2] = canonical(json.loads(lines[2]) | {"hash": "0" * 64}) + "\n"


def other_previous(lines: list[str]) -> None:
    link = json.loads(lines[2]) | {"previous": "0" * 64}
    del link["hash"]
    lines[2] = canonical(link | {"hash": sha256(canonical(link))}) + "\n"


@pytest.mark.parametrize(
    ("damage", "stage", "part"),
    [
        (swap, 1, "stage"),
        (take_out, 1, "stage"),
        (repeat, 3, "stage"),
        (truncate, 2, "chain.jsonl"),
        (list.clear, 0, "chain.jsonl"),
        (cut, 3, "link"),
        (cut_line_end, 3, "link"),
        (no_json, 2, "link"),
        (with_blanks, 2, "link"),
        (with_a_field, 2, "link"),
        (without_a_field, 2, "link"),
        (other_metrics, 2, "hash"),
        (other_hash, 2, "hash"),
        (other_previous, 2, "previous"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_damaged_chain_is_named_at_its_first_broken_link(
    run: Path, damage: Callable[[list[str]], None], stage: int, part: str
) -> None:
    lines = (run / "chain.jsonl").read_text().splitlines(keepends=True)
    damage(lines)
    (run / "chain.jsonl").write_text("".join(lines))
    assert place(broken(run)) == (stage, part, False)


def test_a_link_beyond_the_last_round_is_named(run: Path) -> None:
    shutil.copytree(run / "stages/3", run / "stages/4")
    links = links_of(run)
    rehash(run, [*links, links[3] | {"stage": 4}])
    assert place(broken(run)) == (4, "stage", False)


def test_a_chain_that_is_gone_is_truncated_at_its_beginning(run: Path) -> None:
    (run / "chain.jsonl").unlink()
    check = broken(run)
    assert place(check) == (0, "chain.jsonl", False)
    assert "truncated" in str(check)


def test_a_file_rewritten_together_with_its_hash_in_the_link_is_caught(run: Path) -> None:
    path = run / "stages/2/decision.json"
    raise_a_digit(path)
    links = links_of(run)
    links[2]["files"]["decision.json"] = sha256(path.read_bytes())
    write_links(run, links)
    assert place(broken(run)) == (2, "hash", False)


def test_a_link_rewritten_with_its_own_hash_is_caught_by_the_next_one(run: Path) -> None:
    path = run / "stages/2/decision.json"
    raise_a_digit(path)
    links = links_of(run)
    links[2]["files"]["decision.json"] = sha256(path.read_bytes())
    del links[2]["hash"]
    links[2]["hash"] = sha256(canonical(links[2]))
    write_links(run, links)
    check = broken(run)
    assert place(check) == (3, "previous", False)
    assert check.expected == links[2]["hash"]


@pytest.mark.parametrize("damage", [flip, raise_a_digit, drop_the_last_line, remove])
def test_another_configuration_breaks_the_first_link(
    run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run / "config.yaml")
    assert place(broken(run)) == (0, "previous", False)


def of_stage(records: list[dict[str, Any]], stage: int) -> list[int]:
    return [row for row, record in enumerate(records) if stage_of(record) == stage]


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_a_changed_number_of_the_metrics_is_named_at_its_stage(run: Path, stage: int) -> None:
    def change(records: list[dict[str, Any]]) -> None:
        records[of_stage(records, stage)[5]]["loss"] += 1e-6

    change_lines(run / "metrics.jsonl", change)
    assert place(broken(run)) == (stage, "metrics", False)


def test_a_deleted_record_of_the_metrics_is_named_at_its_stage(run: Path) -> None:
    def change(records: list[dict[str, Any]]) -> None:
        del records[of_stage(records, 2)[-1]]

    change_lines(run / "metrics.jsonl", change)
    assert place(broken(run)) == (2, "metrics", False)


def test_two_records_of_the_metrics_in_another_order_are_named(run: Path) -> None:
    def change(records: list[dict[str, Any]]) -> None:
        one, other = of_stage(records, 2)[:2]
        records[one], records[other] = records[other], records[one]

    change_lines(run / "metrics.jsonl", change)
    assert place(broken(run)) == (2, "metrics", False)


def test_metrics_of_no_stage_of_the_run_are_named(run: Path) -> None:
    change_lines(
        run / "metrics.jsonl",
        lambda records: records.append({**records[-1], "stage": 4}),
    )
    assert place(broken(run)) == (None, "metrics.jsonl", False)


def weights_flipped(folder: Path) -> None:
    flip(folder / "model.safetensors")


def weights_renamed(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "weights.safetensors")


def weights_added(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "more.safetensors")


def weights_of_another_stage(folder: Path) -> None:
    shutil.copy(folder.parents[1] / "1/policy/model.safetensors", folder / "model.safetensors")


def weights_gone(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    "damage",
    [weights_flipped, weights_renamed, weights_added, weights_of_another_stage, weights_gone],
    ids=lambda damage: damage.__name__,
)
def test_other_weights_are_named(run: Path, damage: Callable[[Path], None]) -> None:
    damage(run / "stages/2/policy")
    assert place(broken(run)) == (2, "checkpoint", False)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
@pytest.mark.parametrize(
    "name",
    [
        "chain.jsonl",
        "metrics.jsonl",
        "config.yaml",
        "summary.json",
        "stages/2/gate.json",
        "stages/2/answers.jsonl",
        "stages/2/policy/model.safetensors",
    ],
)
def test_what_is_no_file_in_place_of_one_is_named(
    run: Path, name: str, make: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    remove(run / name)
    make(run / name)
    assert main(["verify", str(run), "--shallow"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("broken: stage 2: " if "/" in name else "broken: ")
    assert any(part in last for part in (Path(name).name, "checkpoint", "previous"))


@pytest.mark.parametrize("name", ["4", "99"])
def test_a_folder_of_a_stage_that_the_run_does_not_have_is_named(run: Path, name: str) -> None:
    shutil.copytree(run / "stages/3", run / "stages" / name)
    assert place(broken(run)) == (int(name), "folder", False)


def test_a_gate_that_nothing_vouches_for_is_named(run: Path) -> None:
    """It would say what the first round is compared with."""
    shutil.copy(run / "stages/1/gate.json", run / "stages/0/gate.json")
    rehash(run)
    assert place(broken(run)) == (0, "files", False)


def test_a_complete_chain_needs_its_summary(run: Path) -> None:
    remove(run / "summary.json")
    assert place(broken(run)) == (None, "summary.json", False)


@pytest.mark.parametrize("damage", [flip, raise_a_digit, lambda path: path.write_text("[" * 9999)])
def test_another_summary_is_named_also_by_a_shallow_check(
    run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run / "summary.json")
    assert place(broken(run)) == (None, "summary.json", False)


def test_metrics_of_a_round_whose_folder_is_gone_are_named(run: Path) -> None:
    remove(run / "summary.json")
    write_links(run, links_of(run)[:3])
    shutil.rmtree(run / "stages/3")
    assert place(broken(run)) == (3, "configuration.json", False)


def test_metrics_of_rounds_that_the_chain_does_not_reach_are_named(run: Path) -> None:
    remove(run / "summary.json")
    remove(run / "chain.jsonl")
    shutil.rmtree(run / "stages")
    assert place(broken(run)) == (0, "chain.jsonl", False)


@pytest.mark.parametrize(
    "text",
    ["a: 2001-99-99", "[" * 5000, f"seed: {'9' * 5000}", f"name: 0x{'f' * 5000}", "a: 1\nb: 2"],
    ids=["date", "nested", "long", "long_in_hexadecimal", "unknown_keys"],
)
def test_a_configuration_that_is_none_is_named_in_one_line(
    run: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "config.yaml").write_text(text + "\n")
    rehash(run)
    assert main(["verify", str(run), "--shallow"]) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("broken: stage 0: config.yaml: expected a configuration, found ")


@pytest.mark.parametrize("key", ["\nThe run holds.", "\ud800", "\x1b[2J", "a" * 9999])
@pytest.mark.parametrize("name", ["stages/0/evidence.json", "chain.jsonl"])
def test_a_damaged_file_says_nothing_of_its_own(
    run: Path, key: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever its keys hold: one line that any terminal can show."""
    path = run / name
    path.write_text(path.read_text().replace("{", "{" + json.dumps(key) + ": 1,", 1))
    if name != "chain.jsonl":
        rehash(run)
    assert main(["verify", str(run)]) == 1
    [line] = capfd.readouterr().out.splitlines()
    assert line.startswith("broken: stage 0: ")
    assert line.isprintable()
    assert len(line) < 1000


@pytest.mark.parametrize("model", [7, {"type": "none such"}])
def test_a_damaged_tokenizer_is_named_where_it_counts(run: Path, model: Any) -> None:
    change_json(
        run / "stages/1/policy/tokenizer.json", lambda tokenizer: tokenizer.update(model=model)
    )
    check = broken(run, deep=True)
    assert place(check) == (1, "context.txt", True)
    assert check.found.endswith("stages/1/policy: holds no tokenizer that can be read")


def decided_otherwise(run: Path) -> None:
    def change(decision: dict[str, Any]) -> None:
        decision["configuration"]["sizes"]["3"]["hole_ratio"] = 0.25

    change_json(run / "stages/1/decision.json", change)


def accepted_without_repairs(run: Path) -> None:
    change_json(
        run / "stages/2/decision.json",
        lambda decision: decision.update(kind="accepted", repairs=[]),
    )


def cheaper_than_it_was(run: Path) -> None:
    change_json(
        run / "stages/1/decision.json",
        lambda decision: decision["spent"].update(engineer_tokens=99),
    )


def trained_on_less_than_it_was(run: Path) -> None:
    change_json(
        run / "stages/1/decision.json",
        lambda decision: decision["spent"].update(training_instances=9),
    )


def probes_made_up(run: Path) -> None:
    change_json(
        run / "stages/2/decision.json",
        lambda decision: decision["spent"].update(probe_rollouts=64),
    )


def decision_of_another_kind_of_json(run: Path) -> None:
    (run / "stages/1/decision.json").write_text("[]\n")


def answered_otherwise(run: Path) -> None:
    def change(answers: list[dict[str, Any]]) -> None:
        answers[0]["text"] = answers[0]["text"].replace('"hole_ratio": 0.9', '"hole_ratio": 0.2')

    change_lines(run / "stages/2/answers.jsonl", change)


def refused_answer_hidden(run: Path) -> None:
    change_lines(run / "stages/1/answers.jsonl", lambda answers: answers.pop(0))


def kept_after_fewer_answers(run: Path) -> None:
    change_lines(run / "stages/3/answers.jsonl", lambda answers: answers.pop())
    change_json(
        run / "stages/3/decision.json",
        lambda decision: decision.update(reason=decision["reason"].replace("3 att", "2 att")),
    )


def trained_on_something_else(run: Path) -> None:
    def change(configuration: dict[str, Any]) -> None:
        configuration["sizes"]["4"]["wait_ratio"] = 0.1

    change_json(run / "stages/2/configuration.json", change)


def shown_something_else(run: Path) -> None:
    path = run / "stages/2/configuration.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["sizes"][4]["wait_ratio"] = 0.1
    path.write_text(yaml.safe_dump(tree, sort_keys=False))


def easier_environment(run: Path) -> None:
    change_json(run / "stages/1/environment.json", lambda sizes: sizes["4"].update(acceptance=0.5))


def shortfall_made_up(run: Path) -> None:
    (run / "stages/1/shortfalls.json").write_text('[{"missing_wait": 1}]\n')


def valid_by_word(run: Path) -> None:
    def change(episodes: list[dict[str, Any]]) -> None:
        next(one for one in episodes if not one["valid"])["valid"] = True

    change_lines(run / "stages/1/episodes.jsonl", change)


def solved_afterwards(run: Path) -> None:
    """The text of an answer on the same kind of board takes a failed one's place."""

    def change(episodes: list[dict[str, Any]]) -> None:
        failed = next(one for one in episodes if one["failure"] == "parse_error")
        failed["text"] = next(one for one in episodes if one["valid"])["text"]

    change_lines(run / "stages/1/episodes.jsonl", change)


def answer_left_out(run: Path) -> None:
    change_lines(run / "stages/0/episodes.jsonl", lambda episodes: episodes.pop())


def failure_left_out(run: Path) -> None:
    change_lines(run / "stages/1/failures.jsonl", lambda failures: failures.pop())


def better_rate(run: Path) -> None:
    def change(validation: dict[str, Any]) -> None:
        validation["total"]["valid"] += 1

    change_json(run / "stages/0/validation.json", change)


def other_evidence(run: Path) -> None:
    def change(evidence: dict[str, Any]) -> None:
        evidence["failure_times"].clear()

    change_json(run / "stages/1/evidence.json", change)


def gate_left_open(run: Path) -> None:
    change_json(run / "stages/1/gate.json", lambda gate: gate.update(restored="configuration"))


def another_prompt(run: Path) -> None:
    path = run / "stages/1/context.txt"
    path.write_text(path.read_text() + "\nPlease.")


def prompt_without_a_tokenizer(run: Path) -> None:
    shutil.rmtree(run / "stages/1/policy")
    (run / "stages/1/policy").mkdir()
    shutil.copy(run / "stages/2/policy/model.safetensors", run / "stages/1/policy")


@pytest.mark.parametrize(
    ("forge", "stage", "part"),
    [
        (decided_otherwise, 1, "decision.json"),
        (accepted_without_repairs, 2, "decision.json"),
        (cheaper_than_it_was, 1, "decision.json"),
        (trained_on_less_than_it_was, 1, "decision.json"),
        (probes_made_up, 2, "decision.json"),
        (decision_of_another_kind_of_json, 1, "decision.json"),
        (answered_otherwise, 2, "answers.jsonl"),
        (refused_answer_hidden, 1, "answers.jsonl"),
        (kept_after_fewer_answers, 3, "answers.jsonl"),
        (trained_on_something_else, 2, "configuration.json"),
        (shown_something_else, 2, "configuration.yaml"),
        (easier_environment, 1, "environment.json"),
        (shortfall_made_up, 1, "shortfalls.json"),
        (valid_by_word, 1, "episodes.jsonl"),
        (solved_afterwards, 1, "episodes.jsonl"),
        (answer_left_out, 0, "episodes.jsonl"),
        (failure_left_out, 1, "failures.jsonl"),
        (better_rate, 0, "validation.json"),
        (other_evidence, 1, "evidence.json"),
        (gate_left_open, 1, "gate.json"),
        (another_prompt, 1, "context.txt"),
        (prompt_without_a_tokenizer, 1, "context.txt"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_chain_that_was_hashed_anew_is_caught_where_its_files_do_not_follow(
    run: Path, forge: Callable[[Path], None], stage: int, part: str
) -> None:
    forge(run)
    rehash(run)
    shallow = verify(run, deep=False)
    assert {check.part for check in shallow if not check.holds} <= {"summary.json"}
    check = broken(run, deep=True)
    assert place(check) == (stage, part, True)
    assert ("Error: " in check.found) == (forge is decision_of_another_kind_of_json)


@pytest.mark.parametrize(
    ("change", "stage", "part"),
    [
        ({"instances": "0" * 64}, 1, "instances"),
        ({"generator": None}, 1, "generator"),
        ({"validation_set": "0" * 64}, 1, "validation_set"),
        ({"instances": "0" * 64}, 0, "instances"),
    ],
)
def test_a_link_that_claims_other_boards_is_caught(
    run: Path, change: dict[str, Any], stage: int, part: str
) -> None:
    links = links_of(run)
    links[stage] |= change
    rehash(run, links)
    assert place(broken(run, deep=True)) == (stage, part, True)


def test_boards_drawn_with_another_key_are_caught(run: Path) -> None:
    links = links_of(run)
    links[2]["generator"]["key"] = links[1]["generator"]["key"]
    rehash(run, links)
    check = broken(run, deep=True)
    assert place(check) == (2, "generator", True)
    assert check.found == f'key: "{links[1]["generator"]["key"]}"'


@pytest.mark.parametrize(
    ("forge", "expected", "found"),
    [
        (
            decided_otherwise,
            "configuration.sizes.3.hole_ratio: 0.2",
            "configuration.sizes.3.hole_ratio: 0.25",
        ),
        (shortfall_made_up, "[0]: nothing", '[0]: {"missing_wait": 1}'),
        (
            kept_after_fewer_answers,
            "what can be derived",
            "answers.jsonl: holds 2 answers, none of them usable; there must be another",
        ),
        (
            answer_left_out,
            "what can be derived",
            "stages/0/episodes.jsonl: 119 answers to 120 boards",
        ),
        (refused_answer_hidden, "[0].attempt: 0", "[0].attempt: 1"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_does_not_follow_is_shown_where_it_first_differs(
    run: Path, forge: Callable[[Path], None], expected: str, found: str
) -> None:
    forge(run)
    rehash(run)
    check = broken(run, deep=True)
    assert check.expected == expected
    assert check.found.removeprefix(f"{run}/") == found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=99),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(one=JSON, other=JSON)
@example(one=1, other=True)
@example(one={"a": 1}, other={"a": 1.0})
@example(one="\u202e" * 79 + "a", other="\u202e" * 79 + "b")
@example(one="\u202e" * 99 + "a", other="\u202e" * 99 + "b")
@example(one=10**99, other=10**99 + 1)
@example(one=[None], other=[])
def test_values_have_a_difference_where_they_are_written_differently(one: Any, other: Any) -> None:
    assert (first_difference(one, other) is None) == (canonical(one) == canonical(other))
    assert first_difference(one, json.loads(json.dumps(one))) is None


def test_a_long_text_is_shown_around_where_it_differs(run: Path) -> None:
    another_prompt(run)
    rehash(run)
    check = broken(run, deep=True)
    assert len(str(check)) < 250
    assert check.found.endswith('\\nPlease."')


def leave_off(run: Path, after: int) -> None:
    """Make a run one that was left after a stage."""
    (run / "summary.json").unlink()
    for stage in range(after + 1, 4):
        shutil.rmtree(run / "stages" / str(stage))
    write_links(run, links_of(run)[: after + 1])
    change_lines(
        run / "metrics.jsonl",
        lambda records: records.__setitem__(
            slice(None), [record for record in records if stage_of(record) <= after]
        ),
    )


@pytest.mark.parametrize("after", [0, 2])
def test_a_run_in_progress_holds_as_far_as_its_chain_goes(run: Path, after: int) -> None:
    leave_off(run, after)
    checks = verify(run, deep=False)
    assert all(check.holds for check in checks)
    assert {check.stage for check in checks} == set(range(after + 1))


def test_a_round_that_has_begun_needs_the_link_of_the_one_before(run: Path) -> None:
    leave_off(run, 2)
    write_links(run, links_of(run)[:1])
    assert place(broken(run)) == (1, "chain.jsonl", False)


def sealed_again(run: Path, stage: int) -> bytes:
    """The chain after the loop has come to the end of a stage (once more)."""
    config, directory = load(run / "config.yaml"), RunDirectory(run)
    validation = validate.boards_for(config)
    boards = None
    if stage:
        configuration = configuration_for(config, directory, stage)
        boards = draw_boards(config, stage, configuration, validation).boards
    seal(config, directory, validation, stage, boards)
    return (run / "chain.jsonl").read_bytes()


@pytest.mark.parametrize("stage", [0, 3])
def test_a_stage_is_linked_once(run: Path, finished: Path, stage: int) -> None:
    assert sealed_again(run, stage) == (finished / "chain.jsonl").read_bytes()


@pytest.mark.parametrize("links", [3, 2, 0])
def test_a_run_killed_before_its_link_was_written_ends_with_the_same_chain(
    run: Path, finished: Path, links: int
) -> None:
    write_links(run, links_of(run)[:links])
    (run / ".chain.jsonl.4711.tmp").write_text("left behind by a kill")
    assert sealed_again(run, 3) == (finished / "chain.jsonl").read_bytes()


def test_equal_runs_leave_equal_chains_whatever_time_they_took(run: Path, finished: Path) -> None:
    change_lines(run / "stages/3/answers.jsonl", lambda answers: answers[0].update(seconds=99.0))
    (run / "timings.jsonl").unlink()
    write_links(run, links_of(run)[:3])
    assert sealed_again(run, 3) == (finished / "chain.jsonl").read_bytes()


def test_a_stage_without_its_weights_is_not_linked(run: Path) -> None:
    write_links(run, [])
    weights_gone(run / "stages/0/policy")
    with pytest.raises(UserError, match=r"stages/0/policy: holds no \*\.safetensors"):
        sealed_again(run, 0)
    assert links_of(run) == []


def test_a_chain_that_ends_in_no_link_is_not_gone_on_with(run: Path) -> None:
    lines = (run / "chain.jsonl").read_text().splitlines(keepends=True)
    (run / "chain.jsonl").write_text("".join(lines[:2]) + lines[2][:100])
    with pytest.raises(UserError, match=r"chain\.jsonl: line 3: no link"):
        sealed_again(run, 3)


def test_the_command_says_what_was_checked_of_each_stage(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(finished), "--shallow"]) == 0
    *stages, whole, last = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in stages] == [f"stage {stage}" for stage in range(4)]
    assert stages[2] == "stage 2: link, 13 files, metrics, checkpoint"
    assert whole == "run: metrics.jsonl, summary.json"
    assert last == "The run holds."


def test_the_command_derives_again_unless_told_otherwise(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other_evidence(run)
    rehash(run)
    assert main(["verify", str(run), "--shallow"]) == 0
    capsys.readouterr()
    assert main(["verify", str(run)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("broken: stage 1: evidence.json, derived again: expected failure_times")


def test_the_command_names_the_first_broken_link_in_short_hashes(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "stages/2/gate.json"
    raise_a_digit(path)
    assert main(["verify", str(run), "--shallow"]) == 1
    expected = links_of(run)[2]["files"]["gate.json"][:12]
    found = sha256(path.read_bytes())[:12]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"broken: stage 2: gate.json: expected {expected}, found {found}"


def test_the_command_says_that_a_run_is_in_progress(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_off(run, 1)
    assert main(["verify", str(run), "--shallow"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Holds so far: the run is in progress."


@pytest.mark.parametrize("name", [".", "no_such_folder"])
def test_the_command_ends_with_2_where_there_is_no_run(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path / name)]) == 2
    assert "no run's directory" in capsys.readouterr().err
