"""The schema of `configs/*.yaml`: one frozen `RunConfig` decides a run.

`sections.py` and `engineer.py` are its sections, `run.py` puts them together, `files.py` reads and
writes YAML.
"""

from training.config.engineer import ORACLE, EngineerChoice, OracleChoice, known_engineer
from training.config.files import dump, load, read_yaml, shown
from training.config.run import RunConfig
from training.config.sections import (
    Grpo,
    Model,
    Positive,
    Prompt,
    Reward,
    Sampling,
    Section,
    WarmStart,
)

__all__ = [
    "ORACLE",
    "EngineerChoice",
    "Grpo",
    "Model",
    "OracleChoice",
    "Positive",
    "Prompt",
    "Reward",
    "RunConfig",
    "Sampling",
    "Section",
    "WarmStart",
    "dump",
    "known_engineer",
    "load",
    "read_yaml",
    "shown",
]
