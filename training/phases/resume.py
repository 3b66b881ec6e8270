"""Resumption of a run from its newest checkpoint, which removes later results."""

from typing import Any

from training.learner.grpo_step import make_grpo_optimizer
from training.learner.optimizer import LearnerState, initial_state
from training.phases import warm_start
from training.run.active_run import ActiveRun
from training.run.checkpoints import RunProgress
from training.run.progress import console


def restore_learner(run: ActiveRun, params: Any) -> tuple[LearnerState, int, int, bool]:
    """Restore the learner from the newest checkpoint, or create it after the warm start.

    Returns:
        The learner, its stage, the number of completed updates of that stage, and whether the
        policy has learned to design after them.
    """
    progress = run.checkpoints.progress()
    if progress is not None:
        run.directory.require_unchanged_logs(progress.logs)
    _remove_later_results(run, progress)
    if progress is not None and progress.phase in ("train", "learn_to_design"):
        run.directory.rewind(progress.step)
        state = run.checkpoints.restore(
            initial_state(params, make_grpo_optimizer(run.config.grpo, run.config.grpo_steps))
        )
        return state, progress.stage, progress.update, progress.phase == "learn_to_design"
    if run.config.warm_start is not None:
        params = warm_start.warm_start(run, params)
    run.directory.rewind(run.step(1, 0))
    state = initial_state(params, make_grpo_optimizer(run.config.grpo, run.config.grpo_steps))
    return state, 1, 0, False


def _remove_later_results(run: ActiveRun, progress: RunProgress | None) -> None:
    """Remove results that belong to updates after the newest checkpoint."""
    config, keep_validation = run.config, False
    if progress is None or progress.phase == "warm_start":
        steps = 0 if config.warm_start is None else config.warm_start.steps
        stage = 0 if steps > (0 if progress is None else progress.step) else 1
    elif progress.update < config.updates_per_stage:
        stage = progress.stage
    else:
        keep_validation = config.engineer.learning is not None and progress.phase == "train"
        stage = progress.stage + (not keep_validation)
    if run.directory.remove_dependent_files(stage, keep_validation=keep_validation):
        phase = "Design" if keep_validation else "Validate"
        console.print(
            f"Stage {stage}: removed all results from {phase} on, because their weights are newer "
            "than the newest checkpoint. They are computed again.",
            style="yellow",
            soft_wrap=True,
        )
