"""What all sections of a configuration are, and the kinds of numbers that their keys take."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Agents = Annotated[int, Field(ge=2, le=5)]
Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Precision = Literal["float32", "bfloat16"]


class Section(BaseModel):
    """A part of the configuration: frozen, and strict about names it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    left_out_if_default: ClassVar[frozenset[str]] = frozenset()
    """Keys that are not written where they have their default, so that older files are equal."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = dump(self)
        for name in self.left_out_if_default:
            default = type(self).model_fields[name].get_default(call_default_factory=True)
            if name in plain and getattr(self, name) == default:
                del plain[name]
        return plain
