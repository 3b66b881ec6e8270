"""SVG pictures of episodes: well-formed, safe to embed, and consistent with the plan."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlake import Action, Failure, parse_grid, verify
from jaxlake.render import episode_svg
from jaxlake.solver.solution import unknown_solution

SVG = "{http://www.w3.org/2000/svg}"
CELL_SIZE = 40.0
OPEN_GRID = ["S F s", "F F F", "G F g"]
HOLE_GRID = ["S H s", "F F H", "G F g"]
ACTION_NAMES = {action.name[0]: action.name for action in Action}
FAILED_PLANS = [
    (OPEN_GRID, "R/L", "vertex_conflict", "agents 0 and 1 at (0, 1)"),
    (OPEN_GRID, "RR/WL", "swapping_conflict", "agents 0 and 1 between (0, 1) and (0, 2)"),
    (OPEN_GRID, "DD/U", "off_board", "agent 1 at (0, 2)"),
    (OPEN_GRID, "DL/DR", "off_board", "agents 0 and 1 at (1, 0) and (1, 2)"),
    (HOLE_GRID, "D/D", "hole", "agent 1 at (1, 2)"),
    (HOLE_GRID, "R/D", "hole", "agents 0 and 1 at (0, 1) and (1, 2)"),
    (OPEN_GRID, "D/DD", "goal_not_reached", "agent 0 at (1, 0)"),
    (OPEN_GRID, "/", "goal_not_reached", "agents 0 and 1 at (0, 0) and (0, 2)"),
]
_verify = jax.jit(verify)
NO_SOLUTION = unknown_solution(8, 2)


def verify_plan(grid: list[str], plan: list[list[str]]) -> tuple[str | None, int, int]:
    """Return the verifier's failure, agent and time for a plan of action names."""
    instance = parse_grid(grid, max_size=4)
    actions = np.zeros((8, 2), np.int8)
    for agent, moves in enumerate(plan):
        actions[: len(moves), agent] = [Action[move] for move in moves]
    outcome = _verify(instance, actions, np.int32(max(map(len, plan))), np.bool_(True), NO_SOLUTION)
    failure = Failure(int(outcome.failure))
    label = None if failure is Failure.NONE else failure.label
    return label, int(outcome.agent), int(outcome.time)


def find_final_cells(svg: str, num_columns: int) -> list[tuple[float, float]]:
    """Return the final (row, column) of each agent's disc, computed from pixels."""
    root = ElementTree.fromstring(svg)
    ground = next(
        element for element in root.iter(f"{SVG}rect") if element.get("class") == "ground"
    )
    border = (float(ground.get("width", "")) - num_columns * CELL_SIZE) / 2
    left, top = float(ground.get("x", "")) + border, float(ground.get("y", "")) + border
    cells: list[tuple[float, float]] = []
    for agent in itertools.count():
        group = next(
            (node for node in root.iter(f"{SVG}g") if node.get("class") == f"agent-{agent}"), None
        )
        if group is None:
            return cells
        x, y = map(float, re.findall(r"-?[\d.]+", group.get("transform", "")))
        cells.append(((y - top) / CELL_SIZE - 0.5, (x - left) / CELL_SIZE - 0.5))
    raise AssertionError


def test_valid_plan_ends_with_discs_on_goals() -> None:
    plan = [["DOWN", "DOWN"], ["DOWN", "WAIT", "DOWN"]]
    assert verify_plan(OPEN_GRID, plan)[0] is None
    svg = episode_svg(OPEN_GRID, plan, cell=CELL_SIZE)
    assert np.allclose(find_final_cells(svg, 3), [(2, 0), (2, 2)], atol=1e-3)
    assert 'class="mark"' not in svg


@pytest.mark.parametrize(("grid", "plan", "kind", "location"), FAILED_PLANS)
def test_verifier_failure_is_marked_and_captioned(
    grid: list[str], plan: str, kind: str, location: str
) -> None:
    actions = [[ACTION_NAMES[letter] for letter in moves] for moves in plan.split("/")]
    failure, _, time = verify_plan(grid, actions)
    assert failure == kind
    at_end = kind == "goal_not_reached"
    svg = episode_svg(grid, actions)
    root = ElementTree.fromstring(svg)
    captions = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert captions.count(kind.replace("_", " ") + ("" if at_end else f" · step {time}")) == 1
    assert sum(caption == location for caption in captions) == 1
    marks = [group for group in root.iter(f"{SVG}g") if group.get("class") == "mark"]
    assert sum(len(list(group.iter(f"{SVG}rect"))) for group in marks) == 2 * location.count("(")


@settings(max_examples=60)
@given(st.data())
def test_svg_is_well_formed_for_any_plan(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 6))
    num_agents = data.draw(st.integers(1, min(5, size * size // 2)))
    letters = [*"SsABC"[:num_agents], *"Ggabc"[:num_agents]]
    fillers = data.draw(
        st.lists(st.sampled_from("FH"), min_size=size**2 - 2 * num_agents, max_size=size**2)
    )
    cells = data.draw(st.permutations([*letters, *fillers[: size**2 - 2 * num_agents]]))
    grid = [" ".join(cells[size * r : size * (r + 1)]) for r in range(size)]
    action = st.sampled_from([*range(5), *(action.name for action in Action)])
    plan = data.draw(
        st.none() | st.lists(st.lists(action, max_size=6), min_size=num_agents, max_size=num_agents)
    )
    svg = episode_svg(grid, plan)
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not attributes & {"id", "href", "{http://www.w3.org/1999/xlink}href", "src"}
    assert not any(name.startswith("on") for name in attributes)
    assert not any(element.tag in {f"{SVG}script", f"{SVG}image"} for element in root.iter())
    assert "url(" not in svg
    discs = [
        node for node in root.iter(f"{SVG}g") if (node.get("class") or "").startswith("agent-")
    ]
    assert len(discs) == num_agents


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"plan": [["DOWN"]]}, "plan must have 2 agents, got 1"),
        ({"plan": [["DOWN"], ["FLY"]]}, r"step 0 of agent 1 must be one of .* got 'FLY'"),
        ({"plan": [["DOWN"], [5]]}, "step 0 of agent 1 must be one of .* got 5"),
        ({"plan": None, "cell": 0}, "a positive number of pixels"),
    ],
)
def test_undrawable_input_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        episode_svg(OPEN_GRID, **arguments)
