"""A stage's training boards: they follow from the run's configuration and the stage alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from engineer.lake import LakeConfiguration
from jaxlake import Instance
from jaxlake.distance_fields import distances
from jaxlake.generator.board_digests import DigestSet
from training.rollout.instances import InstanceSet, draw_training_boards
from training.run.directory import StageDirectory
from training.run.records import RequestOutcome, six_digits
from training.run.seeds import key_for, seed_for
from training.schema import RunConfig


@dataclass(frozen=True)
class StageBoards:
    """A stage's training boards.

    Attributes:
        boards: As many as the stage's budget, in the order of training; some come several times
            where the generator fell short.
        distinct: The same boards, each once, in the order of the generator.
        outcomes: One per map size.
    """

    boards: InstanceSet
    distinct: InstanceSet
    outcomes: tuple[RequestOutcome, ...]

    @property
    def shortfalls(self) -> list[RequestOutcome]:
        """The requests that could not be filled."""
        return [one for one in self.outcomes if one.missing]

    @cached_property
    def environment(self) -> dict[str, dict[str, float]]:
        """Statistics of the distinct boards by map size, six significant digits.

        `acceptance` is the share of candidates that were kept, `missing` counts boards,
        `mean_sum_of_costs` is in steps, and `conflict_density` is the share of boards on which the
        shortest paths of the agents conflict, so that the optimum is above their sum.
        """
        sizes = self.distinct.instances.size
        costs = self.distinct.solutions.sum_of_costs
        lower_bounds = np.asarray(_sum_of_distances(self.distinct.instances))
        statistics = {}
        for outcome in self.outcomes:
            values = {
                "acceptance": (outcome.count - outcome.missing) / max(outcome.candidates, 1),
                "missing": outcome.missing,
            }
            own = sizes == outcome.size
            if own.any():
                values["mean_sum_of_costs"] = float(costs[own].mean())
                values["conflict_density"] = float((costs > lower_bounds)[own].mean())
            statistics[str(outcome.size)] = {
                name: six_digits(value) for name, value in values.items()
            }
        return statistics


def draw_stage_boards(
    config: RunConfig, stage: int, configuration: LakeConfiguration, validation: InstanceSet
) -> StageBoards:
    """Draw the `config.stages.instances` boards of a stage; none of them is a validation board.

    Every stage has the same budget: boards that the generator can't make are replaced by others
    that come again (see `fill_budget`). Equal arguments give equal boards.

    Raises:
        UserError: Not one board could be made.
    """
    distinct, outcomes = draw_training_boards(
        key_for(config.seed, "train", stage),
        config,
        configuration,
        config.stages.instances,
        seen=DigestSet(validation.instances),
    )
    rng = np.random.default_rng(seed_for(config.seed, "train", stage))
    rows = rng.permutation(fill_budget(distinct, outcomes, rng))
    return StageBoards(distinct.take(rows), distinct, tuple(outcomes))


def fill_budget(
    boards: InstanceSet, outcomes: Sequence[RequestOutcome], rng: np.random.Generator
) -> np.ndarray:
    """List every row once, and some again where boards are missing.

    Where a map size is short, boards of its own size come again; where it has none at all, boards
    of every size do. Each comes equally often, as far as the counts allow. The random numbers
    decide which; none is drawn where nothing is missing.

    Returns:
        int (count,), rows of `boards`, as many as were asked for in all.
    """
    every = np.arange(len(boards))
    rows, without_own = [every], 0
    for outcome in outcomes:
        own = np.flatnonzero(boards.instances.size == outcome.size)
        missing = outcome.count - len(own)
        if not len(own):
            without_own += missing
        elif missing:
            rows.append(np.resize(rng.permutation(own), missing))
    if without_own:
        rows.append(np.resize(rng.permutation(every), without_own))
    return np.concatenate(rows)


def write_stage_boards(files: StageDirectory, drawn: StageBoards) -> None:
    """Write what is known of a stage's boards; the boards can be drawn again at any time."""
    files.shortfalls.write(drawn.shortfalls)
    files.environment.write(drawn.environment)


@jax.jit
def _sum_of_distances(boards: Instance) -> jax.Array:
    """int32 (B,): the steps that the agents of each board would need if they were alone."""

    def one_board(board: Instance) -> jax.Array:
        fields = jax.vmap(distances, (None, 0))(board.holes, board.goals)
        steps = fields[jnp.arange(len(board.starts)), board.starts[:, 0], board.starts[:, 1]]
        return jnp.sum(jnp.where(board.agent_mask, steps, 0), dtype=jnp.int32)

    return jax.vmap(one_board)(boards)
