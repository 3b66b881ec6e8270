"""Train -> Validate -> Design, again and again.

Each phase either finds its result on disk, whole, or makes it from what stands there; so a run that
is killed at any point goes on with the same command, and ends as if it had not been.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.config import RunConfig
from training.design.engineers import check_key
from training.design.gate import gate
from training.design.phase import design
from training.design.probe import Prober
from training.learning.learner import LearnerState, start
from training.model import huggingface
from training.phases import train, validate, warm_start
from training.phases.context import Run
from training.phases.sync import check_engine
from training.policy import Policy, load, make
from training.provenance import seal
from training.report import build_report
from training.run.checkpoints import Checkpoints
from training.run.directory import RunDirectory, write_json
from training.run.progress import console
from training.run.records import configuration_for, write_configuration
from training.run.summary import print_summary, summarise
from training.sampling.vllm_sampler import VllmSampler


def run(config: RunConfig, path: Path, *, stop_after: int | None = None) -> None:
    """Run all rounds of `config` in the directory `path`, or go on where it was.

    Args:
      config: decides the run.
      path: the run's directory.
      stop_after: leave off after this round (0: after the warm start and its validation), as if
        killed there; the same call without it goes on.

    Raises:
      UserError: anything outside is not as it must be; the message says what.
    """
    directory = RunDirectory(path)
    if not directory.summary.exists():
        check_key(config.engineer)
    known = directory.claim(config)
    if directory.summary.exists():
        console.print(f"{path} holds this run, finished; remove it to start anew.")
    else:
        console.print(f"{'Going on with' if known else 'Starting'} {config.name} in {path}.")
        rounds = config.stages.rounds
        last = rounds if stop_after is None else min(stop_after, rounds)
        _rounds(config, directory, last)
        if last < rounds:
            console.print(f"Left off after round {last} of {rounds}.")
            return
        write_json(directory.summary, summarise(directory, config))
    report = build_report(directory.path)
    print_summary(directory, config)
    console.print(f"\nReport: {report}")


def _rounds(config: RunConfig, directory: RunDirectory, last: int) -> None:
    validation = validate.boards_for(config)
    console.print(f"Validation set: {len(validation)} boards, the same after every round.")
    checkpoints = Checkpoints(directory.checkpoints)
    policy, params = _policy(config, directory)
    run = Run(config, directory, checkpoints, policy, validation)
    state, stage, done = _restore(run, params)
    sampler = _engine(run, state)
    validate.validate(run, sampler, 0)
    if stage == 1 and done == 0:
        policy.export(state.params, directory.stage(0) / "policy")
    seal(config, directory, validation, 0)
    while stage <= last:
        configuration = configuration_for(config, directory, stage)
        write_configuration(directory, stage, configuration)
        boards = train.boards_for(run, stage, configuration)
        state = train.train(run, state, sampler, stage, boards, configuration, done=done)
        validate.validate(run, sampler, stage)
        gate(config, directory, stage)
        policy.export(state.params, directory.stage(stage) / "policy")
        if (origin := train.start_of(run, state, stage + 1)) is not state:
            state = origin
            sampler.sync(policy.tensors(state.params))
        design(run, sampler, stage, Prober(run, sampler, state, stage))
        seal(config, directory, validation, stage, boards)
        stage, done = stage + 1, 0
    sampler.close()
    checkpoints.close()


def _policy(config: RunConfig, directory: RunDirectory) -> tuple[Policy, Any]:
    """The policy that the run begins with: pretrained, or made once in the run's directory."""
    if config.model.pretrained is not None:
        folder = huggingface.resolve(config.model.pretrained)
    else:
        folder = directory.path / "initial"
        if not folder.exists():
            texts = warm_start.texts_for_tokenizer(config)
            make(
                folder, config.model, texts, max_len=config.sampling.max_model_len, seed=config.seed
            )
    return load(folder, config.model, config.prompt, length_bucket=config.grpo.length_bucket)


def _restore(run: Run, params: Any) -> tuple[LearnerState, int, int]:
    """The learner as the newest checkpoint has it, its round, and the updates done there."""
    progress = run.checkpoints.progress()
    if run.config.warm_start is not None and (progress is None or progress.phase == "warm_start"):
        params = warm_start.warm_start(run, params)
    state = start(params, train.optimizer(run.config.grpo))
    if progress is None or progress.phase == "warm_start":
        run.directory.rewind(run.step(1, 0))
        return state, 1, 0
    run.directory.rewind(progress.step)
    return run.checkpoints.restore(state), progress.stage, progress.update


def _engine(run: Run, state: LearnerState) -> VllmSampler:
    """vLLM on a copy of the weights; the copy has a head of its own (see `vllm_sampler`)."""
    folder = run.directory.path / "engine"
    with console.status("starting vLLM"):
        run.policy.export(state.params, folder, untied=True)
        sampler = VllmSampler(folder, run.config.sampling, seed=run.config.seed)
        check_engine(run, state.params, sampler)
    return sampler
