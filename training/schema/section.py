"""What all sections of a configuration are, and the kinds of numbers that their keys take."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Agents = Annotated[int, Field(ge=2, le=5)]
Positive = Annotated[int, Field(gt=0)]
PositiveShare = Annotated[float, Field(gt=0.0, le=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Precision = Literal["float32", "bfloat16"]


class Section(BaseModel):
    """A part of the configuration: frozen, and strict about names it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
