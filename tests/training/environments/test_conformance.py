"""The conformance check accepts valid environments and names each violation."""

import sys
from pathlib import Path

import pytest

from jaxlake.environment.conformance import ConformanceError
from tests.paths import ROOT, TINY
from tests.training.environments.documented import save_environment
from training.environments.conformance import check_run_environment
from training.schema import load

PARITY = Path(__file__).with_name("parity.yaml")


def test_column_addition_conforms():
    check_run_environment(load(ROOT / "examples/column_addition/trainee.yaml"))


def test_the_documented_environment_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = save_environment(tmp_path)
    monkeypatch.chdir(tmp_path)
    try:
        check_run_environment(load(path))
    finally:
        sys.modules.pop("reversal", None)


@pytest.mark.slow
def test_the_lake_conforms():
    check_run_environment(load(TINY), configurations=1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Parity", None),
        ("ShortDraw", "draw"),
        ("LeakyDraw", "draw"),
        ("UnseededDraw", "determinism"),
        ("ConstantSeed", "determinism"),
        ("UniformDraw", "shares"),
        ("AmbiguousPrompt", "prompts"),
        ("BrittleScore", "scores"),
        ("InfiniteReward", "scores"),
        ("UnknownFailure", "scores"),
        ("StatefulScore", "alone"),
        ("WrongDemonstration", "demonstrations"),
        ("ConstantReward", "pay"),
        ("UnknownLevel", "factors"),
        ("UnstableNearest", "nearest"),
    ],
)
def test_check_names_the_broken_contract(name: str, reason: str | None):
    config = load(PARITY, [f"environment.kind=tests.training.environments.parity:{name}"])
    if reason is None:
        check_run_environment(config)
        return
    with pytest.raises(ConformanceError) as error:
        check_run_environment(config)
    assert error.value.reason == reason
