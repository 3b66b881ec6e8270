"""The schema of `configs/*.yaml`: one frozen `RunConfig` defines a run."""

from jaxlake.yaml_files import parse_yaml, read_yaml
from training.schema.engineer_section import (
    AtlasChoice,
    EngineerChoice,
    Picking,
    check_engineer_kind,
)
from training.schema.lake_sections import Prompt
from training.schema.learning_sections import Grpo, Rehearsal, Reward, WarmStart
from training.schema.loading import dump, load, load_config
from training.schema.model_sections import Lora, Model
from training.schema.run_config import RunConfig, StartedFrom, Tracking
from training.schema.sampling_sections import Sampling, Server
from training.schema.section import Positive, Section

__all__ = ["AtlasChoice", "EngineerChoice", "Grpo", "Lora", "Model", "Picking", "Positive"]
__all__ += ["Prompt", "Rehearsal", "Reward", "RunConfig", "Sampling", "Section", "Server"]
__all__ += ["StartedFrom", "Tracking", "WarmStart", "check_engineer_kind", "dump", "load"]
__all__ += ["load_config", "parse_yaml", "read_yaml"]
