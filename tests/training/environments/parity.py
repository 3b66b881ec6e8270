"""A minimal third environment, and copies that each violate one requirement."""

import random
from collections.abc import Sequence
from typing import Any, ClassVar

from engineer import Configuration, Domain, Factor, KnobSpace, Label
from engineer.space import apportion
from training.environments import Score, UserEnvironment


class BitSpace(KnobSpace):
    group_label: ClassVar[str] = "number of bits"
    knobs: ClassVar[tuple[str, ...]] = ("data_ratio", "odd_ratio")

    @property
    def groups(self) -> tuple[str, ...]:
        return ("8", "9")

    def maximum(self, knob: str) -> float:
        return 1.0


class Parity(UserEnvironment[str]):
    """Whether a word of bits has an odd number of ones."""

    min_share: float = 0.1

    @property
    def space(self) -> BitSpace:
        return BitSpace(min_share=self.min_share, step=0.1)

    def domain(self, instances: int, held_out: Sequence[str]) -> Domain:
        return Domain(
            name="parity",
            space=self.space,
            opening="You choose words of bits.",
            guideline=("Give most data to what is sometimes solved.",),
            failures=(
                Label("unreadable", "unreadable answer", "read"),
                Label("wrong", "wrong", "w"),
            ),
            instance="word",
            group_symbol="b{0}",
            factors={"odd_ratio": Factor("ones", {"even": 0.0, "odd": 1.0}, mixture=True)},
        )

    def draw(
        self, configuration: Configuration, count: int, seed: int, held_out: Sequence[str]
    ) -> list[str]:
        rng, words, held_out_words = random.Random(seed), [], set(held_out)
        groups = configuration.values()
        counts = apportion([knobs["data_ratio"] for knobs in groups.values()], count)
        for (bits, knobs), group_count in zip(groups.items(), counts, strict=True):
            missing_counts = {"odd": round(group_count * knobs["odd_ratio"])}
            missing_counts["even"] = group_count - missing_counts["odd"]
            while any(missing_counts.values()):
                word = f"{rng.randrange(2 ** int(bits)):0{bits}b}"
                if word not in held_out_words and missing_counts[parity(word)]:
                    missing_counts[parity(word)] -= 1
                    words.append(word)
        rng.shuffle(words)
        return words

    def group(self, instance: str) -> str:
        return str(len(instance))

    def prompt(self, instance: str) -> str:
        return " ".join(instance) + "\n"

    def score(self, instance: str, text: str) -> Score:
        if text.strip() not in ("odd", "even"):
            return Score(0.0, False, "unreadable", parsed=False)
        valid = text.strip() == parity(instance)
        return Score(float(valid), valid, None if valid else "wrong")

    def demonstration(self, instance: str) -> str:
        return parity(instance)

    def factor_levels(self, instance: str) -> dict[str, str]:
        return {"ones": parity(instance)}


def parity(word: str) -> str:
    return "odd" if word.count("1") % 2 else "even"


class ShortDraw(Parity):
    def draw(self, *arguments: Any) -> list[str]:
        return super().draw(*arguments)[:-1]


class LeakyDraw(Parity):
    def draw(
        self, configuration: Configuration, count: int, seed: int, held_out: Sequence[str]
    ) -> list[str]:
        words = super().draw(configuration, count, seed, held_out)
        return [*words[:-1], held_out[0]] if held_out else words


class UnseededDraw(Parity):
    def draw(self, configuration: Configuration, count: int, seed: int, held_out: Any) -> list[str]:
        return super().draw(configuration, count, random.randrange(2**60), held_out)


class ConstantSeed(Parity):
    def draw(self, configuration: Configuration, count: int, seed: int, held_out: Any) -> list[str]:
        return super().draw(configuration, count, 0, held_out)


class UniformDraw(Parity):
    def draw(self, configuration: Configuration, count: int, seed: int, held_out: Any) -> list[str]:
        groups = {group: {"data_ratio": 0.5, "odd_ratio": 0.5} for group in self.space.groups}
        return super().draw(self.space.make(groups), count, seed, held_out)


class AmbiguousPrompt(Parity):
    def prompt(self, instance: str) -> str:
        return " ".join(instance[1:])


class BrittleScore(Parity):
    def score(self, instance: str, text: str) -> Score:
        return Score(float(text[0] == "o"), True)


class InfiniteReward(Parity):
    def score(self, instance: str, text: str) -> Score:
        score = super().score(instance, text)
        return score if score.valid else Score(-float("inf"), False, score.failure, parsed=False)


class UnknownFailure(Parity):
    def score(self, instance: str, text: str) -> Score:
        return Score(0.0, False, "typo")


class StatefulScore(Parity):
    def score(self, instance: str, text: str) -> Score:
        SCORED_TEXTS.append(text)
        return Score(float(len(SCORED_TEXTS)), False, "wrong")


SCORED_TEXTS: list[str] = []


class WrongDemonstration(Parity):
    def demonstration(self, instance: str) -> str:
        return "even"


class ConstantReward(Parity):
    def score(self, instance: str, text: str) -> Score:
        score = super().score(instance, text)
        return Score(1.0, score.valid, score.failure, parsed=score.parsed)


class UnknownLevel(Parity):
    def factor_levels(self, instance: str) -> dict[str, str]:
        return {"ones": "some"}


class InvalidLevel(Parity):
    def factor_levels(self, instance: str) -> Any:
        return {"ones": 3}


class FixedStatistics(Parity):
    """Its statistics are what a test puts there."""

    fixed_statistics: dict[str, Any]

    def domain(self, instances: int, held_out: Sequence[str]) -> Domain:
        domain = super().domain(instances, held_out)
        return Domain(**{**vars(domain), "statistics": (Label("ones", "ones in a word", "o"),)})

    def statistics(self, instances: Sequence[str]) -> dict[str, float]:
        return self.fixed_statistics


class UnstableNearest(Parity):
    """Its `nearest` never comes to rest."""

    def domain(self, instances: int, held_out: Sequence[str]) -> Domain:
        def nearest(group: str, knobs: Any) -> Any:
            return {**knobs, "odd_ratio": max(knobs["odd_ratio"] - 0.1, 0.0)}

        domain = super().domain(instances, held_out)
        return Domain(**{**vars(domain), "nearest": nearest})


class NoDemonstration(Parity):
    """It has nothing to imitate."""

    demonstration = UserEnvironment.demonstration


class AbstractEnvironment(UserEnvironment[str]):
    """It lacks every method."""


NOT_A_CLASS = 3
