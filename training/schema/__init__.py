"""The schema of `configs/*.yaml`: one frozen `RunConfig` defines a run."""

from jaxlake.yaml_files import parse_yaml, read_yaml
from training.schema.engineer_section import (
    AtlasConfig,
    EngineerConfig,
    PickingConfig,
    check_engineer_kind,
)
from training.schema.lake_sections import PromptConfig
from training.schema.learning_sections import (
    GrpoConfig,
    RehearsalConfig,
    RewardConfig,
    WarmStartConfig,
)
from training.schema.loading import dump, load, load_config
from training.schema.model_sections import LoraConfig, ModelConfig
from training.schema.run_config import RunConfig, StartedFrom, TrackingConfig
from training.schema.sampling_sections import SamplingConfig, ServerConfig
from training.schema.section import Section

__all__ = ["AtlasConfig", "EngineerConfig", "GrpoConfig", "LoraConfig", "ModelConfig"]
__all__ += ["PickingConfig", "PromptConfig", "RehearsalConfig", "RewardConfig", "RunConfig"]
__all__ += ["SamplingConfig", "Section", "ServerConfig", "StartedFrom", "TrackingConfig"]
__all__ += ["WarmStartConfig", "check_engineer_kind", "dump", "load", "load_config"]
__all__ += ["parse_yaml", "read_yaml"]
