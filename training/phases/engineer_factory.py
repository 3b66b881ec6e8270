"""The engineer that a name stands for, for a run in progress or for one of its stages later."""

from __future__ import annotations

from collections.abc import Sequence

from engineer import Engineer, EngineerError, LanguageModelEngineer
from engineer.engineers.catalogue import RunSettings, scripted_engineer
from engineer.engineers.controls import split_control
from engineer.engineers.language_model import GeneratedText, GenerateText
from engineer.space import AnswerForm
from training.environments.catalogue import domain_of
from training.phases.asking import asked_by_first
from training.phases.stage_results import StageResult, reference_of
from training.policy.policy import Policy
from training.run.directory import RunDirectory
from training.sampling.model_server import OtherModels, TextQuestion
from training.sampling.sampler import PromptTooLongError, Question, Sampler
from training.schema import EngineerChoice, RunConfig


def make_engineer(
    config: RunConfig,
    directory: RunDirectory,
    results: Sequence[StageResult],
    models: OtherModels,
    *,
    kind: str | None = None,
    checkpoint: GenerateText | None = None,
) -> Engineer:
    """Make the engineer of a Design phase, which will read the evidence of the last of `results`.

    It has a name (`kind`) as in `engineer.kind`; None: the configuration's own. Weights that are
    not in use come from the directory through `models`, which stays open for as long as it is
    asked. `checkpoint` generates with the weights in force; None: they are loaded as well.

    Raises:
        EngineerError: The configuration lacks what the name needs. Missing weights are noticed
            only when the engineer is asked.
    """
    control, inner = split_control(kind or config.engineer.kind)
    if inner == "checkpoint" and checkpoint is not None:
        made: Engineer = LanguageModelEngineer(checkpoint, name=inner)
    elif inner in ("checkpoint", "base", "model"):
        weights = _weights(inner, config, directory, results)
        made = asked_by_first(_language_model(inner, config, weights, models))
    elif inner == "endpoint":
        made = asked_by_first(_endpoint(config.engineer))
    else:
        initial, stages = config.environment.initial, config.stages.count
        made = scripted_engineer(
            inner, RunSettings(domain_of(config).space, initial, stages, config.seed)
        )
    return control(made) if control else made


def _endpoint(choice: EngineerChoice) -> Engineer:
    if not choice.base_url or not choice.model:
        raise EngineerError("endpoint: engineer.base_url and engineer.model are not set")
    from engineer.engineers.endpoint import ChatClient, EndpointEngineer  # imports openai

    return EndpointEngineer(
        ChatClient(
            choice.base_url,
            choice.model,
            api_key_env=choice.api_key_env,
            timeout=choice.timeout_seconds,
        ),
        max_tokens=choice.max_tokens,
        note_tokens=choice.token_limit(False),
        temperature=choice.temperature,
    )


def _language_model(
    kind: str, config: RunConfig, weights: str, models: OtherModels
) -> LanguageModelEngineer:
    """Ask weights that vLLM has to load; former policies are prompted as they were trained."""
    policy = kind != "model"
    chat = config.prompt.chat if policy else None
    thinking = config.prompt.thinking and policy

    def generate(prompt: str, form: AnswerForm | None, seed: int) -> GeneratedText:
        return models.ask(weights, TextQuestion(prompt, chat, thinking, seed, form))

    return LanguageModelEngineer(generate, name=kind if policy else weights)


def _weights(
    kind: str, config: RunConfig, directory: RunDirectory, results: Sequence[StageResult]
) -> str:
    """The hub name or folder of a model.

    A run in progress has its checkpoint at hand. Asked later, it is the stage's policy as it was
    before it learned to design (`engineer.learning`), since no weights are kept from after that.
    """
    choice = config.engineer
    if kind == "model":
        if not choice.model:
            raise EngineerError("model: engineer.model is not set")
        return choice.model
    if kind == "base":
        return config.model.pretrained or str(directory.initial_policy)
    return str(directory.stage(reference_of(results, len(results))).policy)


def checkpoint_in_use(policy: Policy, sampler: Sampler, choice: EngineerChoice) -> GenerateText:
    """Generate with the policy of a run in progress, as the engine holds it."""

    def generate(prompt: str, form: AnswerForm | None, seed: int) -> GeneratedText:
        try:
            question = Question(
                prompts=[policy.encode_prompt(prompt)],
                n=1,
                temperature=choice.temperature,
                max_tokens=choice.token_limit(form is not None),
                stop_token_ids=policy.stop_ids,
                seed=seed,
                form=form,
            )
            ((completion,),) = sampler.sample(question)
        except PromptTooLongError as error:
            raise EngineerError(f"{error}; engineer.max_context_tokens cuts prompts") from error
        return GeneratedText(policy.decode(completion.token_ids), len(completion.token_ids))

    return generate
