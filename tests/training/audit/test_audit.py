"""The chain over a run's stages, and what `jaxlake audit` finds of every way to break it."""

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engineer import build_context
from jaxlake.command_line.entry import main
from tests.training.audit import forging
from tests.training.audit.findings import problem
from tests.training.audit.forging import (
    Damage,
    both,
    change,
    copy,
    drop,
    flip,
    links,
    make,
    put,
    remove,
    rewrite,
)
from tests.training.sample_run import write_run
from training.analysis.counterfactual import context_shown
from training.audit import audit_run
from training.audit.checks import Check, first_difference
from training.phases.stage_results import read_stage_results, view_of
from training.run.directory import RunDirectory
from training.run.progress import console

VALIDATED = ("episodes.jsonl", "failures.jsonl", "evidence.json", "validation.json")
DESIGNED = ("gate.json", "context.txt", "answers.jsonl", "decision.json", "summary_prompt.txt")
BOARDS = ("configuration.json", "environment.json", "shortfalls.json")
FILES = (*BOARDS, *VALIDATED, *DESIGNED, "summary.txt")


# Runs that hold.


def test_an_untouched_run_holds_and_everything_that_can_be_is_derived_again(finished):
    answers = [one for s in "123" for one in forging.lines_of(finished, f"{s}/answers.jsonl")]
    assert {answer["kind"] for answer in answers} == {"accepted", "repaired", "rejected"}
    assert any(answer["cut"] for answer in answers)
    parts: dict[tuple[int | None, bool], set[str]] = {}
    for check in audit_run(finished):
        assert check.holds, str(check)
        parts.setdefault((check.stage, check.derived), set()).add(check.part)
    notes = {"summary.txt", "summary_prompt.txt"}  # the engineer wrote none after stage 3
    link = {"stage", "hash", "previous", "files", "metrics", "checkpoint"}
    validated = {"generator", "instances", "validation_set", *VALIDATED}
    derived = {"configuration.yaml", *BOARDS, *validated, *DESIGNED}
    assert parts == {
        (None, False): {"metrics.jsonl", "summary.json"},
        (0, False): link | {*VALIDATED},
        (0, True): validated,
        **{(stage, False): link | {*FILES} for stage in (1, 2)},
        **{(stage, True): derived for stage in (1, 2)},
        (3, False): link | {*FILES} - notes,
        (3, True): derived - notes,
    }


def test_the_chain_is_what_the_documented_hashes_of_the_files_give(run):
    before = (run / "chain.jsonl").read_bytes()
    forging.rehash(run)
    assert (run / "chain.jsonl").read_bytes() == before
    first, *links = forging.lines_of(run, "chain.jsonl")
    assert first["generator"] is first["instances"] is None
    for stage, link in enumerate(links, start=1):
        configuration = json.loads((run / f"stages/{stage}/configuration.json").read_text())
        assert link["generator"]["configuration"] == configuration
    for name in ("generator", "instances"):
        assert len({forging.canonical(link[name]) for link in links}) == len(links)
    assert len({link["validation_set"] for link in [first, *links]}) == 1


def oracle(*candidates: str, **budget: float) -> dict[str, Any]:
    return {"kind": "oracle", "oracle": {"candidates": candidates}, "budget": budget, "attempts": 2}


PROTECTED = {"rollback": "checkpoint", "protect_from": 0.5, "protect_share": 0.3}


@pytest.mark.parametrize(
    ("choice", "name", "shown"),
    [
        ({"gate": PROTECTED}, "2/gate.json", '"restored": "checkpoint"'),
        ({"gate": PROTECTED, "max_step": 0.05}, "1/decision.json", "bounded_step"),
        ({"budget": {"engineer_tokens": 0}}, "3/decision.json", "after 0 attempts, the budget is"),
        ({"budget": {"engineer_tokens": 5}}, "3/decision.json", "after 1 attempts, the budget is"),
        ({"budget": {"seconds": 1e-9}}, "3/decision.json", "the budget is spent, seconds: "),
        (oracle("fixed", "shuffled:checkpoint", "checkpoint"), "2/probes.jsonl", '"probe": 1'),
        (oracle("fixed", "checkpoint", probe_rollouts=400), "2/probes.jsonl", '"probe": 0'),
        (oracle("fixed", "checkpoint", probe_rollouts=99), "2/decision.json", '"accepted"'),
        (oracle("checkpoint", seconds=99.0), "3/answers.jsonl", "no candidate was usable"),
    ],
)
def test_a_run_holds_whatever_its_engineer_and_its_gate_did(tmp_path, choice, name, shown):
    run = write_run(tmp_path / "run", choice, skill=(0.3, 0.8, 0.3, 0.9))
    assert shown in forging.file_in(run, name).read_text()
    assert problem(run) is None
    if shown == '"probe": 1':
        for how, message in (
            (lambda probes: probes[1].update(valid=36), "[0].candidates[1].score: expected 1.0"),
            (lambda probes: probes.append(probes[-1]), "probes.jsonl, derived again: expected 2"),
            (lambda probes: probes.__delitem__(slice(1, None)), "no probe is recorded of"),
        ):
            forged = shutil.copytree(run, tmp_path / message[:8])
            change("2/probes.jsonl", how)(forged)
            forging.rehash(forged)
            assert message in str(problem(forged))


@pytest.mark.parametrize("control", ["shuffled", "simulated"])
def test_a_control_s_run_holds_what_its_engineer_saw(tmp_path, control):
    kind = f"{control}:checkpoint"
    run = write_run(tmp_path / "run", {"kind": kind, "max_context_tokens": 2_000})
    directory = RunDirectory(run)
    config, results = directory.config(), read_stage_results(directory, directory.config())
    shown = directory.stage(2).context.read()
    assert shown != build_context(view_of(config, results, 2), blocks=config.engineer.blocks).text
    assert shown == directory.stage(2).answers.read()[0].context
    assert problem(run) is None
    directory.stage(2).context.remove()
    assert context_shown(run, 2) == shown


# Runs that were damaged.


def other(line: str, **fields: Any) -> str:
    return forging.canonical(json.loads(line) | fields) + "\n"


def swap(lines: list[Any]) -> None:
    lines[20], lines[21] = lines[21], lines[20]


def raise_a_digit(text: str) -> str:
    at = next(at for at, letter in enumerate(text) if letter.isdecimal())
    return f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}"


def repeat_a_key(name: str, key: str) -> Damage:
    """Name a key twice in an object, with one value: readers differ in which they take."""
    repeated = re.compile(rf'"{key}": ([^,]+)')
    return rewrite(name, lambda text: repeated.sub(rf'"{key}": 0, "{key}": \1', text, count=1))


WEIGHTS = "2/policy/model.safetensors"
HASHED_GATE = both(
    copy("1/gate.json", "0/gate.json"),  # it would say what the first stage is compared with
    put("chain.jsonl", 0, "files", "gate.json", value=""),
    forging.rehash,
)
FIFTH_LINK = both(
    copy("3", "4"), links(lambda a, b, c, d: [a, b, c, d, other(d, stage=4)]), forging.rehash
)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        *((flip(f"2/{name}"), f"stage 2: {name}: ") for name in FILES),
        *((rewrite(f"0/{name}", raise_a_digit), f"stage 0: {name}: ") for name in VALIDATED),
        *((drop("2/answers.jsonl", row), "stage 2: answers.jsonl: expected") for row in (0, -1)),
        (remove("2/answers.jsonl"), "stage 2: answers.jsonl: can't be read: "),
        (remove("2/context.txt"), "stage 2: context.txt: can't be read: "),
        (remove("2/summary.txt"), "stage 2: files: summary.txt: expected nothing"),
        (put("1/answers.jsonl", 0, "kind", value="?"), "stage 1: answers.jsonl: can't be read: "),
        (put("1/answers.jsonl", 0, "tokens", value=-1), "stage 1: answers.jsonl: can't be read: "),
        (put("1/answers.jsonl", 0, "seconds", value=-1), "stage 1: answers.jsonl: can't be read: "),
        *(
            (both(repeat_a_key(name, key), more), f"{said}: can't be read: ")
            for name, key, said, more in (
                ("metrics.jsonl", "step", "metrics.jsonl", remove("summary.json")),
                ("summary.json", "seed", "summary.json", both()),
                ("2/answers.jsonl", "seconds", "stage 2: answers.jsonl", both()),
            )
        ),
        # The chain.
        (links(lambda a, b, c, d: [a, c, b, d]), "stage 1: stage: expected 1, found 2"),
        (links(lambda a, b, c, d: [a, c, d]), "stage 1: stage: expected 1, found 2"),
        (links(lambda a, b, c, d: [a, b, c, c, d]), "stage 3: stage: expected 3, found 2"),
        (links(lambda a, b, c, d: [a, b]), "stage 2: chain.jsonl: expected a link, found the end"),
        (links(lambda *links: []), "stage 0: chain.jsonl: expected a link, found the end"),
        (links(lambda a, b, c, d: [a, b, c, d[:200]]), "stage 3: link: can't be read: "),
        (links(lambda a, b, c, d: [a, b, c, d.rstrip()]), "stage 3: link: can't be read: "),
        (links(lambda a, b, c, d: [a, b, "no link\n", d]), "stage 2: link: can't be read: "),
        (links(lambda a, b, c, d: [a, b, c.replace(",", ", "), d]), "stage 2: link: can't be read"),
        (links(lambda a, b, c, d: [a, b, other(c, note="trust me"), d]), "stage 2: link: can't be"),
        (links(lambda a, b, c, d: [a, b, other(c, metrics=None), d]), "stage 2: link: can't be re"),
        (links(lambda a, b, c, d: [a, b, other(c, metrics="0" * 64), d]), "stage 2: hash: expect"),
        (links(lambda a, b, c, d: [a, b, other(c, hash="0" * 64), d]), "stage 2: hash: expected"),
        (FIFTH_LINK, "stage 4: link: expected "),
        (copy("1/gate.json", "0/gate.json"), "stage 0: files: gate.json: expected nothing, found"),
        (HASHED_GATE, "stage 0: files: gate.json: expected nothing, found"),
        (copy("2/summary.txt", "3/summary.txt"), 'stage 3: files: summary.txt: expected "a hash"'),
        (copy("3", "99"), "stage 99: folder: expected none after stage 3, found stages/99"),
        (copy("0", "4"), "stage 4: folder: expected none after stage 3, found stages/4"),
        # Metrics, weights and the end of the run.
        (put("metrics.jsonl", 5, "loss", value=1.5), "stage 0: metrics: expected"),
        (put("metrics.jsonl", 105, "loss", value=1.5), "stage 3: metrics: expected"),
        (put("metrics.jsonl", 30, "entropy", value=1e308), "metrics.jsonl: can't be read: "),
        (put("metrics.jsonl", 30, "by_size", value={"a": {}}), "metrics.jsonl: can't be read: "),
        (drop("metrics.jsonl", 65), "stage 2: metrics: expected"),
        (change("metrics.jsonl", swap), "stage 1: metrics: expected"),
        (put("metrics.jsonl", -1, "stage", value=4), "stage 3: metrics: expected"),
        (change("metrics.jsonl", lambda all: all.append(all[-1] | {"stage": 4})), "stage 4: conf"),
        (rewrite("metrics.jsonl", lambda text: f"{text}cut off"), "metrics.jsonl: character "),
        (flip(WEIGHTS), "stage 2: checkpoint: expected"),
        (remove(WEIGHTS), "stage 2: checkpoint: can't be read: stages/2/policy: holds no "),
        (copy(WEIGHTS, "2/policy/more.safetensors"), "stage 2: checkpoint: expected"),
        (copy(WEIGHTS, "1/policy/model.safetensors"), "stage 1: checkpoint: expected"),
        (remove("chain.jsonl"), "stage 0: chain.jsonl: expected a link, found the end"),
        (remove("summary.json"), "summary.json: is missing, but every stage is complete"),
        (put("summary.json", "seed", value=8), "summary.json: seed: expected 7, found 8"),
        (rewrite("summary.json", lambda _: "[" * 9999), "summary.json: can't be read: "),
        (
            both(remove("3", "summary.json"), links(lambda *links: links[:3])),
            "stage 3: configuration: is missing, but the stage has metrics",
        ),
        (remove("stages", "summary.json", "chain.jsonl"), "stage 0: chain.jsonl: expected a link"),
        # What is no file, and no configuration.
        (make(WEIGHTS, Path.mkdir), "stage 2: checkpoint: can't be read: "),
        (make("2/gate.json", Path.mkdir), "stage 2: gate.json: can't be read: "),
        (make("2/gate.json", os.mkfifo), "stages/2/gate.json: is neither a file nor a folder"),
        (make("summary.json", Path.mkdir), "summary.json: can't be read"),
        (make("metrics.jsonl", Path.mkdir), "metrics.jsonl: can't be read: "),
        (make("chain.jsonl", Path.mkdir), "chain.jsonl: can't be read: "),
        (rewrite("config.yaml", raise_a_digit), "stage 0: previous: expected "),
        (remove("config.yaml"), "config.yaml: can't be read: "),
        (rewrite("config.yaml", lambda _: "[" * 5000), "config.yaml: can't be read: "),
        (rewrite("config.yaml", lambda _: "a: 1\nb: 2"), "config.yaml: can't be read: "),
    ],
)
def test_what_was_changed_slipped_in_or_cut_off_is_named(run, damage, message, capfd):
    damage(run)
    assert main(["audit", str(run), "--shallow"]) == 1
    last = capfd.readouterr().out.splitlines()[-1]
    assert last.startswith(f"broken: {message}")
    assert last.isprintable()
    assert len(last) < 700


def test_a_flipped_bit_anywhere_in_what_is_hashed_is_found(finished):
    """Nothing is passed over, and nothing makes the audit itself fail."""
    rng = random.Random(0)
    names = [f"0/{name}" for name in VALIDATED]
    names += [f"2/{name}" for name in FILES if name != "answers.jsonl"]
    for name in (*names, WEIGHTS, "config.yaml", "chain.jsonl", "metrics.jsonl", "summary.json"):
        path = forging.file_in(finished, name)
        before = path.read_bytes()
        try:
            for _ in range(3):
                at, bit = rng.randrange(len(before)), 1 << rng.randrange(8)
                path.write_bytes(before[:at] + bytes([before[at] ^ bit]) + before[at + 1 :])
                assert problem(finished, deep=False), f"{name}, byte {at}, bit {bit}"
        finally:
            path.write_bytes(before)


def test_a_link_that_is_hashed_anew_is_caught_by_the_next_one_or_by_derivation(run):
    before = (run / "chain.jsonl").read_text().splitlines(keepends=True)
    put("1/gate.json", "comparison", "gained", value=1)(run)
    forging.rehash(run)
    links(lambda a, b, *rest: [a, b, *before[2:]])(run)
    assert str(problem(run, deep=False)).startswith("stage 2: previous: expected ")
    assert str(problem(run)).startswith("stage 1: gate.json, derived again: comparison.gained: ")


@pytest.mark.parametrize("key", ["\nThe run holds.", "\ud800", "\x1b[2J", "a" * 9999])
@pytest.mark.parametrize("name", ["0/evidence.json", "0/validation.json"])
def test_a_damaged_file_says_nothing_of_its_own(run, key, name, capfd):
    """Whatever its keys hold: one line that any terminal can show."""
    inside = '"failures": {' if name == "0/validation.json" else "{"
    rewrite(name, lambda text: text.replace(inside, f"{inside}{json.dumps(key)}: 1,", 1))(run)
    forging.rehash(run)
    assert main(["audit", str(run)]) == 1
    [line] = capfd.readouterr().out.splitlines()
    assert line.startswith(f"broken: stage 0: {name[2:]}, derived again: ")
    assert line.isprintable()
    assert len(line) < 700


# Runs that were damaged, and whose hashes were then made anew.


def solved_afterwards(episodes: list[dict[str, Any]]) -> None:
    """The text of an answer to another board takes a failed one's place."""
    failed = next(one for one in episodes if one["failure"] == "parse_error")
    failed["text"] = next(one for one in episodes if one["valid"])["text"]


def answered_otherwise(answers: list[dict[str, Any]]) -> None:
    answers[0]["text"] = answers[0]["text"].replace('"hole_ratio": 0.9', '"hole_ratio": 0.2')


SHORTFALL = {"size": 3, "hole_ratio": 0.1, "wait_ratio": 0.2, "num_agents": 2, "count": 9}
SHORTFALL |= {"missing_wait": 1, "missing_no_wait": 0, "candidates": 99}
HOLES = ("configuration", "sizes", "3", "hole_ratio")
FEWER_ANSWERS = both(
    drop("3/answers.jsonl", -1),
    rewrite("3/decision.json", lambda text: text.replace("3 attempts", "2 attempts")),
)


@pytest.mark.parametrize(
    ("forge", "place", "message"),
    [
        (put("1/decision.json", *HOLES, value=0.25), "1: decision.json", "3.hole_ratio: expected"),
        (put("2/decision.json", "kind", value="accepted"), "2: decision.json", "kind: expected"),
        (put("2/decision.json", "repairs", value=[]), "2: decision.json", "repairs[0].name: expec"),
        (put("1/decision.json", "spent", "engineer_tokens", value=9), "1: decision.json", "und 9"),
        (put("1/decision.json", "spent", "training_instances", value=9), "1: decision.json", "320"),
        (put("2/decision.json", "spent", "probe_rollouts", value=64), "2: decision.json", "d 64"),
        (rewrite("1/decision.json", lambda text: "[]"), "1: decision.json", "can't be read: "),
        (change("2/answers.jsonl", answered_otherwise), "2: answers.jsonl", "[0].repairs"),
        (drop("1/answers.jsonl", 0), "1: answers.jsonl", "[0].attempt: expected 0, found 1"),
        (FEWER_ANSWERS, "3: answers.jsonl", "can't be read: attempt 2: no answer of"),
        (put("2/configuration.json", *HOLES[1:], value=0.1), "2: configuration.json", "found 0.1"),
        (rewrite("2/configuration.yaml", raise_a_digit), "2: configuration.yaml", 'expected "'),
        (put("1/environment.json", "4", "acceptance", value=0.5), "1: environment.json", "4.acc"),
        (rewrite("1/shortfalls.json", lambda _: json.dumps([SHORTFALL])), "1: shortfalls.json", ""),
        (put("1/episodes.jsonl", 0, "optimum", value=99), "1: episodes.jsonl", "[0].optimum: exp"),
        (change("1/episodes.jsonl", solved_afterwards), "1: episodes.jsonl", "expected"),
        (drop("0/episodes.jsonl", -1), "0: episodes.jsonl", "119 answers to 120 instances"),
        (drop("1/failures.jsonl", -1), "1: failures.jsonl", "found nothing"),
        (put("0/validation.json", "total", "valid", value=1), "0: validation.json", "total.valid:"),
        (put("1/evidence.json", "failure_times", value={}), "1: evidence.json", "failure_times"),
        (put("1/gate.json", "restored", value="configuration"), "1: gate.json", "restored: expect"),
        (rewrite("1/context.txt", lambda text: f"{text}\nPlease."), "1: context.txt", "Please."),
        (rewrite("1/summary_prompt.txt", str.upper), "1: summary_prompt.txt", 'expected "'),
        (rewrite("1/policy/tokenizer.json", lambda _: "7"), "1: answers.jsonl", "no tokenizer th"),
        (put("metrics.jsonl", 30, "entropy", value=9.0), "1: context.txt", "character"),
        (put("chain.jsonl", 0, "instances", value="0" * 64), "0: instances", "expected null"),
        (put("chain.jsonl", 1, "instances", value="0" * 64), "1: instances", 'found "000'),
        (put("chain.jsonl", 1, "validation_set", value="0" * 64), "1: validation_set", 'und "000'),
        (put("chain.jsonl", 1, "generator", value=None), "1: generator", "found nothing"),
        (put("chain.jsonl", 2, "generator", "key", value="00"), "2: generator", 'found "00"'),
    ],
)
def test_a_chain_that_was_hashed_anew_is_caught_where_its_files_do_not_follow(
    run, forge, place, message
):
    forge(run)
    forging.rehash(run)
    assert "summary.json: " in (problem(run, deep=False) or "summary.json: ")
    found = str(problem(run))
    assert found.startswith(f"stage {place}, derived again: ")
    assert message in found
    assert len(found) < 300


def test_the_seconds_of_an_answer_are_outside_of_the_chain(run):
    put("2/answers.jsonl", 0, "seconds", value=123.4)(run)
    assert problem(run) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=99),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(one=JSON, other=JSON)
@example(one=1, other=True)
@example(one={"a": 1}, other={"a": 1.0})
@example(one="\u202e" * 99 + "a", other="\u202e" * 99 + "b")
@example(one={"a.b": 1, "a": {"b": 2}}, other={"a.b": 3, "a": {"b": 2}})
@example(one=[None], other=[])
def test_values_have_a_difference_where_they_are_written_differently(one, other):
    difference = first_difference(one, other)
    assert (difference is None) == (forging.canonical(one) == forging.canonical(other))
    assert first_difference(one, json.loads(json.dumps(one))) is None


# The command.


def test_the_command_says_what_was_checked_and_names_the_first_broken_part(run, capsys):
    assert main(["audit", str(run), "--shallow"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "stage 0: link, 4 files, metrics, checkpoint",
        "stage 1: link, 13 files, metrics, checkpoint",
        "stage 2: link, 13 files, metrics, checkpoint",
        "stage 3: link, 11 files, metrics, checkpoint",
        "run: metrics.jsonl, summary.json",
        "The run holds.",
    ]
    put("1/gate.json", "notice", value="")(run)
    hashes = [forging.lines_of(run, "chain.jsonl")[1]["files"]["gate.json"]]
    hashes.append(forging.sha256((run / "stages/1/gate.json").read_bytes()))
    assert main(["audit", str(run)]) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("stage 0: link, 4 files, metrics, checkpoint; derived again: ")
    expected, found = (digest[:32] for digest in hashes)
    assert last == f'broken: stage 1: gate.json: expected "{expected}", found "{found}"'


def test_the_command_says_its_result_before_what_drawing_boards_again_has_to_say(
    finished, monkeypatch, capsys
):
    def audit_run(path: Path, *, deep: bool) -> Iterator[Check]:
        console.print("validation set: 2 boards are missing")
        yield Check(0, "boards")

    monkeypatch.setattr("training.audit.audit_run", audit_run)
    assert main(["audit", str(finished)]) == 0
    *_, result, note = capsys.readouterr().out.splitlines()
    assert (result, note) == ("The run holds.", "validation set: 2 boards are missing")


@pytest.mark.parametrize("name", [".", "no_such_folder"])
def test_the_command_ends_with_2_where_there_is_no_run(tmp_path, name, capsys):
    assert main(["audit", str(tmp_path / name)]) == 2
    assert "is not a run's directory" in capsys.readouterr().err
