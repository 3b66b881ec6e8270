"""The sections `environment` and `validation` for environments other than the lake."""

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import (
    Field,
    InstanceOf,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from engineer import KnobConfiguration, KnobSpace
from jaxlake.user_code import import_code, is_code_name
from training.errors import did_you_mean, format_validation_errors, shorten
from training.schema.section import PositiveFraction, Section
from training.user_environment import UserEnvironment

LAKE = "lake"
ALLOWED = f"{LAKE} and package.module:NAME of a UserEnvironment"


def environment_class(kind: object) -> type[UserEnvironment[Any]]:
    """Import the subclass of `UserEnvironment` that `kind` names; raise `ValueError` if invalid."""
    if not is_code_name(kind):
        suggestion = did_you_mean(kind, [LAKE])
        raise ValueError(f"kind must be one of {ALLOWED}, got {shorten(kind)}{suggestion}")
    try:
        candidate = import_code(kind, ALLOWED)
    except ValueError as error:
        raise ValueError(f"kind: {error}") from error
    if not (inspect.isclass(candidate) and issubclass(candidate, UserEnvironment)):
        raise ValueError(f"kind: {kind} must be a subclass of UserEnvironment")
    if missing_methods := sorted(getattr(candidate, "__abstractmethods__", ())):
        raise ValueError(f"kind: {kind} must implement {', '.join(missing_methods)}")
    return candidate


def make_environment(kind: object, settings: object) -> UserEnvironment[Any]:
    """Return the environment with these settings; raise a `ValueError` if they are invalid."""
    environment_type = environment_class(kind)
    if isinstance(settings, environment_type):
        return settings
    try:
        return environment_type.model_validate(settings)
    except ValidationError as error:
        allowed = ", ".join(environment_type.model_fields) or "none"
        problems = format_validation_errors(
            error, lambda location: allowed if len(location) == 1 else "others"
        )
        raise ValueError("; ".join(f"settings.{problem}" for problem in problems)) from error


class UserEnvironmentConfig(Section):
    """A user-defined environment, its settings and its initial configuration."""

    kind: str = Field(description="package.module:NAME of a subclass of UserEnvironment")
    settings: SerializeAsAny[InstanceOf[UserEnvironment]] = Field(
        description="fields of the class and their values"
    )
    initial: KnobConfiguration = Field(
        description="configuration of the first stage: groups and their knobs"
    )

    @model_validator(mode="before")
    @classmethod
    def _validate_settings(cls, tree: Any) -> Any:
        if isinstance(tree, Mapping):
            # Check `kind` first: without its class, no key can be reported as unknown.
            environment_class(tree.get("kind"))
        _require_known_keys(tree, cls)
        environment = make_environment(tree.get("kind"), tree.get("settings") or {})
        try:
            space = environment.space
        except ValidationError as error:  # such as a share too large for the number of groups
            problems = "; ".join(format_validation_errors(error))
            raise ValueError(f"settings: they define no valid space: {problems}") from error
        initial = read_configuration("initial", tree.get("initial"), space)
        return {"kind": tree["kind"], "settings": environment, "initial": initial}


class UserValidationConfig(Section):
    """The fixed validation set of a user-defined environment."""

    configuration: KnobConfiguration = Field(
        description="configuration to draw from, as in environment.initial; may exceed the bounds"
    )
    instances: PositiveInt = Field(400, description="size of the set")
    seed: int = Field(1, ge=0, lt=2**31, description="seed of the set")
    temperature: NonNegativeFloat = Field(
        0.0, description="sampling temperature of the answers; 0: greedy"
    )
    top_p: PositiveFraction = Field(
        1.0, description="sample from the likeliest tokens of this total probability"
    )
    top_k: NonNegativeInt = Field(
        0, description="sample from this many likeliest tokens; 0: from all"
    )

    @classmethod
    def read(cls, tree: Any, space: KnobSpace) -> "UserValidationConfig":
        """Read the section for a space; raise a `ValueError` if it is invalid."""
        if isinstance(tree, cls):
            return tree
        _require_known_keys(tree, cls)
        configuration = read_configuration("configuration", tree.get("configuration"), space)
        return cls.model_validate({**tree, "configuration": configuration})


def read_configuration(key: str, tree: Any, space: KnobSpace) -> KnobConfiguration:
    """Read a configuration and order its groups and knobs as in the space.

    `key` names the section in error messages. A configuration is returned unchanged.

    Raises:
        ValueError: Groups or knobs are missing or unknown, or a value is not allowed.
    """
    if isinstance(tree, KnobConfiguration):
        return tree
    if not isinstance(tree, Mapping) or not isinstance(groups := tree.get("groups"), Mapping):
        raise ValueError(f"{key} must be a mapping with groups, got {shorten(tree)}")
    if extra_keys := sorted(map(str, set(tree) - {"groups", "share"})):
        raise ValueError(f"{key} must have no keys but groups and share, got {shorten(extra_keys)}")
    if (share := tree.get("share", space.share)) != space.share:
        raise ValueError(f"{key}.share is {shorten(share)}; it must be {space.share}")
    knobs_by_group = {str(group): knobs for group, knobs in groups.items()}
    _require_names(f"{key}.groups", knobs_by_group, space.groups)
    for group, knobs in knobs_by_group.items():
        _require_names(f"{key}.groups.{group}", knobs, space.knobs)
    ordered_knobs = {
        group: {knob: knobs_by_group[group][knob] for knob in space.knobs} for group in space.groups
    }
    try:
        return KnobConfiguration(share=space.share, groups=ordered_knobs)
    except ValidationError as error:
        problems = format_validation_errors(error)
        raise ValueError("; ".join(f"{key}.{problem}" for problem in problems)) from error


def _require_names(key: str, mapping: Any, names: tuple[str, ...]) -> None:
    if not isinstance(mapping, Mapping) or set(mapping) != set(names):
        got = ", ".join(map(str, mapping)) if isinstance(mapping, Mapping) else shorten(mapping)
        raise ValueError(f"{key} must be {', '.join(names)}, got {got or 'none'}")


def _require_known_keys(tree: Any, section: type[Section]) -> None:
    allowed = ", ".join(section.model_fields)
    if not isinstance(tree, Mapping):
        raise ValueError(f"must be a mapping of {allowed}, got {shorten(tree)}")
    if extra_keys := [str(key) for key in tree if key not in section.model_fields]:
        raise ValueError(f"{', '.join(extra_keys)}: unknown key; the keys are {allowed}")
