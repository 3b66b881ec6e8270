"""The costs of a stage and its engineer."""

from typing import Annotated

from pydantic import Field

from engineer.space import FrozenModel

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Spent(FrozenModel):
    """Costs, which can be added: `a + b`."""

    training_instances: Count = 0
    rehearsed_designs: Count = 0  # contexts whose designs by the rule were imitated
    engineer_tokens: Count = 0
    """Tokens of the engineer; the limit if a server reports no number."""
    probe_rollouts: Count = 0  # answers drawn to measure instances, which are not trained on
    seconds: Seconds = 0.0  # wall-clock time of the design phases

    def __add__(self, other: "Spent") -> "Spent":
        sums = {name: value + getattr(other, name) for name, value in self}
        return Spent(**sums)
