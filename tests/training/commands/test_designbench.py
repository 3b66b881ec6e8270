"""`jaxlake designbench` from its arguments to its table and file."""

import json

import pytest

from engineer.bench.scores import read_results

USER_MODULE = '''
from engineer import Proposal, RuleEngineer

class Copy:
    """Writes the rule's answer under another name."""
    name = "copy"

    def propose(self, task):
        answer = RuleEngineer().propose(task)
        return Proposal(answer.text, answer.seconds, tokens=7)

class Silent(Copy):
    def propose(self, task):
        return Proposal("nothing to say", 0.0, tokens=3)
'''


@pytest.fixture
def module_folder(tmp_path, monkeypatch):
    (tmp_path / "bench_engineers.py").write_text(USER_MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_designbench_plays_a_users_class(cli, module_folder):
    names = ["rule", "bench_engineers:Copy", "bench_engineers:Silent"]
    engineer_options = [argument for name in names for argument in ("--engineer", name)]
    result = cli(
        "designbench", *engineer_options, "--learners", 3, "--groups", 2, "--out", "out.json"
    )
    assert result.status == 0, result.err
    results = read_results(module_folder / "out.json")
    rule, copy, silent, fixed = (results.entry(name, 2) for name in (*names, "fixed"))
    assert copy.final == rule.final
    assert (copy.calls, copy.usable, copy.tokens) == (15, 15, 105)
    assert silent.final == fixed.final  # no usable answer: the first configuration stays
    assert (silent.calls, silent.usable, silent.tokens) == (45, 0, 135)
    assert results.entry("simulated:bench_engineers:Copy", 2) is not None
    lines = result.out.splitlines()
    assert next(line for line in lines if line.startswith("bench_engineers:Silent"))
    comparison = cli("designbench", "--compare", "out.json", "out.json")
    assert "rule" in comparison.out
    assert "+0.0 ±0.0" in comparison.out


def test_designbench_without_controls_runs_engineers_once(cli, tmp_path):
    path = tmp_path / "out.json"
    result = cli(
        *("designbench", "--engineer", "sec_bandit", "--no-controls"),
        *("--learners", 2, "--groups", 2, "--out", path),
    )
    assert result.status == 0
    names = [entry["engineer"] for entry in json.loads(path.read_text())["entries"]]
    assert names == ["fixed", "random", "easy_to_hard", "sec_bandit"]
    assert "no control" in result.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--groups", "3"], "--groups must be one of 2, 4, 8, got 3"),
        (["--learners", "1"], "--learners: must be at least 2, got 1"),
        (["--engineer", "rul"], "--engineer must be one of fixed"),
        (["--engineer", "shuffled:rule"], "must not be a control, got 'shuffled:rule'"),
        (["--engineer", "nothing:Here"], "the module of nothing:Here can't be imported"),
        (["--engineer", "nowhere/model"], "nowhere/model"),
        (["--engineer", "m", "--endpoint", "ftp://x"], "base_url must be an http or https URL"),
    ],
)
def test_designbench_rejects_invalid_arguments(cli, arguments, message):
    result = cli("designbench", *arguments)
    assert result.status == 2
    assert message in result.err
