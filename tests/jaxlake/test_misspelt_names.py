"""Names that the lake's functions take: a misspelt one is answered by what was probably meant."""

from collections.abc import Callable
from typing import Any

import pytest

import jaxlake
from engineer.engineers.catalogue import scripted_engineer
from jaxlake.environment import LakeEnvironment, adapt, make, make_for
from jaxlake.language.prompts import render
from jaxlake.render.playback import actions_of_agents

BOARD = jaxlake.parse_grid(["S F", "G F"])
ID = "MAPF-FrozenLake-4x4-2ag-v0"

CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "an id": (lambda: make("MAPF-FrozenLake-4x4-2agents-v0"), f"did you mean {ID}?"),
    "an id under an interface": (lambda: make_for("gymnax", ID[:-1]), "did you mean MAPF-F"),
    "a conflict policy": (lambda: LakeEnvironment(conflict="priorty"), "did you mean priority?"),
    "a conflict policy of make": (lambda: make(ID, conflict="fial"), "did you mean fail?"),
    "an interface": (lambda: adapt("gymnasum", None, None), "did you mean gymnasium?"),  # type: ignore[arg-type]
    "a style of prompts": (lambda: render(BOARD, "compct"), "did you mean compact?"),  # type: ignore[arg-type]
    "an engineer": (lambda: scripted_engineer("rul", None), "did you mean rule?"),  # type: ignore[arg-type]
    "an action to show": (lambda: actions_of_agents([["DWN"]], 1), "did you mean DOWN?"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_misspelt_name_is_answered_by_what_was_probably_meant(name):
    call, meant = CALLS[name]
    with pytest.raises((KeyError, ValueError)) as caught:
        call()
    assert meant in caught.value.args[0]
