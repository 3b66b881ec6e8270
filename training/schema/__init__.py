"""The schema of `configs/*.yaml`: one frozen `RunConfig` decides a run.

`sections.py` and `engineer_section.py` hold its sections, `run_config.py` puts them together and
checks what must hold between them, `loading.py` reads and writes YAML files.
"""

from training.schema.engineer_section import (
    ATLAS,
    ORACLE,
    AtlasChoice,
    EngineerChoice,
    OracleChoice,
    Picking,
    known_engineer,
)
from training.schema.loading import dump, load, load_as, parse_yaml, read_yaml
from training.schema.run_config import RunConfig
from training.schema.sections import (
    Grpo,
    Lora,
    Model,
    Positive,
    Prompt,
    Rehearsal,
    Reward,
    Sampling,
    Section,
    Servers,
    Tracking,
    WarmStart,
)

__all__ = [
    "ATLAS",
    "ORACLE",
    "AtlasChoice",
    "EngineerChoice",
    "Grpo",
    "Lora",
    "Model",
    "OracleChoice",
    "Picking",
    "Positive",
    "Prompt",
    "Rehearsal",
    "Reward",
    "RunConfig",
    "Sampling",
    "Section",
    "Servers",
    "Tracking",
    "WarmStart",
    "dump",
    "known_engineer",
    "load",
    "load_as",
    "parse_yaml",
    "read_yaml",
]
