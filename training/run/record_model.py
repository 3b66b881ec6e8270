"""The base class of all records in a run's files, and their number types."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
# The bounds keep means over updates finite.
Bounded = Annotated[float, Field(ge=-1e9, le=1e9)]
Rate = Annotated[float, Field(ge=0.0, le=1.0)]
Reward = Annotated[float, Field(ge=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Seconds = NonNegative

R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """The content of a file or of a line: immutable, without unknown keys or NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_serializer(mode="wrap")
    def _omit_default_none(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit fields with the value None if None is their default."""
        fields = type(self).model_fields
        content: dict[str, Any] = dump(self)
        return {
            name: value
            for name, value in content.items()
            if value is not None or fields[name].default is not None
        }


def six_digits(value: Any) -> float:
    """Round a number to six significant digits, about the precision of float32."""
    return float(f"{float(value):.6g}")
