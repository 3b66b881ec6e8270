"""The rows of the benchmark: what is compared with what, and which ratio is the goal."""

from dataclasses import dataclass, field, replace
from typing import Any

OWN, JAX_PEERS, POGEMA = "own", "jax", "pogema"
"""Environments that workers run in: this one, and those that tools/peers.sh makes."""

BOARD_SIZE = 10
_WORKERS = "benchmarks.lake.workers"
_GRID = f"{BOARD_SIZE}x{BOARD_SIZE}"


@dataclass(frozen=True)
class Boards:
    """A file of `write_boards` that both sides of a case get."""

    count: int
    num_agents: int
    hole_ratio: float
    size: int = BOARD_SIZE


@dataclass(frozen=True)
class Side:
    """One contestant."""

    name: str
    module: str  # what its process runs
    environment: str = OWN  # that it runs in
    fields: dict[str, Any] = field(default_factory=dict)  # what to ask it to prepare
    takes_boards: bool = False  # is also given the file of boards
    takes_devices: bool = True  # is also given the number of devices
    package: str = ""  # what it imports, to say what is missing
    units: float = 1.0  # how many of the case's units are in one of the contestant's
    xla_flags: str = ""  # beside those that all sides get


@dataclass(frozen=True)
class Case:
    """One row; `goal` is for the ratio of the medians, `goal_rate` for our rate."""

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
    """Batches for one kind of device, so large that a larger one gains little."""

    solve: int
    generate: int
    environments: int
    steps: int
    verify: int


CPU = Sizes(solve=1 << 14, generate=1 << 14, environments=4096, steps=128, verify=1 << 16)
GPU = Sizes(solve=1 << 16, generate=1 << 18, environments=1 << 15, steps=256, verify=1 << 20)
QUICK = Sizes(solve=1 << 9, generate=1 << 8, environments=256, steps=16, verify=1 << 12)

FLAGS_FOR_SEARCHES = "--xla_cpu_use_fusion_emitters=false"
"""What the command line sets for searches, too (`training/runtime.py`); their peers are no XLA."""

SOLVE = Side(
    "jaxlake.solve", f"{_WORKERS}.lake_solve", takes_boards=True, xla_flags=FLAGS_FOR_SEARCHES
)
STEP = Side("jaxlake", f"{_WORKERS}.lake_steps", takes_boards=True)
VERIFY = Side("jaxlake", f"{_WORKERS}.lake_verify", takes_boards=True)
_CBS = Side(
    "w9-pathfinding CBS",
    f"{_WORKERS}.w9_cbs",
    fields={"max_time": 1.0},
    takes_boards=True,
    takes_devices=False,
    package="w9-pathfinding",
)
STEPPED_BOARDS = Boards(4096, 4, 0.2)
_EPISODE_STEPS = 64
_VERIFIED_STEPS = 32


def cases(sizes: Sizes, on_gpu: bool) -> list[Case]:
    """Make all rows, in the order in which they are shown; a GPU has other absolute goals."""
    solved = min(1024, sizes.verify)
    return [
        _solving(2, 0.30, sizes, goal=5, goal_rate=2e6 if on_gpu else None),
        _solving(4, 0.20, sizes, goal=5, goal_rate=2e5 if on_gpu else None),
        *(_solving(k, ratio, sizes) for k, ratio in ((2, 0.5), (5, 0.2))),
        # Batches of hard boards are smaller: one call must not take minutes.
        *(_solving(k, 0.35, sizes, part=part) for k, part in ((3, 4), (4, 8), (5, 16))),
        *(_solving(k, 0.5, sizes, part=part) for k, part in ((3, 8), (4, 32), (5, 64))),
        # First about the shares of random solvable boards of these kinds, then an even split.
        _generating(2, 0.30, 0.1, sizes, goal=2.5),
        _generating(4, 0.20, 0.2, sizes, goal=2.5),
        _generating(2, 0.30, 0.5, sizes),
        _generating(4, 0.20, 0.5, sizes),
        *_stepping_cases(sizes, on_gpu),
        Case(
            name="verify-4-agents",
            unit="plan",
            setting=f"{_GRID}, 4 agents, plans of up to {_VERIFIED_STEPS} steps, "
            "every second wrong",
            ours=replace(
                VERIFY, fields={"solve": solved, "count": sizes.verify, "steps": _VERIFIED_STEPS}
            ),
            boards=Boards(solved, 4, 0.2),
            goal_rate=1e6,
        ),
    ]


def _kind(num_agents: int, hole_ratio: float) -> str:
    return f"{num_agents}-agents-{hole_ratio:.0%}-holes".replace("%", "")


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
        setting=f"{_GRID}, {num_agents} agents, {hole_ratio:.0%} holes",
        ours=replace(SOLVE, fields={"count": count}),
        peer=_CBS,
        boards=Boards(count, num_agents, hole_ratio),
        goal=goal,
        goal_rate=goal_rate,
    )


def _generating(
    num_agents: int, hole_ratio: float, wait_ratio: float, sizes: Sizes, goal: float | None = None
) -> Case:
    fields = {
        "size": BOARD_SIZE,
        "num_agents": num_agents,
        "hole_ratio": hole_ratio,
        "wait_ratio": wait_ratio,
        "count": sizes.generate,
    }
    return Case(
        name=f"generate-{_kind(num_agents, hole_ratio)}-{wait_ratio:.0%}-waits".replace("%", ""),
        unit="board",
        setting=f"{_GRID}, {num_agents} agents, {hole_ratio:.0%} holes, "
        f"{wait_ratio:.0%} need a wait",
        ours=Side(
            "jaxlake.generate",
            f"{_WORKERS}.lake_generate",
            fields=fields,
            xla_flags=FLAGS_FOR_SEARCHES,
        ),
        peer=_CBS,
        boards=Boards(min(sizes.solve, 1 << 14), num_agents, hole_ratio),
        goal=goal,
    )


def step_fields(conflict: str, observation: str, environments: int, steps: int) -> dict[str, Any]:
    """Make what the lake's environment is asked to prepare."""
    return {
        "conflict": conflict,
        "observation": observation,
        "environments": environments,
        "steps": steps,
        "episode_steps": _EPISODE_STEPS,
    }


def _stepping_cases(sizes: Sizes, on_gpu: bool) -> list[Case]:
    def case(
        name: str,
        peer: Side,
        observation: str,
        goal: float | None = None,
        conflict: str = "block_both",
        unit: str = "step",
    ) -> Case:
        return Case(
            name=f"steps-{name}",
            unit=unit,
            setting=f"{_GRID}, 4 agents, {sizes.environments:,} environments, {conflict}, "
            f"{observation}",
            ours=replace(
                STEP,
                fields=step_fields(conflict, observation, sizes.environments, sizes.steps),
                units=4 if unit == "agent step" else 1,
            ),
            peer=peer,
            boards=STEPPED_BOARDS,
            goal=goal,
        )

    def jax_peer(name: str, module: str, package: str, **fields: bool) -> Side:
        batch = {"environments": sizes.environments, "steps": sizes.steps}
        return Side(
            name, f"{_WORKERS}.{module}", JAX_PEERS, fields={**fields, **batch}, package=package
        )

    fields = {
        "size": BOARD_SIZE,
        "num_agents": 4,
        "hole_ratio": 0.2,
        "episode_steps": _EPISODE_STEPS,
    }
    module = f"{_WORKERS}.pogema_steps"
    pogema = Side("POGEMA", module, POGEMA, fields, takes_devices=False, package="pogema")
    jumanji, gymnax = ("jumanji_connector", "jumanji"), ("gymnax_frozen_lake", "gymnax")
    connector = jax_peer("jumanji Connector-v3", *jumanji, auto_reset=True)
    no_reset = jax_peer("jumanji Connector-v3, no auto-reset", *jumanji, auto_reset=False)
    slippery = jax_peer("gymnax FrozenLake, slippery", *gymnax, slippery=True)
    not_slippery = jax_peer("gymnax FrozenLake", *gymnax, slippery=False)
    alone: dict[str, Any] = {"observation": "compact", "conflict": "fail", "unit": "agent step"}
    return [
        replace(case("pogema", pogema, "compact", goal=200), goal_rate=3e7 if on_gpu else None),
        case("pogema-same-view", pogema, "agent_centred"),
        case("connector", connector, "compact", goal=1),
        case("connector-no-reset", no_reset, "compact", goal=1),
        case("connector-same-view", no_reset, "symbols"),
        case("frozen-lake", slippery, goal=1, **alone),
        case("frozen-lake-not-slippery", not_slippery, **alone),
    ]
