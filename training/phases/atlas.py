"""Atlas: the policy's success on new boards of every cell, measured without training.

A cell is a map size with a hole ratio, and requires a wait or no wait. The boards depend on the
run's seed and the stage, and exclude the validation boards.
"""

from collections.abc import Sequence

import jax
import numpy as np

from engineer.scoring.atlas import AtlasCell, DesignAtlas, atlas_grid
from jaxlake import infeasibility
from jaxlake.generator.board_digests import DigestSet
from training.environments.catalogue import get_domain, get_environment
from training.errors import UserError
from training.learner.optimizer import LearnerState
from training.phases.stage_results import StageResult, get_reference_stage
from training.policy.policy import Policy
from training.rollout.instances import BoardRequest, InstanceSet, draw_boards
from training.run.active_run import ActiveRun
from training.run.directory import RunDirectory
from training.run.progress import console, track
from training.run.records import AtlasRecord
from training.run.seeds import derive_key, derive_seed
from training.sampling.sampler import Sampler, SamplingRequest
from training.schema import RunConfig

CHUNK = 4096
"""Completions per call of the engine, so that progress can be shown."""

Cells = list[tuple[str, dict[str, float]]]
"""Map sizes, as names of groups, with the knobs hole_ratio, and wait_ratio of 0 or 1."""


def get_atlas_cells(config: RunConfig) -> Cells:
    """Return the cells of an atlas, ordered by map size."""
    return atlas_grid(get_domain(config), config.engineer.atlas.levels)


def draw_atlas_boards(
    config: RunConfig, stage: int, cells: Cells, validation: InstanceSet
) -> tuple[InstanceSet, np.ndarray]:
    """Draw the boards of a stage's atlas; see `draw_cell_boards`."""
    key, count = derive_key(config.seed, "atlas", stage, 0), config.engineer.atlas.boards_per_cell
    return draw_cell_boards(config, key, cells, count, DigestSet(validation.instances))


def draw_cell_boards(
    config: RunConfig, key: jax.Array, cells: Cells, count: int, seen_boards: DigestSet
) -> tuple[InstanceSet, np.ndarray]:
    """Draw `count` boards of every feasible cell, except boards in `seen_boards`.

    Returns:
        The boards, and the index of each board's cell, int (B,).

    Raises:
        UserError: No cell is feasible.
    """
    lake = config.lake
    indices, requests = [], []
    for index, (group, knobs) in enumerate(cells):
        size, hole_ratio, wait_ratio = int(group), knobs["hole_ratio"], knobs["wait_ratio"]
        if infeasibility(size, hole_ratio, lake.num_agents) is None:
            indices.append(index)
            requests.append(BoardRequest(size, hole_ratio, wait_ratio, count, lake.num_agents))
    boards, reports = draw_boards(
        key,
        requests,
        max_size=max(lake.bounds.sizes),
        max_candidates=lake.max_candidates,
        seen_boards=seen_boards,
    )
    counts = [report.count - report.missing for report in reports]
    return boards, np.repeat(indices, counts)


def measure_atlas(
    config: RunConfig,
    policy: Policy,
    sampler: Sampler,  # holds the weights that are measured
    stage: int,
    validation: InstanceSet,
) -> DesignAtlas:
    """Return the atlas of a policy: the number of valid answers to the boards of every cell."""
    cells, num_answers = get_atlas_cells(config), config.engineer.atlas.answers
    boards, cell_indices = draw_atlas_boards(config, stage, cells, validation)
    valid_counts = count_valid(config, policy, sampler, boards, stream="atlas", stage=stage)
    counts = np.zeros((len(cells), num_answers + 1), np.int64)
    np.add.at(counts, (cell_indices, valid_counts), 1)
    atlas = DesignAtlas(
        cells=tuple(
            AtlasCell(group=group, knobs=knobs, boards=tuple(row.tolist()))
            for (group, knobs), row in zip(cells, counts, strict=True)
        )
    )
    console.print(
        f"stage {stage}: atlas: {atlas.rollouts} answers to {atlas.count} boards of "
        f"{len(cells)} cells",
        soft_wrap=True,
    )
    return atlas


def get_or_measure_atlas(
    run: ActiveRun, sampler: Sampler, state: LearnerState, results: Sequence[StageResult]
) -> AtlasRecord:
    """Return the atlas of the last of `results`; measure and write it if it is missing.

    The sampler must hold the weights of `state`. Its caches are empty afterwards.
    """
    stage = results[-1].stage
    file = run.directory.stage(stage).atlas
    if not file.exists():
        atlas = measure_atlas(run.config, run.policy, sampler, stage, run.validation)
        sampler.sync(run.policy.tensors(state.params))
        file.write(
            AtlasRecord(stage=stage, weights=get_reference_stage(results, stage + 1), atlas=atlas)
        )
    return read_atlas(run.directory, run.config, stage)


def measure_last_atlas(run: ActiveRun, sampler: Sampler, results: Sequence[StageResult]) -> None:
    """Measure the atlas of the last of `results` for the report, unless it exists.

    The sampler must hold the weights in force after the stage.
    """
    stage = results[-1].stage
    file = run.directory.report_atlas(stage)
    if not file.exists() and not run.directory.stage(stage).atlas.exists():
        atlas = measure_atlas(run.config, run.policy, sampler, stage, run.validation)
        file.write(
            AtlasRecord(stage=stage, weights=get_reference_stage(results, stage + 1), atlas=atlas)
        )


def read_atlas(directory: RunDirectory, config: RunConfig, stage: int) -> AtlasRecord:
    """Return the atlas of a stage; raise a `UserError` if it is missing or its cells differ."""
    file = directory.stage(stage).atlas
    if not file.exists():
        file = directory.report_atlas(stage)
    record = file.read()
    if record.stage != stage:
        raise UserError(f"{file.path}: stage must be {stage}, got {record.stage}")
    cells = [(cell.group, cell.knobs) for cell in record.atlas.cells]
    if (cells, record.atlas.answers) != (get_atlas_cells(config), config.engineer.atlas.answers):
        raise UserError(
            f"{file.path}: its cells differ from engineer.atlas; remove the file to measure again"
        )
    return record


def count_valid(
    config: RunConfig,
    policy: Policy,
    sampler: Sampler,
    boards: InstanceSet,
    *,
    stream: str,
    stage: int,
) -> np.ndarray:
    """Return the number of valid answers to each board, int (B,).

    The policy answers each board `engineer.atlas.answers` times, sampled as in training.
    """
    num_answers = config.engineer.atlas.answers
    prompts = [policy.encode_board(board) for board in boards]
    boards_per_call = max(CHUNK // num_answers, 1)
    texts: list[str] = []
    with track(f"stage {stage}: {stream}", len(prompts) * num_answers, unit="answers") as advance:
        for call, start in enumerate(range(0, len(prompts), boards_per_call)):
            request = SamplingRequest(
                prompts=prompts[start : start + boards_per_call],
                n=num_answers,
                temperature=config.sampling.temperature,
                max_tokens=config.prompt.max_tokens,
                stop_token_ids=policy.stop_ids,
                seed=derive_seed(config.seed, stream, stage, 1, call),
            )
            groups = sampler.sample(request)
            texts += [
                policy.decode(completion.token_ids, prompt)
                for prompt, group in zip(request.prompts, groups, strict=True)
                for completion in group
            ]
            advance(len(texts))
    repeated_boards = boards.take(np.repeat(np.arange(len(boards)), num_answers))
    valid = get_environment(config).judge(repeated_boards, texts).scores.valid
    counts: np.ndarray = np.reshape(valid, (-1, num_answers)).sum(axis=1)
    return counts
