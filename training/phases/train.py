"""Train: draw the stage's instances from its configuration, and take GRPO updates on them."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import jax

from engineer import Configuration
from training.environments.protocol import Instances, StageInstances
from training.errors import UserError
from training.learner.grpo_step import make_grpo_optimizer
from training.learner.optimizer import LearnerState, initial_state
from training.phases.adapters import load_stage_adapters
from training.phases.grpo_update import take_update
from training.phases.picking import get_stage_instances, measure_pool
from training.phases.rehearsal import Rehearsal
from training.phases.stage_results import StageResult, get_configuration, get_reference_stage
from training.phases.weight_sync import check_rollout
from training.policy.lora import replace_trainable
from training.policy.policy import load_run_policy
from training.rollout.rollout import rollout_request
from training.run.active_run import ActiveRun
from training.run.checkpoints import RunProgress
from training.run.health import Finding, find_problems, print_findings
from training.run.progress import console, track
from training.run.records import TimingRecord, UpdateMetrics, make_record
from training.run.throughput import UpdateWork, compute_timing_fields
from training.sampling.prefetching import PrefetchingSampler
from training.sampling.sampler import Sampler, SamplingRequest
from training.threads import XLA_WORKERS, lower_priority


@dataclass(frozen=True)
class TrainedStage:
    """The result of the Train phase of a stage."""

    stage: int
    configuration: Configuration  # of the training instances
    stage_instances: StageInstances
    updates: tuple[UpdateMetrics, ...]
    state: LearnerState  # after the updates; the engine holds its weights


def train(
    run: ActiveRun,
    state: LearnerState,
    sampler: Sampler,
    results: Sequence[StageResult],
    *,
    num_done: int = 0,
) -> TrainedStage:
    """Draw the next stage's instances and take its updates, with logs and checkpoints.

    The first `num_done` updates of the stage are skipped. The engine must hold the weights of
    `state`, whose buffers are donated, and holds the new ones on return.
    """
    stage, settings = len(results), run.config.grpo
    configuration = get_configuration(run.config, results, stage)
    measure_pool(run, sampler, stage)
    seconds: dict[str, float] = {}
    with run.add_seconds(seconds, "boards"):
        stage_instances = _draw_instances(run, stage, configuration)
    updates = _read_logged_updates(run, stage, num_done)
    problems: Sequence[Finding] = find_problems(run.config, updates)
    num_updates = len(stage_instances.instances) // settings.prompts_per_update
    prefetcher = _make_prefetcher(run, sampler, stage, num_done, num_updates)
    rehearsal_config = run.config.rehearsal
    rehearsal = None if rehearsal_config is None else Rehearsal(run, rehearsal_config.contexts)

    def get_boards(number: int) -> Instances:
        return stage_instances.instances.batch(number - 1, settings.prompts_per_update)

    def make_request(number: int) -> SamplingRequest:
        seed = run.seed("sample", stage, number)
        return rollout_request(run, get_boards(number), seed=seed)

    next_request: SamplingRequest | None = None
    with ExitStack() as stack:
        advance = stack.enter_context(track(f"stage {stage}: train", num_updates, start=num_done))
        if prefetcher is not None:
            stack.enter_context(prefetcher)
        for number in range(num_done + 1, num_updates + 1):
            step = run.step(stage, number)
            boards = get_boards(number)
            request = next_request or make_request(number)
            rows = range((number - 1) * len(boards), number * len(boards))
            spare = stage_instances.instances.without(rows) if settings.resamples else None
            examples = None if rehearsal is None else rehearsal.batch("rehearsal", stage, number)
            next_request = None
            if prefetcher is not None and number < num_updates:
                next_request = make_request(number + 1)
                prefetcher.expect(next_request)
            work = UpdateWork()
            with run.profile_update(stage, number):
                state, metrics = take_update(
                    run,
                    state,
                    prefetcher or sampler,
                    boards,
                    request,
                    step=run.optimizer_step(stage, number),
                    seconds=seconds,
                    rehearsal_examples=examples,
                    spare=spare,
                    work=work,
                )
            if prefetcher is not None:
                metrics["rollout_lag"] = prefetcher.lag
            lag = metrics.get("rollout_lag", 0)
            check_rollout(run.config.sampling, metrics["sampler_gap"], lag=lag)
            record = make_record(UpdateMetrics, stage=stage, update=number, step=step, **metrics)
            updates.append(record)
            run.directory.metrics.append(record)
            advance(
                number,
                f"reward {record.reward_mean:.3f}  valid {record.valid_rate:.0%}  "
                f"readable {record.parsed_rate:.0%}  entropy {record.entropy:.2f}",
            )
            problems = print_findings(find_problems(run.config, updates), problems)
            if number % settings.checkpoint_every == 0 or number == num_updates:
                with run.add_seconds(seconds, "checkpoint"):
                    _save_checkpoint(run, state, prefetcher, stage, number)
            timing = TimingRecord(
                phase="train",
                stage=stage,
                update=number,
                step=step,
                seconds=seconds,
                **compute_timing_fields(work, seconds, run.config),
            )
            run.directory.timings.append(timing)
            run.trackers.log_update(record, timing)
            seconds = {}
    return TrainedStage(stage, configuration, stage_instances, tuple(updates), state)


def _save_checkpoint(
    run: ActiveRun,
    state: LearnerState,
    prefetcher: PrefetchingSampler | None,
    stage: int,
    number: int,
) -> None:
    """Save the learner after an update of a stage, and the prefetched rollout if there is one."""
    step, files = run.step(stage, number), []
    if prefetcher is not None:
        file = prefetcher.save_rollout(run.directory.prefetched, step)
        files = [] if file is None else [file]
    run.directory.metrics.sync()  # log lines must be on disk before the checkpoint
    designs = stage - 1 if run.config.engineer.learning else 0
    logs = run.directory.log_digests(*files)
    run.checkpoints.save(state, RunProgress("train", stage, number, step, designs, logs))


def _make_prefetcher(
    run: ActiveRun, sampler: Sampler, stage: int, num_done: int, num_updates: int
) -> PrefetchingSampler | None:
    if not run.config.grpo.prefetch:
        return None
    if run.config.sampling.starts_vllm and jax.default_backend() == "cpu":
        # Updates use all cores, and rollouts consist of short sequential steps. Both finish
        # earlier if rollouts have priority.
        lower_priority(XLA_WORKERS)
    prefetcher = PrefetchingSampler(sampler)
    if 0 < num_done < num_updates:
        prefetcher.restore_rollout(run.directory.prefetched, run.step(stage, num_done))
    return prefetcher


def get_starting_state(
    run: ActiveRun, state: LearnerState, results: Sequence[StageResult]
) -> LearnerState:
    """Return the learner that the next stage starts with.

    This is `state`, unless the gate has rolled back the last stage. Then it has the weights that
    the last stage started from, and a new optimizer.
    """
    origin = get_reference_stage(results, len(results))
    if origin == len(results) - 1:
        return state
    if run.config.model.lora is None:
        _, params = load_run_policy(run.directory.stage(origin).policy, run.config)
    else:
        adapters = load_stage_adapters(run.directory, state.params, origin)
        params = replace_trainable(state.params, adapters)
    return initial_state(params, make_grpo_optimizer(run.config.grpo, run.config.grpo_steps))


def _read_logged_updates(run: ActiveRun, stage: int, num_done: int) -> list[UpdateMetrics]:
    """Return the logged metrics of a stage's updates; raise a `UserError` if any is missing."""
    if num_done == 0:
        return []
    metrics, updates = run.directory.metrics, run.directory.updates(stage)
    numbers = [update.update for update in updates]
    if numbers != (all_numbers := list(range(1, num_done + 1))):
        gaps = sorted(set(all_numbers) - set(numbers))
        problem = f"lacks updates {gaps}" if gaps else f"has updates {numbers}"
        raise UserError(
            f"{metrics.path}: {problem} of stage {stage}, but the checkpoint has updates 1 to "
            f"{num_done}: a line is damaged. Restore the file, or remove the directory to start "
            "again"
        )
    return updates


def _draw_instances(run: ActiveRun, stage: int, configuration: Configuration) -> StageInstances:
    """Draw the stage's instances, and write their configuration and statistics."""
    files = run.directory.stage(stage)
    if not files.configuration.exists():
        files.configuration.write(configuration)
    instances = get_stage_instances(run.config, run.directory, stage, configuration, run.validation)
    for shortfall in instances.shortfalls:
        console.print(f"stage {stage}: {shortfall}", style="yellow")
    files.shortfalls.write(instances.shortfalls)
    files.environment.write(instances.statistics)
    return instances
