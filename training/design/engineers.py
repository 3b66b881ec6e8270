"""The engineer that a name stands for, in a run or put before one of its stages later."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from engineer import EndpointEngineer, Engineer, EngineerError, GeneratorEngineer, Guard
from engineer.engineers.catalogue import Setup, scripted
from engineer.engineers.controls import ShuffledEngineer
from engineer.engineers.generator import Generate, Generated
from engineer.engineers.oracle import OracleEngineer, Probe
from training.config import ORACLE, EngineerChoice, RunConfig
from training.errors import UserError
from training.policy import Policy
from training.run.directory import RunDirectory
from training.run.records import reference_of
from training.sampling.elsewhere import OtherModels, Question
from training.sampling.vllm_sampler import PromptTooLongError, VllmSampler


def engineer_for(
    config: RunConfig,
    directory: RunDirectory,
    stage: int,
    models: OtherModels,
    *,
    kind: str | None = None,
    checkpoint: Generate | None = None,
    probe: Probe | None = None,
    probe_rollouts: int = 0,
    guard: Guard | None = None,
) -> Engineer:
    """The engineer of the Design phase after `stage`.

    Args:
        config: says how it is asked.
        directory: holds the weights of models that are not at hand.
        stage: the stage whose evidence it will read.
        models: loads the weights that are not at hand; open for as long as the engineer is asked.
        kind: a name as in `engineer.kind`; None: the configuration's own.
        checkpoint: generates with the stage's weights; None: they are loaded from the directory.
        probe: tries a configuration out from the weights in force; None: it can't be done.
        probe_rollouts: the most answers that one probe draws.
        guard: what the oracle's candidates are held to before they are tried out.

    Raises:
        EngineerError: the configuration lacks what the name needs. Weights that are not there are
            found out when the engineer is asked.
    """
    kind = kind or config.engineer.kind

    def one(name: str) -> Engineer:
        control, _, inner = name.rpartition(":")
        engineer = _plain(inner, config, directory, stage, models, checkpoint)
        return ShuffledEngineer(engineer) if control else engineer

    if kind != ORACLE:
        return one(kind)
    if probe is None:
        raise EngineerError("oracle: it trains to choose, which only a run in progress can")
    choice = config.engineer.oracle
    candidates = tuple(one(name) for name in choice.candidates)
    return OracleEngineer(candidates, probe, choice.max_probes, probe_rollouts, guard)


def check_key(choice: EngineerChoice) -> None:
    """See to it, before anything is trained, that an endpoint's key is there.

    Raises:
        UserError: its environment variable is not set, or empty.
    """
    name = choice.api_key_env
    if "endpoint" in choice.asked and name and not os.environ.get(name, "").strip():
        raise UserError(
            f"engineer.api_key_env: the environment variable {name} is not set, or empty; it must "
            "hold the endpoint's key (null: it takes none)"
        )


def _plain(
    kind: str,
    config: RunConfig,
    directory: RunDirectory,
    stage: int,
    models: OtherModels,
    checkpoint: Generate | None,
) -> Engineer:
    choice = config.engineer
    if kind == "endpoint":
        if not choice.base_url or not choice.model:
            raise EngineerError("endpoint: engineer.base_url and engineer.model are not set")
        return _endpoint(choice, choice.base_url, choice.model)
    if kind == "checkpoint" and checkpoint is not None:
        return GeneratorEngineer(checkpoint, name=kind)
    if kind in ("checkpoint", "stale", "base", "model"):
        weights = _weights(kind, config, directory, stage)
        other = kind == "model"
        generate = _OtherModel(
            models,
            weights,
            chat=None if other else config.prompt.chat,
            thinking=config.prompt.thinking and not other,
        )
        return GeneratorEngineer(generate, name=weights if other else kind)
    return scripted(
        kind,
        Setup(
            space=config.environment.bounds,
            initial=config.environment.initial,
            stages=config.stages.rounds,
            seed=config.seed,
        ),
    )


@cache
def _endpoint(choice: EngineerChoice, base_url: str, model: str) -> EndpointEngineer:
    """One for all that ask through it in this process, so that together they keep its rate."""
    return EndpointEngineer(
        base_url,
        model,
        api_key_env=choice.api_key_env,
        timeout=choice.timeout_seconds,
        max_tokens=choice.max_tokens,
        note_tokens=choice.summary_tokens,
        temperature=choice.temperature,
        requests_per_minute=choice.requests_per_minute,
    )


def _weights(kind: str, config: RunConfig, directory: RunDirectory, stage: int) -> str:
    """The hub name or folder of a model."""
    choice = config.engineer
    if kind == "model":
        if not choice.model:
            raise EngineerError("model: engineer.model is not set")
        return choice.model
    if kind == "base":
        return config.model.pretrained or str(directory.path / "initial")
    stage = reference_of(directory, stage + 1)  # whose weights are in force after this one
    for _ in range(choice.lag if kind == "stale" else 0):
        stage = reference_of(directory, stage) if stage else 0
    return str(directory.stage(stage) / "policy")


@dataclass(frozen=True)
class CheckpointInUse:
    """The policy of a run in progress, as vLLM holds it."""

    policy: Policy
    sampler: VllmSampler
    choice: EngineerChoice

    def __call__(
        self, prompt: str, schema: dict[str, Any] | None, seed: int, most: int | None
    ) -> Generated:
        """Generate one text.

        Raises:
            EngineerError: the prompt leaves no room for the answer.
        """
        try:
            ((completion,),) = self.sampler.sample(
                [self.policy.encode_prompt(prompt)],
                n=1,
                temperature=self.choice.temperature,
                max_tokens=self.choice.most_tokens(schema is not None, most),
                stop_token_ids=self.policy.stop_ids,
                seed=seed,
                json_schema=schema,
            )
        except PromptTooLongError as error:
            raise EngineerError(f"{error}; engineer.max_context_tokens cuts prompts") from error
        return Generated(self.policy.decode(completion.token_ids), len(completion.token_ids))


@dataclass(frozen=True)
class _OtherModel:
    """Weights that are not the policy's in vLLM; what was the policy once is asked as it is."""

    models: OtherModels
    model: str
    chat: bool | None
    thinking: bool

    def __call__(
        self, prompt: str, schema: dict[str, Any] | None, seed: int, most: int | None
    ) -> Generated:
        """Generate one text."""
        question = Question(prompt, self.chat, self.thinking, seed, schema, most)
        return self.models.ask(self.model, question)
