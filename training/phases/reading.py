"""Reading: a measurement of how well the policy understands compact contexts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engineer.scoring.reading import ReadingReport, make_reading_set, measure_reading
from training.environments.catalogue import get_domain
from training.phases.stage_results import StageResult
from training.policy.policy import Policy
from training.processes import call_in_first
from training.run.active_run import ActiveRun
from training.run.progress import console, show_status
from training.sampling.sampler import Sampler, SamplingRequest

SEED = 12
"""Seed of the simulated contexts, fixed so that all stages and runs are comparable."""


@dataclass(frozen=True)
class EngineModel:
    """Adapter of a policy in an engine for `measure_reading`."""

    policy: Policy
    sampler: Sampler
    max_tokens: int  # per answer

    def answers(self, contexts: Sequence[str]) -> list[str]:
        """Return greedy answers without constrained decoding."""
        request = SamplingRequest(
            prompts=[self.policy.encode_prompt(context) for context in contexts],
            n=1,
            temperature=0.0,
            max_tokens=self.max_tokens,
            stop_token_ids=self.policy.stop_ids,
            seed=0,
        )
        groups = self.sampler.sample(request)
        return [
            self.policy.decode(completion.token_ids, prompt)
            for prompt, (completion,) in zip(request.prompts, groups, strict=True)
        ]

    def answer_costs(self, contexts: Sequence[str], answers: Sequence[str]) -> list[float]:
        """Return the negative log-likelihood of each answer at temperature 1, in nats."""
        prompts = [self.policy.encode_prompt(context) for context in contexts]
        completions = [self.policy.encode_answer(answer) for answer in answers]
        scores = self.sampler.score(
            [[*prompt, *tokens] for prompt, tokens in zip(prompts, completions, strict=True)]
        )
        costs = [
            -float(np.sum(logprobs[len(prompt) :]))
            for prompt, logprobs in zip(prompts, scores, strict=True)
        ]
        # Engines of several processes may round differently, so all use the values of process 0.
        return list(call_in_first("the scores of a reading", lambda: costs))


def run_reading_phase(
    run: ActiveRun, sampler: Sampler, results: Sequence[StageResult]
) -> ReadingReport | None:
    """Measure how well the policy understands compact contexts, and write `reading.json`.

    The result is None if the measurement is disabled or the context is not compact.
    """
    settings, stage = run.config.engineer, results[-1].stage
    if not settings.reading or settings.style != "compact":
        return None
    file = run.directory.stage(stage).reading
    if file.exists():
        return file.read()
    with run.log_duration("reading", stage), show_status(f"stage {stage}: reading"):
        model = EngineModel(run.policy, sampler, settings.max_tokens)
        reading_set = make_reading_set(get_domain(run.config), settings.reading, SEED)
        reading = measure_reading(reading_set, model)
        sampler.drop_cache()  # as in a run that resumes here
        file.write(reading)
    console.print(f"stage {stage}: reading: {reading.sentence()}", soft_wrap=True)
    return reading
