"""The rows of the benchmark: both sides of each comparison."""

from dataclasses import dataclass, field
from typing import Any

BOARD_SIZE = 10
OWN, POGEMA = "own", "pogema"
"""Python environments of workers: this one, and the one from tools/peers.sh."""

FLAGS_FOR_SEARCHES = "--xla_cpu_use_fusion_emitters=false"
"""XLA flag that the command line also sets for searches."""

_WORKERS = "benchmarks.lake.workers"
_EPISODE_STEPS = 64


@dataclass(frozen=True)
class Boards:
    """Arguments of `write_boards` for the file that both sides of a case read."""

    count: int
    num_agents: int
    hole_ratio: float
    size: int = BOARD_SIZE


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    name: str
    module: str  # run by its process
    environment: str = OWN
    fields: dict[str, Any] = field(default_factory=dict)  # arguments of its `prepare`
    takes_boards: bool = False  # also gets the file of boards
    takes_devices: bool = False  # also gets the number of devices
    xla_flags: str = ""  # in addition to those of all sides


@dataclass(frozen=True)
class Case:
    """One row of the benchmark: two sides on the same boards."""

    name: str
    unit: str
    ours: Side
    peer: Side
    boards: Boards


@dataclass(frozen=True)
class Sizes:
    """Batch sizes, large enough that larger ones gain little."""

    solve: int
    generate: int
    environments: int
    steps: int


FULL = Sizes(solve=1 << 14, generate=1 << 14, environments=4096, steps=128)
QUICK = Sizes(solve=1 << 9, generate=1 << 8, environments=256, steps=16)

_CBS = Side(
    "w9-pathfinding CBS", f"{_WORKERS}.w9_cbs", fields={"max_seconds": 1.0}, takes_boards=True
)


def cases(sizes: Sizes) -> list[Case]:
    """Return all rows, in the order in which they are shown."""
    return [
        _solve_case(2, 0.30, sizes.solve),
        _solve_case(4, 0.20, sizes.solve),
        _solve_case(5, 0.20, sizes.solve),
        _solve_case(3, 0.35, sizes.solve // 4),  # harder boards: one call must not take minutes
        # Random solvable boards of these kinds have about these wait ratios.
        _generate_case(2, 0.30, 0.1, sizes),
        _generate_case(4, 0.20, 0.2, sizes),
        _step_case("pogema", "compact", sizes),
        _step_case("pogema-same-view", "agent_centred", sizes),
    ]


def _lake_side(module: str, fields: dict[str, Any], **options: Any) -> Side:
    return Side("jaxlake", f"{_WORKERS}.{module}", fields=fields, takes_devices=True, **options)


def _kind_name(num_agents: int, hole_ratio: float) -> str:
    return f"{num_agents}-agents-{hole_ratio:.0%}-holes".replace("%", "")


def _solve_case(num_agents: int, hole_ratio: float, count: int) -> Case:
    return Case(
        name=f"solve-{_kind_name(num_agents, hole_ratio)}",
        unit="board",
        ours=_lake_side(
            "lake_solve", {"count": count}, takes_boards=True, xla_flags=FLAGS_FOR_SEARCHES
        ),
        peer=_CBS,
        boards=Boards(count, num_agents, hole_ratio),
    )


def _generate_case(num_agents: int, hole_ratio: float, wait_ratio: float, sizes: Sizes) -> Case:
    fields = {
        "size": BOARD_SIZE,
        "num_agents": num_agents,
        "hole_ratio": hole_ratio,
        "wait_ratio": wait_ratio,
        "count": sizes.generate,
    }
    return Case(
        name=f"generate-{_kind_name(num_agents, hole_ratio)}-{wait_ratio:.0%}-waits".replace(
            "%", ""
        ),
        unit="board",
        ours=_lake_side("lake_generate", fields, xla_flags=FLAGS_FOR_SEARCHES),
        peer=_CBS,
        boards=Boards(sizes.solve, num_agents, hole_ratio),
    )


def _step_case(name: str, observation: str, sizes: Sizes) -> Case:
    batch = {"environments": sizes.environments, "steps": sizes.steps}
    episodes = {"episode_steps": _EPISODE_STEPS}
    peer = {"size": BOARD_SIZE, "num_agents": 4, "hole_ratio": 0.2, **episodes}
    return Case(
        name=f"steps-{name}",
        unit="step",
        ours=_lake_side(
            "lake_steps", {"observation": observation, **episodes, **batch}, takes_boards=True
        ),
        peer=Side("POGEMA", f"{_WORKERS}.pogema_steps", POGEMA, peer),
        boards=Boards(4096, 4, 0.2),
    )
