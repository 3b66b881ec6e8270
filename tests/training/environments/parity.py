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
        rng, words, held = random.Random(seed), [], set(held_out)
        groups = configuration.values()
        counts = apportion([knobs["data_ratio"] for knobs in groups.values()], count)
        for (bits, knobs), own in zip(groups.items(), counts, strict=True):
            missing = {"odd": round(own * knobs["odd_ratio"])}
            missing["even"] = own - missing["odd"]
            while any(missing.values()):
                word = f"{rng.randrange(2 ** int(bits)):0{bits}b}"
                if word not in held and missing[parity(word)]:
                    missing[parity(word)] -= 1
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


class Short(Parity):
    def draw(self, *arguments: Any) -> list[str]:
        return super().draw(*arguments)[:-1]


class Leaks(Parity):
    def draw(
        self, configuration: Configuration, count: int, seed: int, held_out: Sequence[str]
    ) -> list[str]:
        words = super().draw(configuration, count, seed, held_out)
        return [*words[:-1], held_out[0]] if held_out else words


class Restless(Parity):
    def draw(self, configuration: Configuration, count: int, seed: int, held: Any) -> list[str]:
        return super().draw(configuration, count, random.randrange(2**60), held)


class Stubborn(Parity):
    def draw(self, configuration: Configuration, count: int, seed: int, held: Any) -> list[str]:
        return super().draw(configuration, count, 0, held)


class Uniform(Parity):
    def draw(self, configuration: Configuration, count: int, seed: int, held: Any) -> list[str]:
        groups = {g: {"data_ratio": 0.5, "odd_ratio": 0.5} for g in self.space.groups}
        return super().draw(self.space.make(groups), count, seed, held)


class Ambiguous(Parity):
    def prompt(self, instance: str) -> str:
        return " ".join(instance[1:])


class Brittle(Parity):
    def score(self, instance: str, text: str) -> Score:
        return Score(float(text[0] == "o"), True)


class Infinite(Parity):
    def score(self, instance: str, text: str) -> Score:
        score = super().score(instance, text)
        return score if score.valid else Score(-float("inf"), False, score.failure, parsed=False)


class Unnamed(Parity):
    def score(self, instance: str, text: str) -> Score:
        return Score(0.0, False, "typo")


class Remembers(Parity):
    def score(self, instance: str, text: str) -> Score:
        HEARD.append(text)
        return Score(float(len(HEARD)), False, "wrong")


HEARD: list[str] = []


class Mistaken(Parity):
    def demonstration(self, instance: str) -> str:
        return "even"


class Generous(Parity):
    def score(self, instance: str, text: str) -> Score:
        score = super().score(instance, text)
        return Score(1.0, score.valid, score.failure, parsed=score.parsed)


class Mislabelled(Parity):
    def factor_levels(self, instance: str) -> dict[str, str]:
        return {"ones": "some"}


class Sliced(Parity):
    def factor_levels(self, instance: str) -> Any:
        return {"ones": 3}


class Counted(Parity):
    """Its statistics are what a test puts there."""

    found: dict[str, Any]

    def domain(self, instances: int, held_out: Sequence[str]) -> Domain:
        domain = super().domain(instances, held_out)
        return Domain(**{**vars(domain), "statistics": (Label("ones", "ones in a word", "o"),)})

    def statistics(self, instances: Sequence[str]) -> dict[str, float]:
        return self.found


class Harder(Parity):
    """Its `nearest` never comes to rest."""

    def domain(self, instances: int, held_out: Sequence[str]) -> Domain:
        def nearest(group: str, knobs: Any) -> Any:
            return {**knobs, "odd_ratio": max(knobs["odd_ratio"] - 0.1, 0.0)}

        domain = super().domain(instances, held_out)
        return Domain(**{**vars(domain), "nearest": nearest})


class Silent(Parity):
    """It has nothing to imitate."""

    demonstration = UserEnvironment.demonstration


class Unfinished(UserEnvironment[str]):
    """It lacks every method."""


NOT_A_CLASS = 3
