"""A second environment for tests, with topics as groups and two knobs besides the share."""

from typing import ClassVar

from engineer import Configuration, Domain, KnobSpace, Label
from engineer.space import KnobValues, Ratio


class WordConfiguration(Configuration):
    """Knobs by topic."""

    topics: dict[str, dict[str, float]]

    def values(self) -> KnobValues:
        return {topic: dict(knobs) for topic, knobs in self.topics.items()}


class WordSpace(KnobSpace):
    """Two topics whose names contain regular-expression characters."""

    max_length: Ratio = 0.8
    max_noise: Ratio = 0.4

    group_label: ClassVar[str] = "topic"
    knobs: ClassVar[tuple[str, ...]] = ("portion", "length", "noise")

    @property
    def groups(self) -> tuple[str, ...]:
        return ("a.b", "c+")

    def maximum(self, knob: str) -> float:
        return {"length": self.max_length, "noise": self.max_noise}[knob]

    def make(self, values: KnobValues) -> WordConfiguration:
        return WordConfiguration(topics=values)


SPACE = WordSpace()
DOMAIN = Domain(
    name="words",
    space=SPACE,
    opening="You choose the topics.",
    guideline=("Choose well.",),
    failures=(Label("typo", "misspelt word", "typo"),),
)
CURRENT = WordConfiguration(
    topics={
        "a.b": {"portion": 0.5, "length": 0.2, "noise": 0.1},
        "c+": {"portion": 0.5, "length": 0.8, "noise": 0.0},
    }
)
