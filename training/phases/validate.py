"""Validate: answer the fixed validation set, and roll back a stage if its rate has dropped."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from training.environments.catalogue import get_environment
from training.environments.protocol import Instances
from training.phases.stage_results import StageResult, make_gate_record, make_stage_result
from training.phases.train import TrainedStage
from training.policy.policy import Policy
from training.run.active_run import ActiveRun
from training.run.answer_records import EpisodeRecord, compute_validation_rates
from training.run.directory import RunDirectory
from training.run.health import find_problems, print_findings
from training.run.progress import console, track
from training.run.rates import format_success_rates
from training.sampling.sampler import Sampler, SamplingRequest, Tokens
from training.schema import RunConfig

CHUNK = 512
"""Prompts per call of the engine, so that progress can be shown."""


def validation_set(config: RunConfig) -> Instances:
    """Draw the fixed validation set; it does not depend on the run's seed."""
    return get_environment(config).validation_set()


def validate(
    run: ActiveRun, sampler: Sampler, trained_stage: TrainedStage | None = None
) -> StageResult:
    """Answer the validation set with the weights of a stage, and verify the answers.

    Existing answers are read from disk. `trained_stage` is None for stage 0.
    """
    stage = 0 if trained_stage is None else trained_stage.stage
    files = run.directory.stage(stage)
    if files.episodes.exists():
        episodes = tuple(files.episodes.read())
    else:
        with run.log_duration("validate", stage):
            title = f"stage {stage}: validate"
            answers = generate_answers(
                run.config,
                run.policy,
                sampler,
                run.validation,
                title=title,
                prompts=run.validation_prompts,
            )
            episodes = judge_answers(run.config, run.validation, answers)
            run.checkpoints.wait()  # results must not be written before their weights
            files.episodes.write(episodes)
        rates = compute_validation_rates(stage, episodes)
        console.print(f"stage {stage}: {format_success_rates(rates.total)}", soft_wrap=True)
        run.trackers.log_validation(run.step(stage, run.config.updates_per_stage), rates)
        updates = () if trained_stage is None else trained_stage.updates
        known_findings = find_problems(run.config, updates)
        print_findings(find_problems(run.config, updates, {stage: episodes}), known_findings)
    if trained_stage is None:
        result = make_stage_result(run.config, stage, None, episodes, (), {})
        return replace(result, start=files.start.read() if files.start.exists() else None)
    statistics = trained_stage.stage_instances.statistics
    return make_stage_result(
        run.config, stage, trained_stage.configuration, episodes, trained_stage.updates, statistics
    )


def encode_prompts(config: RunConfig, policy: Policy, boards: Instances) -> list[list[int]]:
    """Return the token ids of each instance's prompt."""
    return [policy.encode_prompt(text) for text in get_environment(config).prompts(boards)]


class SampledAnswer(NamedTuple):
    """A sampled answer."""

    text: str
    tokens: int
    truncated: bool  # the token limit cut it off


def generate_answers(
    config: RunConfig,
    policy: Policy,
    sampler: Sampler,
    boards: Instances,
    *,
    title: str,
    prompts: Sequence[Tokens] | None = None,
    num_samples: int = 1,
) -> list[SampledAnswer]:
    """Return B * num_samples answers at the validation temperature, instance by instance.

    `prompts` are the result of `encode_prompts`, which is called if they are None.
    """
    if prompts is None:
        prompts = encode_prompts(config, policy, boards)
    answers: list[SampledAnswer] = []
    with track(title, num_samples * len(prompts), unit="answers") as advance:
        for start in range(0, len(prompts), CHUNK):
            request = SamplingRequest(
                prompts=prompts[start : start + CHUNK],
                n=num_samples,
                temperature=config.validation.temperature,
                top_p=config.validation.top_p,
                top_k=config.validation.top_k,
                max_tokens=config.prompt.max_tokens,
                stop_token_ids=policy.stop_ids,
                seed=config.validation.seed + start,
            )
            groups = sampler.sample(request)
            for prompt, group in zip(request.prompts, groups, strict=True):
                for completion in group:
                    tokens = completion.token_ids
                    text = policy.decode(tokens, prompt)
                    answers.append(SampledAnswer(text, len(tokens), completion.truncated))
            advance(len(answers))
    return answers


def judge_answers(
    config: RunConfig, boards: Instances, answers: Sequence[SampledAnswer]
) -> tuple[EpisodeRecord, ...]:
    """Score one answer per instance, and return the records of the answers."""
    environment = get_environment(config)
    texts = [answer.text for answer in answers]
    episodes = environment.episodes(boards, texts, environment.judge(boards, texts))
    return tuple(
        episode.model_copy(update={"tokens": answer.tokens, "truncated": answer.truncated})
        for episode, answer in zip(episodes, answers, strict=True)
    )


def apply_gate(
    config: RunConfig, directory: RunDirectory, results: Sequence[StageResult]
) -> StageResult:
    """Compare the last stage with its starting point, write `gate.json`, and return its result."""
    result = results[-1]
    file = directory.stage(result.stage).gate
    if file.exists():
        return replace(result, gate=file.read())
    record = make_gate_record(config, results, result.stage)
    file.write(record)
    print_findings(find_problems(config, gates={result.stage: record}))
    return replace(result, gate=record)
