"""`jaxlake engineer apply`: every line is answered, in JSON, and what can't be read is said."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from engineer import LakeConfiguration, SizeKnobs
from engineer.space import answer_text, configuration_yaml
from training.cli import main

CONFIG = "configs/miniature.yaml"
CURRENT = LakeConfiguration(
    sizes={
        3: SizeKnobs(data_ratio=0.4, hole_ratio=0.15, wait_ratio=0.1),
        4: SizeKnobs(data_ratio=0.3, hole_ratio=0.1, wait_ratio=0.2),
        5: SizeKnobs(data_ratio=0.3, hole_ratio=0.05, wait_ratio=0.3),
    }
)
OTHER = answer_text(CURRENT).replace("0.15", "0.20")
TREE = CURRENT.model_dump(mode="json")


class Pipe:
    """Applies answers to a configuration, as from a shell."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.current = folder / "current.yaml"
        self.current.write_text(configuration_yaml(CURRENT), encoding="utf-8")

    def __call__(
        self, lines: bytes | str, *, config: str = CONFIG
    ) -> tuple[int, list[dict[str, Any]], str]:
        answers = self.folder / "answers.jsonl"
        answers.write_bytes(lines.encode() if isinstance(lines, str) else lines)
        status = main(["engineer", "apply", config, "--current", str(self.current), str(answers)])
        out, err = self.capsys.readouterr()
        return status, [json.loads(line, parse_constant=refuse) for line in out.splitlines()], err


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.fixture
def apply(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pipe:
    return Pipe(tmp_path, capsys)


def asked(*answers: str) -> str:
    return "".join(json.dumps({"id": n, "answer": text}) + "\n" for n, text in enumerate(answers))


def test_answers_are_decided_in_their_order(apply):
    status, records, err = apply(asked(answer_text(CURRENT), OTHER, "no", OTHER.replace("20", "9")))
    assert (status, err) == (0, "")
    assert [record["id"] for record in records] == [0, 1, 2, 3]
    decisions = [record["decision"] for record in records]
    assert decisions == ["accepted", "accepted", "kept", "repaired"]
    assert {*records[0]} == {"id", "decision", "repairs", "reason", "configuration"}
    assert records[0]["configuration"] == records[2]["configuration"] == TREE
    assert records[1]["configuration"]["sizes"]["3"]["hole_ratio"] == 0.2
    assert {repair["name"] for repair in records[3]["repairs"]} == {"clamp"}


def test_the_standard_input_is_read_where_answers_are_a_dash(apply, monkeypatch, tmp_path, capsys):
    path = tmp_path / "stdin"
    path.write_text(asked(OTHER), encoding="utf-8")
    opened = io.open

    def redirected(file, *args, **options):
        return opened(path, "rb") if file == 0 else opened(file, *args, **options)

    monkeypatch.setattr("builtins.open", redirected)
    assert main(["engineer", "apply", CONFIG, "--current", str(apply.current), "-"]) == 0
    assert json.loads(capsys.readouterr().out)["decision"] == "accepted"


UNREADABLE = {
    '{"id": 7, "answer": 5}': (7, "answer: got int, a text is needed"),
    '{"id": "a"}': ("a", "answer: missing"),
    '{"id": 7, "answer": null}': (7, "answer: got NoneType"),
    '{"id": NaN, "answer": ""}': (None, "id: can't be written as JSON"),
    '{"id": 1e999, "answer": ""}': (None, "id: can't be written as JSON"),
    '{"id": [-Infinity], "answer": ""}': (None, "id: can't be written as JSON"),
    '{"id": ' + "9" * 5_000 + ', "answer": ""}': (None, "no JSON: Exceeds the limit"),
    "[" * 100_000: (None, "no JSON: maximum recursion depth"),
    '{"id": 1, "answer": ""': (None, "no JSON: Expecting ',' delimiter"),
    "[1]": (None, "got list, an object with id and answer is needed"),
    "\x00": (None, "no JSON"),
    json.dumps({"id": 3, "answer": "x" * 1_000_001}): (3, "answer: got 1000001 characters"),
}


@pytest.mark.parametrize("line", UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_line_that_is_no_record_is_answered_under_its_id_and_the_others_go_on(apply, line):
    name, problem = UNREADABLE[line]
    status, records, err = apply(asked(OTHER) + line + "\n" + asked(OTHER))
    assert status == 1
    assert [set(record) for record in (records[0], records[2])] == [set(records[0])] * 2
    assert set(records[1]) == {"id", "error"}
    assert records[1]["id"] == name
    assert records[1]["error"].startswith(problem)
    assert f"answers.jsonl:2: {problem}" in err


def test_a_line_that_is_not_utf_8_is_answered_and_the_others_go_on(apply, tmp_path, capsys):
    path = tmp_path / "bytes.jsonl"
    path.write_bytes(
        asked(OTHER).encode() + b'{"id": 4, "answer": "\xe9"}\n' + asked(OTHER).encode()
    )
    assert main(["engineer", "apply", CONFIG, "--current", str(apply.current), str(path)]) == 1
    printed = capsys.readouterr()
    first, bad, last = map(json.loads, printed.out.splitlines())
    assert first == last
    assert first["decision"] == "accepted"
    assert bad == {"id": None, "error": "not UTF-8: byte 0xe9"}
    assert "bytes.jsonl:2: not UTF-8: byte 0xe9" in printed.err


LAUGHS = "\n".join(
    ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    + ["sizes: *a11"]
)
NO_CONFIGURATIONS = {
    "": "must hold a mapping of keys, got NoneType",
    "sizes: \xff": "is not YAML: 'utf-8' codec",
    "[" * 3_000: "is not YAML: maximum recursion depth",
    "sizes: !!timestamp 2001-99-99": "is not YAML: month must be in 1..12",
    "sizes: " + "9" * 5_000: "is not YAML: Exceeds the limit",
    "sizes: !!python/name:os.system": "is not YAML: could not determine a constructor",
    "&a [*a]": "must hold a mapping of keys, got list",
    LAUGHS: "sizes: Input should be a valid dictionary",
    configuration_yaml(CURRENT).replace("0.15", "0.95"): "sizes.3.hole_ratio: Input should be less",
    configuration_yaml(CURRENT).replace("0.15", "0.45"): "3.hole_ratio must lie in 0..0.4",
    configuration_yaml(CURRENT).replace("  5:", "  6:"): "map sizes must be 3, 4, 5, got 3, 4, 6",
}


@pytest.mark.parametrize("text", NO_CONFIGURATIONS, ids=range(len(NO_CONFIGURATIONS)))
def test_a_current_configuration_that_is_none_is_named_with_its_file(apply, text):
    apply.current.write_bytes(text.encode("latin-1"))
    status, records, err = apply(asked(OTHER))
    assert (status, records) == (2, [])
    assert err.startswith(f"jaxlake: error: {apply.current}: {NO_CONFIGURATIONS[text]}")
    assert len(err) < 1_000


@pytest.mark.parametrize("twice", ["03", "3.0", "+3", " 3 "])
def test_a_map_size_that_is_written_in_two_ways_is_given_twice(apply, twice):
    sizes = {3: TREE["sizes"]["3"], **TREE["sizes"]}
    sizes[twice] = sizes.pop(3)
    apply.current.write_text(json.dumps({"sizes": sizes}), encoding="utf-8")
    status, records, err = apply(asked(OTHER))
    assert (status, records) == (2, [])
    assert "map size 3 is given more than once" in err


def test_a_misspelt_configuration_is_refused_with_the_names_it_may_have(apply, tmp_path):
    config = tmp_path / "config.yaml"
    text = Path(CONFIG).read_text(encoding="utf-8")
    config.write_text(text.replace("attempts:", "atempts:"), encoding="utf-8")
    status, records, err = apply(asked(OTHER), config=str(config))
    assert (status, records) == (2, [])
    assert "engineer.atempts: unknown key; allowed are kind" in err
