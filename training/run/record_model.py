"""What all records of a run's files have in common: frozen models, and their bounded numbers."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
# So far within the range of floats that means over updates are finite.
Bounded = Annotated[float, Field(ge=-1e9, le=1e9)]
Rate = Annotated[float, Field(ge=0.0, le=1.0)]
Reward = Annotated[float, Field(ge=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Seconds = NonNegative


R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """What one file, or one line of it, holds: frozen, and strict about names and numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _without_missing(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is None and may be missing."""
        fields = type(self).model_fields
        plain: dict[str, Any] = dump(self)
        return {
            name: value
            for name, value in plain.items()
            if value is not None or fields[name].default is not None
        }


def six_digits(value: Any) -> float:
    """Round a number to six significant digits, as files hold what was computed in float32."""
    return float(f"{float(value):.6g}")
