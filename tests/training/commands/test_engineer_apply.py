"""`jaxlake engineer apply`: one JSON answer per line, and errors for unreadable lines."""

import json

import pytest
import yaml

from engineer.space import answer_text
from tests.engineer.builders import from_rows
from tests.paths import SCRATCH

CURRENT = from_rows((0.4, 0.15, 0.1), (0.3, 0.1, 0.2), (0.3, 0.05, 0.3))
YAML = yaml.safe_dump(CURRENT.model_dump())
TREE = CURRENT.model_dump(mode="json")
SAME = answer_text(CURRENT)
OTHER = SAME.replace("0.15", "0.20")


@pytest.fixture
def current(tmp_path):
    path = tmp_path / "current.yaml"
    path.write_text(YAML, encoding="utf-8")
    return path


@pytest.fixture
def apply(cli, write_lines, current):
    """Reviews the lines of a file against the current configuration."""

    def apply(*lines, config=SCRATCH):
        return cli("engineer", "apply", config, "--current", current, write_lines(*lines))

    return apply


def test_apply_decides_answers_in_order(apply):
    answers = (SAME, OTHER, "no", OTHER.replace("20", "9"))
    result = apply(*({"id": n, "answer": text} for n, text in enumerate(answers)))
    assert (result.status, result.err) == (0, "")
    records = result.records
    assert [record["id"] for record in records] == [0, 1, 2, 3]
    decisions = [record["decision"] for record in records]
    assert decisions == ["unchanged", "accepted", "kept", "repaired"]
    assert {*records[0]} == {"id", "decision", "repairs", "reason", "configuration"}
    assert records[0]["configuration"] == records[2]["configuration"] == TREE
    assert records[1]["configuration"]["sizes"]["3"]["hole_ratio"] == 0.2
    assert {repair["name"] for repair in records[3]["repairs"]} == {"clamp"}


@pytest.mark.parametrize(
    ("line", "id", "message"),
    [
        ({"id": 7, "answer": 5}, 7, "answer must be a string, got int"),
        ({"id": 7, "answer": None}, 7, "answer must be a string, got NoneType"),
        ({"id": "a"}, "a", "answer: required, but missing"),
        ({"id": 3, "answer": "x" * 1_000_001}, 3, "answer must have at most 1000000 characters"),
        (b'{"id": 4, "answer": "\xe9"}', None, "not JSON: not UTF-8: byte 0xe9"),
    ],
    ids=range(5),
)
def test_apply_reports_invalid_line_and_continues(apply, line, id, message):
    good = {"id": 0, "answer": OTHER}
    result = apply(good, line, good)
    first, error, last = result.records
    assert result.status == 1
    assert first == last
    assert first["decision"] == "accepted"
    assert error == {"id": id, "error": error["error"]}
    assert error["error"].startswith(message)
    assert f"lines.jsonl:2: {message}" in result.err


GIVEN_TWICE = "sizes: map size 3 is given more than once"
NO_CONFIGURATIONS = {
    "": "must hold a mapping of keys, got nothing",
    "sizes: \xff": "is not YAML: not UTF-8: byte 0xff",
    "[" * 3_000: "is not YAML: maximum recursion depth",
    "sizes: !!timestamp 2001-99-99": "is not YAML: month must be in 1..12",
    "sizes: " + "9" * 5_000: "is not YAML: Exceeds the limit",
    "sizes: !!python/name:os.system": "is not YAML: could not determine a constructor",
    "&a [*a]": "is not YAML: aliases form a cycle",
    YAML.replace("0.15", "0.95"): "sizes.3.hole_ratio: got 0.95: Input",
    YAML.replace("0.15", "0.45"): "3.hole_ratio must lie in 0..0.4",
    YAML.replace("  5:", "  6:"): "map sizes must be 3, 4, 5, got 3, 4, 6",
} | {
    json.dumps({"sizes": {name: TREE["sizes"]["3"], **TREE["sizes"]}}): GIVEN_TWICE
    for name in ("03", "3.0", "+3", " 3 ")  # size 3, written in another way
}


@pytest.mark.parametrize("text", NO_CONFIGURATIONS, ids=range(len(NO_CONFIGURATIONS)))
def test_apply_names_invalid_configuration_file(apply, current, text):
    current.write_bytes(text.encode("latin-1"))
    status, out, err = apply({"id": 0, "answer": OTHER})
    assert (status, out) == (2, "")
    assert err.startswith(f"jaxlake: error: {current}: {NO_CONFIGURATIONS[text]}")
    assert len(err) < 1_000
