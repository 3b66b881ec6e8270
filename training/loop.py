"""The loop: Train, Validate, Design, stage after stage.

Each phase reads its result from disk if it exists, and computes and writes it otherwise. Runs can
therefore be resumed at any point.
"""

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from training.analysis.report import build_report
from training.audit import (
    check_inherited_weights,
    check_weight_digests,
    record_digests,
    write_stage_digests,
)
from training.environments.catalogue import get_domain
from training.environments.protocol import Instances
from training.errors import UserError
from training.learner.optimizer import LearnerState
from training.memory import report_out_of_memory, require_memory
from training.phases import warm_start
from training.phases.adapters import export_stage, load_stage_adapters
from training.phases.atlas import measure_last_atlas
from training.phases.design import design
from training.phases.design_learning import learn_to_design
from training.phases.reading import run_reading_phase
from training.phases.resume import restore_learner
from training.phases.stage_results import StageResult, get_reference_stage, read_stage_results
from training.phases.starting import create_started_run
from training.phases.summary import make_summary, print_summary
from training.phases.train import get_starting_state, train
from training.phases.validate import apply_gate, encode_prompts, validate, validation_set
from training.phases.weight_sync import check_engine
from training.policy import huggingface
from training.policy.architectures import DecoderConfig
from training.policy.policy import Policy, load_run_policy, write_random_policy
from training.processes import (
    call_in_first,
    is_first,
    is_single_process,
    require_same,
    wait_for_all,
)
from training.run.active_run import ActiveRun
from training.run.checkpoints import Checkpoints, RunProgress
from training.run.directory import RunDirectory
from training.run.health import find_problems, summarize
from training.run.progress import console, show_status
from training.run.shared_directory import open_run
from training.run.trackers import open_trackers
from training.sampling.engines import start_sampler
from training.sampling.sampler import Sampler
from training.schema import RunConfig
from training.schema.engineer_section import check_engineer

_LESS_MEMORY = (
    "reduce grpo.micro_batch_size or sampling.gpu_memory_utilization, set model.remat, or use more "
    "devices in model.mesh, and continue this run; or start a new run with a smaller "
    "prompt.max_tokens or model.dtype: bfloat16. --dry-run estimates the memory"
)


def run(config: RunConfig, path: Path, *, stop_after: int | None = None) -> None:
    """Run all stages of a configuration, or resume them.

    In a run of several processes (`training.processes`), all of them call this with the same
    arguments. `stop_after` is the last stage to run: 0 is the warm start and its validation, None
    runs all stages.

    Raises:
        UserError: The configuration, the directory or the machine is unsuitable.
    """
    if is_first() and not RunDirectory(path).finished():
        check_engineer(config.engineer, config.sampling.engine)
        if config.model.pretrained is not None:
            huggingface.resolve_model(config.model.pretrained)
        elif config.started_from is None:
            require_memory("model.scratch", DecoderConfig(**config.model.scratch.model_dump()))
    call_in_first("the start from another run", lambda: create_started_run(config, path))
    with open_run(config, path) as (directory, is_resumed), report_out_of_memory(_LESS_MEMORY):
        _run(config, directory, stop_after, is_resumed=is_resumed)


def _run(
    config: RunConfig, directory: RunDirectory, stop_after: int | None, *, is_resumed: bool
) -> None:
    """Run or resume a run, and print its result if it is finished."""
    validation = None
    if directory.finished():
        summary = directory.summary.read()
        console.print(f"{directory.path} contains this run, finished; remove it to start again.")
    else:
        verb = "Resuming" if is_resumed else "Starting"
        console.print(f"{verb} {config.name} in {directory.path}.")
        num_stages = config.stages.count
        last_stage = num_stages if stop_after is None else min(stop_after, num_stages)
        validation = validation_set(config)
        noun = f"{get_domain(config).instance}s"
        console.print(f"Validation set: {len(validation)} {noun}, the same after every stage.")
        results = _run_stages(config, directory, validation, last_stage)
        if last_stage < num_stages:
            console.print(f"Stopped after stage {last_stage} of {num_stages}.")
            return
        summary = make_summary(config, results)
        directory.seal_logs()
        directory.summary.write(summary)
        if is_first():
            shutil.rmtree(directory.prefetched, ignore_errors=True)
    if not is_first():
        return
    report = build_report(directory.path, validation=validation)
    folders = {stage: directory.stage(stage) for stage in range(len(summary.stages))}
    gates = {stage: files.gate.read() for stage, files in folders.items() if stage}
    answers = {stage: files.episodes.read() for stage, files in folders.items()}
    problems = summarize(find_problems(config, directory.updates(), answers, gates))
    print_summary(config, summary, [gate.comparison for gate in gates.values()], problems)
    last_stage = len(summary.stages) - 1
    if (origin := directory.weights_after(last_stage)) != last_stage:
        folder = directory.stage(origin).policy
        console.print(f"Stage {last_stage} was rolled back: the weights in force are in {folder}.")
    console.print(f"\nReport: {report}")


def _run_stages(
    config: RunConfig, directory: RunDirectory, validation: Instances, last_stage: int
) -> list[StageResult]:
    """Run or resume the warm start and the stages up to `last_stage`, and return their results."""
    policy, params = _load_policy(config, directory)
    with closing(Checkpoints(directory.checkpoints)) as checkpoints:
        progress = checkpoints.progress()
        with open_trackers(config, directory, progress.step if progress else 0) as trackers:
            prompts = encode_prompts(config, policy, validation)
            run = ActiveRun(config, directory, checkpoints, policy, validation, trackers, prompts)
            state, first_stage, num_done, has_learned = restore_learner(run, params)
            del params  # the checkpoint's state has separate weights
            with closing(_start_engine(run, state)) as sampler:
                return _take_stages(
                    run, sampler, state, first_stage, num_done, last_stage, has_learned=has_learned
                )


def _take_stages(
    run: ActiveRun,
    sampler: Sampler,
    state: LearnerState,
    first_stage: int,
    num_done: int,
    last_stage: int,
    *,
    has_learned: bool,
) -> list[StageResult]:
    """Run the stages `first_stage` to `last_stage`, and return all results.

    Of stage `first_stage`, `num_done` updates are complete. `has_learned` says whether the policy
    has learned to design after them.
    """
    config, directory = run.config, run.directory
    for number in directory.stage_numbers():
        check_weight_digests(directory, number, contents=False)
    results = read_stage_results(directory, config)
    if len(results) < first_stage + has_learned and (first_stage, num_done) != (1, 0):
        path = directory.stage(len(results)).episodes.path
        raise UserError(f"{path}: is missing, but the checkpoint is of stage {first_stage}")
    results = results[:first_stage]
    results = results or [validate(run, sampler)]
    if first_stage == 1 and num_done == 0:
        export_stage(run, state.params, 0)
    _close_stage(run, 0)
    run = replace(run, reference=_load_reference(config, directory, state.params))

    for stage in range(first_stage, last_stage + 1):
        trained_stage = train(run, state, sampler, results, num_done=num_done)
        results.append(validate(run, sampler, trained_stage))
        results[stage] = apply_gate(config, directory, results)
        boards = trained_stage.stage_instances.instances
        if has_learned:  # the state already includes these updates
            state = trained_stage.state
        else:
            export_stage(run, trained_stage.state.params, stage)
            if (origin := get_reference_stage(results, len(results))) < stage:
                check_weight_digests(directory, origin)
            state = get_starting_state(run, trained_stage.state, results)
            if state is not trained_stage.state:
                sampler.sync(run.policy.tensors(state.params))
        del trained_stage  # free memory: after a rollback it holds another learner
        if not has_learned:
            state = _learn_to_design(run, sampler, state, results)
        results[stage] = design(run, sampler, results)
        run_reading_phase(run, sampler, results)
        _close_stage(run, stage, boards)
        num_done, has_learned = 0, False
    if last_stage == config.stages.count and config.engineer.atlas.after_last:
        measure_last_atlas(run, sampler, results)
    return results


def _learn_to_design(
    run: ActiveRun, sampler: Sampler, state: LearnerState, results: list[StageResult]
) -> LearnerState:
    """Let the policy learn to design, if enabled, and save it before the Design phase."""
    if run.config.engineer.learning is None:
        return state
    state, stage = learn_to_design(run, sampler, state, results), results[-1].stage
    update = run.config.updates_per_stage
    run.directory.metrics.sync()
    logs = run.directory.log_digests()
    progress = RunProgress("learn_to_design", stage, update, run.step(stage, update), stage, logs)
    run.checkpoints.save(state, progress)
    run.checkpoints.wait()  # designs must not be written before their weights
    return state


def _close_stage(run: ActiveRun, stage: int, boards: Instances | None = None) -> None:
    """Write the digests of a stage, and check that all processes have the same files."""
    if not is_single_process():
        require_same(f"the end of stage {stage}", record_digests(run.directory.stage(stage)))
    if is_first():
        write_stage_digests(run.config, run.directory, run.validation, stage, boards)


def _load_policy(config: RunConfig, directory: RunDirectory) -> tuple[Policy, Any]:
    """Return the initial policy of the run: pretrained, from another run, or new."""
    if config.model.pretrained is not None:
        folder = huggingface.resolve_model(config.model.pretrained)
    else:
        folder = directory.initial_policy
        call_in_first(
            "the weights of another run", lambda: check_inherited_weights(config, directory)
        )
        exists = directory.digests.has_folder(folder) or config.started_from is not None
        if not call_in_first("the search for the first policy", lambda: exists and folder.exists()):
            texts = warm_start.texts_for_tokenizer(config)
            max_len = config.sampling.max_model_len
            if is_first():
                write_random_policy(folder, config.model, texts, max_len=max_len, seed=config.seed)
                directory.digests.record_folder(folder)
            wait_for_all("the first policy")
    return load_run_policy(folder, config)


def _load_reference(config: RunConfig, directory: RunDirectory, params: Any) -> Any:
    """Return the initial weights in `model.dtype` if the loss has a KL divergence, else None."""
    if config.model.lora is not None:
        check_weight_digests(directory, 0)
        adapters = load_stage_adapters(directory, params, 0)
        return adapters if config.grpo.kl_coefficient else None
    if not config.grpo.kl_coefficient:
        return None
    check_weight_digests(directory, 0)
    return load_run_policy(directory.stage(0).policy, config, param_dtype=config.model.dtype)[1]


def _start_engine(run: ActiveRun, state: LearnerState) -> Sampler:
    """Start the engine with the weights, and check that it uses them."""
    with show_status("starting the engine"):
        sampler = start_sampler(
            run.policy,
            state.params,
            run.config.engine_sampling,
            run.directory.engine,
            seed=run.config.seed,
        )
        try:
            check_engine(run, state.params, sampler)
        except BaseException:
            sampler.close()
            raise
    return sampler
