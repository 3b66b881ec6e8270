"""The base class of all configuration sections, and the number types of their keys."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from training.errors import shorten

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
NumAgents = Annotated[int, Field(ge=2, le=5)]
PositiveFraction = Annotated[float, Field(gt=0.0, le=1.0)]
Precision = Literal["float32", "bfloat16"]


class Section(BaseModel):
    """A part of the configuration: frozen, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _require_numbers(cls, tree: Any) -> Any:
        """Reject booleans and non-ASCII digits as numbers."""
        if isinstance(tree, Mapping):
            for name in _find_number_keys(cls) & {key for key in tree if isinstance(key, str)}:
                for value in _iterate_leaves(tree[name]):
                    if isinstance(value, bool) or (isinstance(value, str) and not value.isascii()):
                        raise ValueError(f"{name} must be a number, got {shorten(value)}")
        return tree


@cache
def _find_number_keys(section: type[Section]) -> frozenset[str]:
    """Return the keys whose values are numbers or sequences of numbers."""
    fields = section.model_fields.items()
    all_types = {name: set(_find_types(field.annotation)) - {type(None)} for name, field in fields}
    return frozenset(name for name, types in all_types.items() if types and types <= {int, float})


def _find_types(annotation: Any) -> Iterator[Any]:
    """Yield the plain types in an annotation."""
    if annotation in (Ellipsis, tuple):
        return
    arguments = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        arguments = arguments[:1]
    if not arguments:
        yield annotation
    for argument in arguments:
        yield from _find_types(argument)


def _iterate_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _iterate_leaves(item)
    else:
        yield value
