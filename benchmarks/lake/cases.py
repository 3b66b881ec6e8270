"""What is compared with what, and what is asked of the ratio."""

from dataclasses import dataclass, field
from typing import Any

OWN, JAX_PEERS, POGEMA = "own", "jax", "pogema"
"""Environments that workers run in: this one, and those that tools/peers.sh makes."""

BOARD_SIZE = 10


@dataclass(frozen=True)
class Boards:
    """A file of `write_boards` that both sides of a case get."""

    count: int
    num_agents: int
    hole_ratio: float
    size: int = BOARD_SIZE


@dataclass(frozen=True)
class Side:
    """One contestant: the module to run, where, and what to ask it to prepare."""

    name: str
    module: str
    environment: str = OWN
    fields: dict[str, Any] = field(default_factory=dict)
    takes_boards: bool = False
    takes_devices: bool = True
    package: str = ""  # what is imported, to say what is missing
    units: float = 1.0  # of the case's unit in one of the contestant's


@dataclass(frozen=True)
class Case:
    """One row. `goal` is asked of the ratio of the medians, `goal_rate` of our rate."""

    name: str
    unit: str
    setting: str
    ours: Side
    peer: Side | None = None
    boards: Boards | None = None
    goal: float | None = None
    goal_rate: float | None = None


@dataclass(frozen=True)
class Sizes:
    """Batches for a kind of device: large enough that a larger one gains little."""

    solve: int
    generate: int
    environments: int
    steps: int
    verify: int


CPU = Sizes(solve=1 << 14, generate=1 << 14, environments=4096, steps=128, verify=1 << 16)
GPU = Sizes(solve=1 << 16, generate=1 << 18, environments=1 << 15, steps=256, verify=1 << 20)
QUICK = Sizes(solve=1 << 9, generate=1 << 8, environments=256, steps=16, verify=1 << 12)

_EPISODE_STEPS = 64
_POOL = 4096
_VERIFIED_STEPS = 32
_GAVE_UP_AFTER = 1.0


def cases(sizes: Sizes, on_gpu: bool) -> list[Case]:
    """All rows, in the order in which they are shown.

    Args:
        sizes: how much is done in a call.
        on_gpu: the absolute goals are then those of a GPU.
    """
    rows = [
        _solving(2, 0.30, sizes, goal=5, goal_rate=2e6 if on_gpu else None),
        _solving(4, 0.20, sizes, goal=5, goal_rate=2e5 if on_gpu else None),
        *(_solving(k, ratio, sizes) for k, ratio in ((2, 0.5), (5, 0.2))),
        # Batches of hard boards are smaller: a call must not take minutes.
        *(_solving(k, 0.35, sizes, part=part) for k, part in ((3, 4), (4, 8), (5, 16))),
        *(_solving(k, 0.5, sizes, part=part) for k, part in ((3, 8), (4, 32), (5, 64))),
        # About the shares that random solvable boards of these kinds have, then an even split.
        _generating(2, 0.30, 0.1, sizes, goal=2.5),
        _generating(4, 0.20, 0.2, sizes, goal=2.5),
        _generating(2, 0.30, 0.5, sizes),
        _generating(4, 0.20, 0.5, sizes),
    ]
    pogema = Side(
        "POGEMA",
        "benchmarks.lake.peers.pogema_steps",
        environment=POGEMA,
        fields={
            "size": BOARD_SIZE,
            "num_agents": 4,
            "hole_ratio": 0.2,
            "episode_steps": _EPISODE_STEPS,
        },
        takes_devices=False,
        package="pogema",
    )
    batch = {"environments": sizes.environments, "steps": sizes.steps}
    rows += [
        _stepping("pogema", "block_both", "compact", pogema, sizes, goal=200),
        _stepping("pogema-same-view", "block_both", "agent_centred", pogema, sizes),
    ]
    for name, auto_reset, view, goal in (
        ("connector", True, "compact", 1),
        ("connector-no-reset", False, "compact", 1),
        ("connector-same-view", False, "symbols", None),
    ):
        connector = Side(
            "jumanji Connector-v3" + ("" if auto_reset else ", no auto-reset"),
            "benchmarks.lake.peers.jumanji_connector",
            environment=JAX_PEERS,
            fields={"auto_reset": auto_reset, **batch},
            package="jumanji",
        )
        rows.append(_stepping(name, "block_both", view, connector, sizes, goal=goal))
    for name, slippery, goal in (
        ("frozen-lake", True, 1),
        ("frozen-lake-not-slippery", False, None),
    ):
        frozen_lake = Side(
            "gymnax FrozenLake" + (", slippery" if slippery else ""),
            "benchmarks.lake.peers.gymnax_frozen_lake",
            environment=JAX_PEERS,
            fields={"slippery": slippery, **batch},
            package="gymnax",
        )
        rows.append(_stepping(name, "fail", "compact", frozen_lake, sizes, goal, unit="agent step"))
    rows.append(
        Case(
            name="verify-4-agents",
            unit="plan",
            setting=f"10x10, 4 agents, plans of up to {_VERIFIED_STEPS} steps, every second wrong",
            ours=Side(
                "jaxlake",
                "benchmarks.lake.ours.verifying",
                fields={
                    "solve": min(1024, sizes.verify),
                    "count": sizes.verify,
                    "steps": _VERIFIED_STEPS,
                },
                takes_boards=True,
            ),
            boards=Boards(min(1024, sizes.verify), 4, 0.2),
            goal_rate=1e6,
        )
    )
    if on_gpu:
        return [_with_rate(row, 3e7) if row.name == "steps-pogema" else row for row in rows]
    return rows


def _with_rate(case: Case, goal_rate: float) -> Case:
    return Case(**{**vars(case), "goal_rate": goal_rate})


def _kind(num_agents: int, hole_ratio: float) -> str:
    return f"{num_agents}-agents-{hole_ratio:.0%}-holes".replace("%", "")


def _cbs() -> Side:
    return Side(
        "w9-pathfinding CBS",
        "benchmarks.lake.peers.w9_cbs",
        fields={"max_time": _GAVE_UP_AFTER},
        takes_boards=True,
        takes_devices=False,
        package="w9-pathfinding",
    )


def _solving(
    num_agents: int,
    hole_ratio: float,
    sizes: Sizes,
    goal: float | None = None,
    goal_rate: float | None = None,
    part: int = 1,
) -> Case:
    count = max(32, sizes.solve // part)
    return Case(
        name=f"solve-{_kind(num_agents, hole_ratio)}",
        unit="board",
        setting=f"{BOARD_SIZE}x{BOARD_SIZE}, {num_agents} agents, {hole_ratio:.0%} holes",
        ours=Side(
            "jaxlake.solve",
            "benchmarks.lake.ours.solving",
            fields={"count": count},
            takes_boards=True,
        ),
        peer=_cbs(),
        boards=Boards(count, num_agents, hole_ratio),
        goal=goal,
        goal_rate=goal_rate,
    )


def _generating(
    num_agents: int, hole_ratio: float, wait_ratio: float, sizes: Sizes, goal: float | None = None
) -> Case:
    return Case(
        name=f"generate-{_kind(num_agents, hole_ratio)}-{wait_ratio:.0%}-waits".replace("%", ""),
        unit="board",
        setting=(
            f"{BOARD_SIZE}x{BOARD_SIZE}, {num_agents} agents, {hole_ratio:.0%} holes, "
            f"{wait_ratio:.0%} need a wait"
        ),
        ours=Side(
            "jaxlake.generate",
            "benchmarks.lake.ours.generating",
            fields={
                "size": BOARD_SIZE,
                "num_agents": num_agents,
                "hole_ratio": hole_ratio,
                "wait_ratio": wait_ratio,
                "count": sizes.generate,
            },
        ),
        peer=_cbs(),
        boards=Boards(min(sizes.solve, 1 << 14), num_agents, hole_ratio),
        goal=goal,
    )


def _stepping(
    name: str,
    conflict: str,
    observation: str,
    peer: Side,
    sizes: Sizes,
    goal: float | None = None,
    unit: str = "step",
) -> Case:
    return Case(
        name=f"steps-{name}",
        unit=unit,
        setting=f"10x10, 4 agents, {sizes.environments:,} environments, {conflict}, {observation}",
        ours=Side(
            "jaxlake",
            "benchmarks.lake.ours.stepping",
            fields={
                "conflict": conflict,
                "observation": observation,
                "environments": sizes.environments,
                "steps": sizes.steps,
                "episode_steps": _EPISODE_STEPS,
            },
            takes_boards=True,
            units=4 if unit == "agent step" else 1,
        ),
        peer=peer,
        boards=Boards(_POOL, 4, 0.2),
        goal=goal,
    )
