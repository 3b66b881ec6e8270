"""Column addition for `jaxlake run`: a small language model learns it, stage by stage.

`jaxlake run examples/column_addition/trainee.yaml` trains it;
docs/tutorials/column_addition.md explains it.
"""

from collections.abc import Sequence

from engineer import Configuration, Domain
from examples.column_addition.engineer_side import addition_domain
from examples.column_addition.environment import AdditionSpace, Sum, check_answer, draw_sums
from training.environments import Score, UserEnvironment


class ColumnAddition(UserEnvironment[Sum]):
    """Sums of two numbers with equally many digits; the fields define the space."""

    digits: tuple[int, ...] = (1, 2, 3)
    max_carry_ratio: float = 1.0
    min_share: float = 0.1
    step: float = 0.1

    @property
    def space(self) -> AdditionSpace:
        """The knob space of the digit counts and carry ratios."""
        return AdditionSpace(**self.model_dump())

    def domain(self, instances: int, held_out: Sequence[Sum]) -> Domain:
        """Return the domain of column addition."""
        return addition_domain(self.space, instances, held_out)

    def draw(
        self, configuration: Configuration, count: int, seed: int, held_out: Sequence[Sum]
    ) -> Sequence[Sum]:
        """Draw different sums."""
        return draw_sums(configuration, count, seed, held_out)

    def group(self, instance: Sum) -> str:
        """Return the number of digits."""
        return str(instance.num_digits)

    def prompt(self, instance: Sum) -> str:
        """Return the columns from the lowest up, one token per digit: `7+5 4+8 =`."""
        columns = zip(str(instance.first)[::-1], str(instance.second)[::-1], strict=True)
        return f"{' '.join(f'{first}+{second}' for first, second in columns)} =\n"

    def score(self, instance: Sum, text: str) -> Score:
        """Return reward 1 for the right answer and 0 for any other."""
        failure, column = check_answer(instance, text.replace(" ", "")[::-1])
        valid = failure is None
        return Score(
            reward=float(valid),
            valid=valid,
            failure=failure,
            failure_position=column,
            parsed=failure != "parse_error",
        )

    def demonstration(self, instance: Sum) -> str:
        """Return the digits of the total from the lowest up, in the order of computation."""
        return " ".join(str(instance.total)[::-1])

    def factor_levels(self, instance: Sum) -> dict[str, str]:
        """Return whether the sum carries, as a slice."""
        return {"carries": "carry" if instance.carries else "no carry"}

    def statistics(self, instances: Sequence[Sum]) -> dict[str, float]:
        """Return the share of sums that carry."""
        return {"carry": sum(problem.carries for problem in instances) / len(instances)}

    def lines(self, instance: Sum) -> tuple[str, ...]:
        """Return the question in the usual notation."""
        return (instance.question,)
