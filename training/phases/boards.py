"""A round's training boards: a function of the run's configuration and the round alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engineer import LakeConfiguration
from training.config import RunConfig
from training.instances import Fill, InstanceSet, cells_of, draw, environment_of
from training.phases.context import entropy_for, key_for
from training.run.directory import write_json


@dataclass(frozen=True)
class DrawnBoards:
    """A round's boards in the order of training, and how far each request was filled."""

    boards: InstanceSet
    fills: tuple[Fill, ...]

    @property
    def environment(self) -> dict[str, dict[str, float]]:
        """What `environment.json` says of them."""
        return environment_of(self.boards, self.fills)

    @property
    def shortfalls(self) -> list[dict[str, object]]:
        """What `shortfalls.json` says: the requests that could not be filled."""
        return [dataclasses.asdict(fill) for fill in self.fills if not fill.complete]


def draw_boards(
    config: RunConfig, stage: int, configuration: LakeConfiguration, validation: InstanceSet
) -> DrawnBoards:
    """Draw a round's boards; none is a validation board. Equal arguments give equal boards."""
    boards, fills = draw(
        key_for(config.seed, "train", stage),
        cells_of(configuration, config.stages.instances, num_agents=config.environment.num_agents),
        max_size=max(config.environment.bounds.sizes),
        max_candidates=config.environment.max_candidates,
        exclude=validation.grids,
        substitute=True,
    )
    order = np.random.default_rng(entropy_for(config.seed, "train", stage)).permutation(len(boards))
    return DrawnBoards(boards.take(order), tuple(fills))


def write_boards(folder: Path, drawn: DrawnBoards) -> None:
    """Write `shortfalls.json` and `environment.json`."""
    write_json(folder / "shortfalls.json", drawn.shortfalls)
    write_json(folder / "environment.json", drawn.environment)
