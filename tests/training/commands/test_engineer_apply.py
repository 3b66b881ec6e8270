"""`jaxlake engineer apply`: one JSON answer per line, and errors for unreadable lines."""

import json

import pytest
import yaml

from engineer.space import answer_text
from tests.engineer.builders import from_rows
from tests.paths import SCRATCH

CURRENT = from_rows((0.4, 0.15, 0.1), (0.3, 0.1, 0.2), (0.3, 0.05, 0.3))
CURRENT_YAML = yaml.safe_dump(CURRENT.model_dump())
CURRENT_TREE = CURRENT.model_dump(mode="json")
SAME_ANSWER = answer_text(CURRENT)
NEW_ANSWER = SAME_ANSWER.replace("0.15", "0.20")


@pytest.fixture
def current_file(tmp_path):
    path = tmp_path / "current.yaml"
    path.write_text(CURRENT_YAML, encoding="utf-8")
    return path


@pytest.fixture
def apply(cli, write_lines, current_file):
    """Reviews the lines of a file against the current configuration."""

    def apply_lines(*lines, config=SCRATCH):
        return cli("engineer", "apply", config, "--current", current_file, write_lines(*lines))

    return apply_lines


def test_apply_decides_answers_in_order(apply):
    answers = (SAME_ANSWER, NEW_ANSWER, "no", NEW_ANSWER.replace("20", "9"))
    result = apply(*({"id": n, "answer": text} for n, text in enumerate(answers)))
    assert (result.status, result.err) == (0, "")
    records = result.records
    assert [record["id"] for record in records] == [0, 1, 2, 3]
    decisions = [record["decision"] for record in records]
    assert decisions == ["unchanged", "accepted", "kept", "repaired"]
    assert {*records[0]} == {"id", "decision", "repairs", "reason", "configuration"}
    assert records[0]["configuration"] == records[2]["configuration"] == CURRENT_TREE
    assert records[1]["configuration"]["sizes"]["3"]["hole_ratio"] == 0.2
    assert {repair["name"] for repair in records[3]["repairs"]} == {"clamp"}


@pytest.mark.parametrize(
    ("line", "record_id", "message"),
    [
        ({"id": 7, "answer": 5}, 7, "answer must be a string, got int"),
        ({"id": 7, "answer": None}, 7, "answer must be a string, got NoneType"),
        ({"id": "a"}, "a", "answer: required, but missing"),
        ({"id": 3, "answer": "x" * 1_000_001}, 3, "answer must have at most 1000000 characters"),
        (b'{"id": 4, "answer": "\xe9"}', None, "not JSON: not UTF-8: byte 0xe9"),
    ],
    ids=range(5),
)
def test_apply_reports_invalid_line_and_continues(apply, line, record_id, message):
    valid_line = {"id": 0, "answer": NEW_ANSWER}
    result = apply(valid_line, line, valid_line)
    first_record, error_record, last_record = result.records
    assert result.status == 1
    assert first_record == last_record
    assert first_record["decision"] == "accepted"
    assert error_record == {"id": record_id, "error": error_record["error"]}
    assert error_record["error"].startswith(message)
    assert f"lines.jsonl:2: {message}" in result.err


SIZE_TWICE = "sizes: map size 3 is given more than once"
INVALID_FILES = {
    "": "must hold a mapping of keys, got nothing",
    "sizes: \xff": "is not YAML: not UTF-8: byte 0xff",
    "[" * 3_000: "is not YAML: maximum recursion depth",
    "sizes: !!timestamp 2001-99-99": "is not YAML: month must be in 1..12",
    "sizes: " + "9" * 5_000: "is not YAML: Exceeds the limit",
    "sizes: !!python/name:os.system": "is not YAML: could not determine a constructor",
    "&a [*a]": "is not YAML: aliases form a cycle",
    CURRENT_YAML.replace("0.15", "0.95"): "sizes.3.hole_ratio: got 0.95: Input",
    CURRENT_YAML.replace("0.15", "0.45"): "3.hole_ratio must lie in 0..0.4",
    CURRENT_YAML.replace("  5:", "  6:"): "map sizes must be 3, 4, 5, got 3, 4, 6",
} | {
    json.dumps({"sizes": {name: CURRENT_TREE["sizes"]["3"], **CURRENT_TREE["sizes"]}}): SIZE_TWICE
    for name in ("03", "3.0", "+3", " 3 ")  # size 3, written in another way
}


@pytest.mark.parametrize("text", INVALID_FILES, ids=range(len(INVALID_FILES)))
def test_apply_names_invalid_configuration_file(apply, current_file, text):
    current_file.write_bytes(text.encode("latin-1"))
    status, out, err = apply({"id": 0, "answer": NEW_ANSWER})
    assert (status, out) == (2, "")
    assert err.startswith(f"jaxlake: error: {current_file}: {INVALID_FILES[text]}")
    assert len(err) < 1_000
