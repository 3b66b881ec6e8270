"""A round's training boards: a function of the run's configuration and the round alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
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
    """A round's boards in the order of training, and how far each request was filled.

    Attributes:
      boards: as many as the round's budget; some come again where the generator fell short.
      distinct: the same, each once.
      fills: a `Fill` for each map size.
    """

    boards: InstanceSet
    distinct: InstanceSet
    fills: tuple[Fill, ...]

    @property
    def environment(self) -> dict[str, dict[str, float]]:
        """What `environment.json` says of the distinct boards."""
        return environment_of(self.distinct, self.fills)

    @property
    def shortfalls(self) -> list[dict[str, object]]:
        """What `shortfalls.json` says: the requests that could not be filled."""
        return [dataclasses.asdict(fill) for fill in self.fills if not fill.complete]


def draw_boards(
    config: RunConfig, stage: int, configuration: LakeConfiguration, validation: InstanceSet
) -> DrawnBoards:
    """Draw the `config.stages.instances` boards of a round; none is a validation board.

    What the generator can't make is made up for by boards that come again, so that every round has
    the same budget: those of its own size where a map size is short, those of all other sizes
    where it has none, each as equally often as possible. Equal arguments give equal boards.

    Raises:
      UserError: no board at all could be made.
    """
    distinct, fills = draw(
        key_for(config.seed, "train", stage),
        cells_of(configuration, config.stages.instances, num_agents=config.environment.num_agents),
        max_size=max(config.environment.bounds.sizes),
        max_candidates=config.environment.max_candidates,
        exclude=validation.grids,
        substitute=True,
    )
    rng = np.random.default_rng(entropy_for(config.seed, "train", stage))
    rows = rows_of_the_budget(distinct, fills, rng)
    return DrawnBoards(distinct.take(rng.permutation(rows)), distinct, tuple(fills))


def write_boards(folder: Path, drawn: DrawnBoards) -> None:
    """Write `shortfalls.json` and `environment.json`."""
    write_json(folder / "shortfalls.json", drawn.shortfalls)
    write_json(folder / "environment.json", drawn.environment)


def rows_of_the_budget(
    boards: InstanceSet, fills: Sequence[Fill], rng: np.random.Generator
) -> np.ndarray:
    """Every row once, then again those that make up for what is missing.

    Args:
      boards: what was drawn.
      fills: how far each request for them was filled.
      rng: says which come again; nothing is drawn from it where nothing is missing.

    Returns: int (count,), as many as were asked for in all.
    """
    sizes = np.asarray(boards.instances.size)
    every = np.arange(len(boards))
    rows, without = [every], 0
    for fill in fills:
        own = np.flatnonzero(sizes == fill.cell.size)
        missing = fill.cell.count - len(own)
        if not len(own):
            without += missing
        elif missing:
            rows.append(np.resize(rng.permutation(own), missing))
    if without:
        rows.append(np.resize(rng.permutation(every), without))
    return np.concatenate(rows)
