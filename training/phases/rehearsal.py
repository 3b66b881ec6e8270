"""Rehearsal: imitation of the rule engineer's edits during training on boards."""

import numpy as np

from engineer.synthetic import (
    DesignExample,
    make_contrasting_context,
    make_design_example,
    make_synthetic_contexts,
)
from training.environments.catalogue import get_domain
from training.learner.batching import Sequences, pad_sequences, round_up
from training.learner.imitation import LENGTH_STEP
from training.run.active_run import ActiveRun
from training.schema import RunConfig

EXAMPLES = 8192
"""Number of contexts from which the batches of a run are drawn."""


def make_design_examples(config: RunConfig, count: int) -> list[DesignExample]:
    """Return compact contexts of simulated runs with the rule's edits.

    A context is followed by its contrasting context, if it has one.
    """
    rng = np.random.default_rng(config.seed)
    domain = get_domain(config)
    examples: list[DesignExample] = []
    while len(examples) < count:
        contexts = make_synthetic_contexts(rng, domain, stages=config.stages.count)
        for context in contexts:
            examples.append(make_design_example(context, domain))
            contrasting_readout = make_contrasting_context(rng, context, contexts, domain)
            if contrasting_readout is not None:
                examples.append(make_design_example(contrasting_readout, domain))
    return examples[:count]


class Rehearsal:
    """Deterministic batches of designs to imitate, by update."""

    def __init__(self, run: ActiveRun, num_contexts: int) -> None:
        """Draw and encode the examples of a run; each update gets `num_contexts` of them."""
        self._run = run
        self._contexts = num_contexts
        self._examples = run.policy.encode_examples(make_design_examples(run.config, EXAMPLES))
        self._length = max(len(prompt) + len(answer) for prompt, answer in self._examples)

    def batch(self, stream: str, stage: int, update: int) -> Sequences:
        """Return the B designs of an update, all padded to the length of the longest example."""
        rng = np.random.default_rng(self._run.seed(stream, stage, update))
        rows = rng.choice(len(self._examples), size=self._contexts, replace=False)
        prompts, answers = zip(*(self._examples[row] for row in rows), strict=True)
        bucket = round_up(self._length, LENGTH_STEP)
        return pad_sequences(prompts, answers, bucket=bucket, pad_id=self._run.policy.pad_id)


def count_rehearsed_designs(config: RunConfig, instances: int) -> int:
    """Return the number of designs that a stage with `instances` boards rehearses."""
    if config.rehearsal is None:
        return 0
    return instances // config.grpo.prompts_per_update * config.rehearsal.contexts
