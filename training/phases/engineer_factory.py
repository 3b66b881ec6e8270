"""Construction of engineers by name, for the Design phase or to replay a stage."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from engineer import Costs, Engineer, EngineerError, LanguageModelEngineer, NoteWriter
from engineer.engineers.base import Proposal, Task
from engineer.engineers.catalogue import RunSettings, scripted_engineer
from engineer.engineers.controls import split_control_name
from engineer.engineers.language_model import GeneratedText, GenerateText, TextRequest
from jaxlake.user_code import is_code_name
from training.environments.catalogue import get_domain
from training.phases.stage_results import StageResult, get_reference_stage
from training.policy.policy import Policy
from training.processes import call_in_first, is_single_process
from training.run.directory import RunDirectory
from training.sampling.model_server import ModelServer
from training.sampling.sampler import PromptTooLongError, Sampler, SamplingRequest
from training.schema import EngineerConfig, RunConfig
from training.schema.engineer_section import import_engineer


def make_engineer(
    config: RunConfig,
    directory: RunDirectory,
    results: Sequence[StageResult],
    model_server: ModelServer,
    *,
    kind: str | None = None,
    checkpoint: GenerateText | None = None,
) -> Engineer:
    """Return the engineer of the Design phase after the last of `results`.

    `model_server` loads weights that the engine does not hold. `kind` replaces the configuration's
    `engineer.kind`. `checkpoint` generates with the weights in force; None loads them with
    `model_server`.

    Raises:
        EngineerError: The configuration lacks a required setting.
    """
    control, base_kind = split_control_name(kind or config.engineer.kind)
    if base_kind == "checkpoint" and checkpoint is not None:
        reasoning_tokens = config.engineer.reasoning_tokens
        engineer: Engineer = LanguageModelEngineer(checkpoint, base_kind, reasoning_tokens)
    elif base_kind in ("checkpoint", "base", "model"):
        weights = _get_weights(base_kind, config, directory, results)
        engineer = run_on_first_process(
            _make_language_model_engineer(base_kind, config, weights, model_server)
        )
    elif base_kind == "endpoint":
        engineer = run_on_first_process(make_endpoint_engineer(config.engineer))
    elif is_code_name(base_kind):
        engineer = run_on_first_process(import_engineer(base_kind))
    else:
        initial, stages = config.environment.initial, config.stages.count
        engineer = scripted_engineer(
            base_kind, RunSettings(get_domain(config).space, initial, stages, config.seed)
        )
    return control(engineer) if control else engineer


def make_endpoint_engineer(settings: EngineerConfig) -> Engineer:
    """Return the engineer that sends requests to `engineer.base_url`; see `make_engineer`."""
    if not settings.base_url or not settings.model:
        raise EngineerError("engineer.base_url and engineer.model must be set for kind endpoint")
    from engineer.engineers.endpoint import ChatClient, EndpointEngineer  # imports openai

    return EndpointEngineer(
        ChatClient(
            settings.base_url,
            settings.model,
            api_key_env=settings.api_key_env,
            timeout=settings.timeout_seconds,
        ),
        max_tokens=settings.max_tokens,
        note_tokens=settings.token_limit(False),
        temperature=settings.temperature,
        reasoning_tokens=settings.reasoning_tokens,
        request=settings.request,
    )


def _make_language_model_engineer(
    kind: str, config: RunConfig, weights: str, model_server: ModelServer
) -> LanguageModelEngineer:
    """Return an engineer with weights that vLLM loads; policies get their training prompts."""
    is_policy = kind != "model"
    chat = config.prompt.chat if is_policy else None
    always_thinks = config.prompt.thinking and is_policy

    def generate(request: TextRequest) -> GeneratedText:
        thinking = request.thinking or always_thinks
        return model_server.ask(weights, replace(request, thinking=thinking), chat=chat)

    name = kind if is_policy else weights
    return LanguageModelEngineer(generate, name, config.engineer.reasoning_tokens)


def _get_weights(
    kind: str, config: RunConfig, directory: RunDirectory, results: Sequence[StageResult]
) -> str:
    """Return the hub name or folder of a model."""
    settings = config.engineer
    if kind == "model":
        if not settings.model:
            raise EngineerError("engineer.model must be set for kind model")
        return settings.model
    if kind == "base":
        return config.model.pretrained or str(directory.initial_policy)
    return str(directory.stage(get_reference_stage(results, len(results))).policy)


def make_checkpoint_generator(
    policy: Policy, sampler: Sampler, settings: EngineerConfig
) -> GenerateText:
    """Return a function that generates with the policy in a run's engine."""

    def generate(request: TextRequest) -> GeneratedText:
        prompt = policy.encode_prompt(
            request.prompt, thinking=request.thinking, reasoning=request.reasoning
        )
        try:
            sampling_request = SamplingRequest(
                prompts=[prompt],
                n=1,
                temperature=settings.temperature,
                max_tokens=request.max_tokens or settings.token_limit(request.form is not None),
                stop_token_ids=policy.stop_ids,
                seed=request.seed,
                form=request.form,
            )
            ((completion,),) = sampler.sample(sampling_request)
        except PromptTooLongError as error:
            raise EngineerError(f"{error}; engineer.max_context_tokens cuts prompts") from error
        # Constrained answers contain the configuration only, so they have no reasoning.
        text = policy.decode(completion.token_ids, prompt if request.form is None else ())
        return GeneratedText(text, len(completion.token_ids))

    return generate


def run_on_first_process(engineer: Engineer) -> Engineer:
    """Return an engineer that only process 0 calls; the other processes get its answers."""
    if is_single_process():
        return engineer
    return (
        _FirstProcessNoteWriter(engineer)
        if isinstance(engineer, NoteWriter)
        else _FirstProcessEngineer(engineer)
    )


@dataclass(frozen=True)
class _FirstProcessEngineer:
    inner: Engineer

    @property
    def name(self) -> str:
        return self.inner.name

    def propose(self, task: Task) -> Proposal:
        return _share_proposal(lambda: self.inner.propose(task))


class _FirstProcessNoteWriter(_FirstProcessEngineer):
    def write(self, prompt: str, seed: int) -> Proposal:
        assert isinstance(self.inner, NoteWriter)
        writer: NoteWriter = self.inner
        return _share_proposal(lambda: writer.write(prompt, seed))


def _share_proposal(propose: Callable[[], Proposal]) -> Proposal:
    def propose_as_json() -> dict[str, Any]:
        try:
            return {"proposal": asdict(propose())}
        except EngineerError as error:
            return {"error": str(error), "spent": error.spent.model_dump()}

    result = call_in_first("the answer of an engineer", propose_as_json)
    if "error" in result:
        raise EngineerError(result["error"], Costs(**result["spent"]))
    return Proposal(**result["proposal"])
