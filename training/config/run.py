"""`RunConfig`: everything that decides a run, and what must hold between its sections."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from engineer import Domain, lake_domain
from jaxlake import infeasibility
from training.config.engineer import EngineerChoice
from training.config.sections import (
    Environment,
    Grpo,
    Model,
    Prompt,
    Reward,
    Rounds,
    Sampling,
    Section,
    Validation,
    WarmStart,
)


class RunConfig(Section):
    """Everything that decides a run. Two runs of one `RunConfig` on one machine are equal."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    model: Model = Model()
    environment: Environment
    prompt: Prompt = Prompt()
    sampling: Sampling = Sampling()
    warm_start: WarmStart | None = Field(None, description="null: start from the model as it is")
    stages: Rounds = Rounds()
    grpo: Grpo = Grpo()
    reward: Reward = Reward()
    validation: Validation
    engineer: EngineerChoice = EngineerChoice()

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        sizes = set(self.environment.bounds.sizes)
        if set(self.environment.initial.sizes) != sizes:
            raise ValueError(
                f"environment.initial.sizes: has {sorted(self.environment.initial.sizes)}, "
                f"environment.bounds.sizes has {sorted(sizes)}: they must be the same"
            )
        bounds, initial = self.environment.bounds, self.environment.initial
        if problem := bounds.violation(initial) or bounds.off_grid(initial):
            raise ValueError(f"environment.initial.sizes: {problem}")
        if self.warm_start is None and self.model.pretrained is None:
            raise ValueError("warm_start: a model made from scratch needs one; null is not allowed")
        requests = [
            ("environment.initial.sizes", size, knobs.hole_ratio)
            for size, knobs in self.environment.initial.sizes.items()
        ] + [
            ("validation", size, holes)
            for size in self.validation.sizes
            for holes in self.validation.hole_ratios
        ]
        for where, size, holes in requests:
            if reason := infeasibility(size, holes, self.environment.num_agents):
                raise ValueError(f"{where}: {reason}")
        batch = self.grpo.prompts_per_update * self.grpo.completions
        step = self.grpo.minibatches * self.grpo.micro_batch_size
        if batch % step:
            raise ValueError(
                f"grpo.micro_batch_size: {batch} completions an update do not divide into "
                f"{self.grpo.minibatches} minibatches of micro-batches of "
                f"{self.grpo.micro_batch_size}"
            )
        for name, rows in (
            ("grpo.micro_batch_size", self.grpo.micro_batch_size),
            ("sampling.sync_sequences", self.sampling.sync_sequences),
        ):
            if rows % self.model.mesh.fsdp:
                raise ValueError(
                    f"{name}: got {rows}, allowed are multiples of model.mesh.fsdp = "
                    f"{self.model.mesh.fsdp}, whose devices share the rows"
                )
        context, room = self.engineer.max_context_tokens, self._room_for_context
        if room is not None and room < 1:
            raise ValueError(
                f"engineer.max_tokens: got {self.engineer.max_tokens}, allowed is less than "
                f"sampling.max_model_len = {self.sampling.max_model_len}, which has to hold the "
                "prompt as well"
            )
        if context is not None and room is not None and context > room:
            raise ValueError(
                f"engineer.max_context_tokens: got {context}, allowed is at most {room}: "
                "sampling.max_model_len less engineer.max_tokens"
            )
        if self.stages.instances < self.grpo.prompts_per_update:
            raise ValueError(
                f"stages.instances: got {self.stages.instances}, allowed is at least "
                f"grpo.prompts_per_update = {self.grpo.prompts_per_update}"
            )
        return self

    @property
    def _room_for_context(self) -> int | None:
        """Tokens of a prompt that leave room for the answer; None: only others are asked."""
        if not set(self.engineer.asked) & {"checkpoint", "stale", "base", "model"}:
            return None
        return self.sampling.max_model_len - self.engineer.max_tokens

    @property
    def domain(self) -> Domain:
        """The lake within this run's bounds, as its engineer sees it."""
        return lake_domain(self.environment.bounds, self.environment.num_agents)

    @property
    def updates_per_round(self) -> int:
        """GRPO updates in a round; a remainder smaller than a batch of prompts is not used."""
        return self.stages.instances // self.grpo.prompts_per_update
