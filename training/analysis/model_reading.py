"""How a model, or the policy of a run, reads compact contexts; nothing is trained."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from engineer.lake import Bounds, lake_domain
from engineer.scoring.reading import Reading, ReadingSet, measure_reading, reading_set
from training.analysis.counterfactual import results_until
from training.environments.catalogue import domain_of
from training.errors import UserError
from training.phases.reading import SEED, EngineReader, real_contexts
from training.phases.stage_results import read_stage_results, reference_of
from training.policy.huggingface import read_config, resolve
from training.policy.policy import open_policy
from training.run.directory import RunDirectory
from training.run.progress import status_console
from training.sampling.engines import start_sampler
from training.schema import Model, Prompt, Sampling

SIZES = (3, 4, 5, 6)
"""The map sizes that the contexts speak of where no run says which."""
MAX_TOKENS = 128
"""The longest answer where no run says how long it may be, tokens."""


def read_model(model: str, count: int) -> Reading:
    """Measure a model folder (or hub name) on `count` simulated contexts."""
    folder = resolve(model)
    longest = min(Sampling().max_model_len, read_config(folder).max_position_embeddings)
    contexts = reading_set(lake_domain(Bounds(sizes=SIZES)), count, SEED)
    settings = _Settings(Model(), Prompt(), Sampling(max_model_len=longest), MAX_TOKENS)
    return _measure(folder, contexts, settings)


def read_run(path: Path, stage: int | None, count: int) -> Reading:
    """Measure the weights in force after a stage of a run (None: the last that was validated).

    They are those of the stage's folder `policy`. What a run then learns about designs
    (`engineer.learning`) is not in them; standard error says so.
    """
    directory = RunDirectory(path)
    config = directory.config()
    if stage is None:
        stage = len(read_stage_results(directory, config)) - 1
    results = results_until(directory, config, stage)
    folder = directory.stage(reference_of(results, len(results))).policy
    if not folder.is_dir():
        raise UserError(f"{folder}: is not there; was the stage finished?")
    if directory.stage(stage).design_learning.exists():
        status_console.print(
            f"{folder}: is the policy before it learned to design (engineer.learning); the run "
            "designed, and measured its reading.json, with that after it.",
            style="yellow",
            soft_wrap=True,
        )
    contexts = reading_set(domain_of(config), count, SEED, real_contexts(config, results))
    settings = _Settings(config.model, config.prompt, config.sampling, config.engineer.max_tokens)
    return _measure(folder, contexts, settings)


class _Settings(NamedTuple):
    model: Model
    prompt: Prompt
    sampling: Sampling
    max_tokens: int


def _measure(folder: Path, contexts: ReadingSet, settings: _Settings) -> Reading:
    policy, params = open_policy(folder, settings.model, settings.prompt, length_bucket=64)
    with tempfile.TemporaryDirectory() as scratch:
        sampler = start_sampler(policy, params, settings.sampling, Path(scratch) / "engine")
        del params  # the engine has weights of its own
        reading = measure_reading(contexts, EngineReader(policy, sampler, settings.max_tokens))
        sampler.close()
    return reading
