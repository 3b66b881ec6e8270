"""The costs of a stage and of its engineer."""

from typing import Annotated

from pydantic import Field

from engineer.space import FrozenModel

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Costs(FrozenModel):
    """Costs in instances, tokens, answers and time; `a + b` adds them."""

    training_instances: Count = 0
    rehearsed_designs: Count = 0  # contexts on which the policy imitated the rule's edits
    engineer_tokens: Count = 0
    """Generated tokens of the engineer; the token limit if a server reports no number."""
    probe_rollouts: Count = 0  # answers that only measure instances and are not trained on
    seconds: Seconds = 0.0  # wall-clock time of the design phases

    def __add__(self, other: "Costs") -> "Costs":
        sums = {name: value + getattr(other, name) for name, value in self}
        return Costs(**sums)
