"""The engineer that a run uses is the one that `engineer.kind` names."""

from dataclasses import replace
from typing import Any

import pytest

from engineer import Engineer
from engineer.engineers.endpoint import EndpointEngineer
from tests.paths import TINY
from training.errors import UserError
from training.phases.engineer_factory import make_engineer
from training.schema import load
from training.schema.engineer_section import check_engineer

HOOKS = "tests.training.hooks"
ENDPOINT = ["engineer.kind=endpoint", "engineer.model=m", "engineer.base_url=http://h/v1"]


def load_engineer(*settings: str) -> Engineer:
    placeholder: Any = None
    return make_engineer(load(TINY, settings), placeholder, [], placeholder)


@pytest.mark.parametrize(
    ("kind", "name"), [("{}:Keeper", "keeper"), ("shuffled:{}:Keeper", "shuffled:keeper")]
)
def test_make_engineer_builds_user_classes(kind: str, name: str):
    kind = f"engineer.kind={kind.format(HOOKS)}"
    assert load_engineer(kind).name == name
    section = load(TINY, [kind]).engineer
    assert section.base_kind == f"{HOOKS}:Keeper"
    check_engineer(section, "vllm")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("NamelessEngineer", "must return an engineer with a name"),
        ("not_an_engineer", "must return an engineer with a name"),
        ("BrokenEngineer", "raised KeyError: 'no such file'"),
        ("write_prompt", "raised TypeError: .*argument"),
    ],
)
def test_check_engineer_rejects_invalid_classes(name: str, problem: str):
    section = load(TINY, [f"engineer.kind=shuffled:{HOOKS}:{name}"]).engineer
    with pytest.raises(UserError, match=rf"^engineer.kind: {HOOKS}:{name}\(\) {problem}"):
        check_engineer(section, "vllm")


def test_make_engineer_passes_request_to_endpoints():
    fields = {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": True}}
    setting = "engineer.request={reasoning_effort: high, chat_template_kwargs: {enable_thinking: "
    engineer = load_engineer(*ENDPOINT, f"{setting}true}}}}")
    assert isinstance(engineer, EndpointEngineer)
    assert engineer == replace(load_engineer(*ENDPOINT), request=fields)
