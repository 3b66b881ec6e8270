"""Construction of engineers outside a run: a user's class, an endpoint, or a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

from engineer import Engineer, LanguageModelEngineer
from engineer.engineers.language_model import GeneratedText, GenerateText, TextRequest
from training.phases.engineer_factory import make_checkpoint_generator, make_endpoint_engineer
from training.sampling.model_server import ModelServer
from training.schema import EngineerConfig, ModelConfig, PromptConfig, SamplingConfig
from training.schema.engineer_section import check_engineer, import_engineer

CONTEXT_TOKENS = 8192
"""Maximum total length of a model's prompt and answer, in tokens."""


@contextmanager
def open_engineer(
    name: str, settings: EngineerConfig, sampler: Literal["jax", "vllm"]
) -> Iterator[Engineer]:
    """Yield an engineer, and stop its processes when the block ends.

    The kind is `module:CLASS`, `endpoint` or `model`, which `sampler` runs.
    """
    check_engineer(settings, sampler)
    if settings.kind == "endpoint":
        yield make_endpoint_engineer(settings)
    elif settings.kind != "model":
        yield import_engineer(settings.kind)
    elif sampler == "jax":
        yield LanguageModelEngineer(_make_generator(name, settings), name)
    else:
        with ModelServer(SamplingConfig(max_model_len=CONTEXT_TOKENS), settings) as model_server:

            def generate(request: TextRequest) -> GeneratedText:
                return model_server.ask(name, request)

            yield LanguageModelEngineer(generate, name)


def _make_generator(name: str, settings: EngineerConfig) -> GenerateText:
    """Return a function that generates with the decoder of the trainee, without vLLM."""
    from training.policy import huggingface
    from training.policy.policy import load_policy
    from training.sampling.jax_sampler import JaxSampler

    folder = huggingface.resolve_model(name)
    policy, params = load_policy(
        folder, ModelConfig(pretrained=name), PromptConfig(), length_bucket=32
    )
    chat = settings.style == "full" and bool(policy.tokenizer.chat_template)
    policy = replace(policy, prompt=PromptConfig(chat=chat))
    sampling = SamplingConfig(engine="jax", max_model_len=CONTEXT_TOKENS)
    return make_checkpoint_generator(policy, JaxSampler(policy, params, sampling), settings)
