"""Selection of individual boards by the policy's results, as an alternative to configurations.

The methods `sfl` (Rutherford et al. 2024) and `plr` (Jiang et al. 2021) select half of a stage's
boards, and draw the other half.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from engineer import Configuration, Costs
from jaxlake.generator.board_digests import DigestSet
from training.environments.catalogue import get_environment
from training.environments.protocol import StageInstances
from training.errors import UserError
from training.phases.atlas import count_valid, draw_cell_boards, get_atlas_cells
from training.rollout.instances import InstanceSet, StageBoards, concatenate_boards
from training.run.active_run import ActiveRun
from training.run.directory import RunDirectory, StageDirectory
from training.run.records import DrawReport, PicksRecord
from training.run.seeds import derive_key, derive_seed
from training.sampling.sampler import Sampler
from training.schema import PickingConfig, RunConfig


def measure_pool(run: ActiveRun, sampler: Sampler, stage: int) -> None:
    """Answer the pool of a stage and write `picks.json`, if the method is `sfl`."""
    settings = run.config.engineer.picking
    file = run.directory.stage(stage).picks
    if settings is None or settings.method != "sfl" or file.exists():
        return
    with run.log_duration("pool", stage, update=0):
        pool = draw_pool(run.config, settings, stage, run.validation)
        counts = count_valid(run.config, run.policy, sampler, pool, stream="pool", stage=stage)
        sampler.drop_cache()  # as in a run that resumes here
        num_answers = run.config.engineer.atlas.answers
        file.write(PicksRecord(stage=stage, answers=num_answers, valid=tuple(counts.tolist())))


def get_stage_instances(
    config: RunConfig,
    directory: RunDirectory,
    stage: int,
    configuration: Configuration,
    validation: Any,
    history: Sequence[Any] = (),
) -> StageInstances:
    """Return the instances of a stage: drawn from its configuration, or selected (lake only).

    The validation set is excluded. `history` are the instances of stages 1, 2, ... as far as they
    are known; others are drawn again if they are needed.

    Raises:
        UserError: The file with the policy's results is missing or inconsistent.
    """
    settings = config.engineer.picking
    if settings is None:
        key = derive_key(config.seed, "train", stage)
        return get_environment(config).stage_set(
            key, configuration, config.stages.instances, validation
        )
    if settings.method == "sfl":
        pool = draw_pool(config, settings, stage, validation)
        counts, num_answers = _read_pool_answers(directory.stage(stage), len(pool))
        return _select_boards(config, settings, stage, pool, pool, counts, num_answers)
    boards = list(history[: stage - 1])
    for number in range(len(boards) + 1, stage):  # each stage depends on all earlier ones
        boards.append(
            _reselect_boards(config, settings, directory, number, boards, validation).instances
        )
    return _reselect_boards(config, settings, directory, stage, boards, validation)


def draw_pool(
    config: RunConfig, settings: PickingConfig, stage: int, validation: InstanceSet
) -> InstanceSet:
    """Draw about `settings.pool` boards, the same number from each cell of an atlas."""
    cells = get_atlas_cells(config)
    key, count = derive_key(config.seed, "pool", stage, 0), -(-settings.pool // len(cells))
    return draw_cell_boards(config, key, cells, count, DigestSet(validation.instances))[0]


def compute_selection_cost(files: StageDirectory) -> Costs:
    """Return the cost of the answers to a stage's pool."""
    if not files.picks.exists():
        return Costs()
    record = files.picks.read()
    return Costs(probe_rollouts=len(record.valid) * record.answers)


def _reselect_boards(
    config: RunConfig,
    settings: PickingConfig,
    directory: RunDirectory,
    stage: int,
    earlier_boards: Sequence[InstanceSet],
    validation: InstanceSet,
) -> StageBoards:
    """Select the boards of a stage from the boards of `earlier_boards` stages (1, 2, ...)."""
    pool = draw_pool(config, settings, stage, validation)
    candidates, counts = _read_trained_boards(config, directory, [pool.take([]), *earlier_boards])
    return _select_boards(
        config, settings, stage, pool, candidates, counts, config.grpo.completions
    )


def _select_boards(
    config: RunConfig,
    settings: PickingConfig,
    stage: int,
    pool: InstanceSet,
    candidates: InstanceSet,
    counts: np.ndarray,  # int (candidates,), valid answers per candidate
    num_answers: int,  # answers per candidate
) -> StageBoards:
    """Return a stage's boards: the most learnable candidates and random boards of the pool."""
    best_rows = np.argsort(-counts * (num_answers - counts), kind="stable")[: settings.pool // 4]
    rng = np.random.default_rng(derive_seed(config.seed, "train", stage))
    count = config.stages.instances
    num_selected = (count + 1) // 2 if len(best_rows) else 0
    rows = [np.resize(rng.permutation(best_rows), num_selected)]
    rows.append(len(candidates) + np.resize(rng.permutation(len(pool)), count - num_selected))
    boards = concatenate_boards([candidates, pool])
    order = rng.permutation(np.concatenate(rows))
    distinct_boards = boards.take(_first_rows(boards, np.unique(order)))
    reports = tuple(_make_reports(config, distinct_boards))
    return StageBoards(boards.take(order), distinct_boards, reports)


def _read_pool_answers(files: StageDirectory, count: int) -> tuple[np.ndarray, int]:
    """Return the valid answers to each board of the pool, int (count,), and answers per board."""
    record = files.picks.read()
    if len(record.valid) != count:
        raise UserError(
            f"{files.picks.path}: valid must have {count} boards, got {len(record.valid)}"
        )
    return np.array(record.valid), record.answers


def _read_trained_boards(
    config: RunConfig, directory: RunDirectory, boards: Sequence[InstanceSet]
) -> tuple[InstanceSet, np.ndarray]:
    """Return the boards of earlier stages, and the latest valid answers to each, int (B,)."""
    updates = directory.updates()
    boards_per_stage = config.updates_per_stage * config.grpo.prompts_per_update
    valid_counts: list[int] = []
    for stage in range(1, len(boards)):
        counts = [update.board_valid or () for update in updates if update.stage == stage]
        valid_counts += [count for update in counts for count in update]
        if len(valid_counts) != stage * boards_per_stage:
            raise UserError(
                f"{directory.metrics.path}: board_valid must have "
                f"{stage * boards_per_stage} boards up to stage {stage}, got {len(valid_counts)}"
            )
    trained_boards = concatenate_boards(
        [instances.take(range(min(boards_per_stage, len(instances)))) for instances in boards]
    )
    latest_rows = {_board_key(trained_boards, row): row for row in range(len(trained_boards))}
    rows = sorted(latest_rows.values())
    return trained_boards.take(rows), np.array(valid_counts, np.int64)[rows]


def _first_rows(boards: InstanceSet, rows: np.ndarray) -> np.ndarray:
    """Return the first row of each distinct board."""
    first_rows: dict[str, int] = {}
    for row in rows.tolist():
        first_rows.setdefault(_board_key(boards, row), row)
    return np.array(list(first_rows.values()))


def _board_key(boards: InstanceSet, row: int) -> str:
    return "\n".join(boards.grid(row))


def _make_reports(config: RunConfig, boards: InstanceSet) -> list[DrawReport]:
    """Return the boards as fulfilled requests by map size, with their actual ratios."""
    sizes, holes = boards.instances.size, np.asarray(boards.instances.holes)
    reports = []
    for size in np.unique(sizes).tolist():
        mask = sizes == size
        count = int(mask.sum())
        hole_ratio = holes[mask][:, :size, :size].mean()
        wait_ratio = np.asarray(boards.solutions.needs_wait)[mask].mean()
        reports.append(
            DrawReport(
                size=size,
                hole_ratio=round(float(hole_ratio), 6),
                wait_ratio=round(float(wait_ratio), 6),
                num_agents=config.lake.num_agents,
                count=count,
                missing_wait=0,
                missing_no_wait=0,
                candidates=count,
            )
        )
    return reports
