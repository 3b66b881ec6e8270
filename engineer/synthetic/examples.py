"""Contexts in symbols with the rule's edits, and pairs that differ in one fact and in the answer.

A model can imitate most edits without reading most of what it is shown. Pairs make reading pay: in
each of them one fact about all groups is another one's, and the rule's answer is another one too.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from engineer.context.build import BlockName
from engineer.context.symbols import Readout, read_out, symbols_text
from engineer.domain import Domain
from engineer.edits import edits_text
from engineer.engineers.rule import teacher_edits
from engineer.synthetic.simulated_run import simulated_run

Fact = Literal["valid", "failures", "trend", "learnability", "levels", "last_edit"]
"""What a row of symbols says of a group."""
FACTS: tuple[Fact, ...] = get_args(Fact)

_BLOCKS: tuple[BlockName, ...] = ("failure_breakdown", "training_details", "history")
_DROPPED = 0.1
_REFUSED = 0.1
_TRIES = 12


class DesignExample(NamedTuple):
    """A context and the answer to learn."""

    context: str
    answer: str


def design_example(readout: Readout, domain: Domain) -> DesignExample:
    """Write a readout and the rule's answer to it."""
    return DesignExample(
        symbols_text(readout, domain), edits_text(teacher_edits(readout, domain), domain)
    )


def synthetic_readouts(
    rng: np.random.Generator,
    domain: Domain,
    *,
    runs: int = 4,
    stages: int = 4,
    counts: tuple[int, int] = (16, 256),
) -> list[Readout]:
    """Read the stages of simulated runs out, some with blocks left out or an answer refused."""
    readouts = []
    for _ in range(runs):
        for view in simulated_run(rng, domain, int(rng.integers(1, stages + 1)), counts=counts):
            blocks = [block for block in _BLOCKS if rng.random() >= _DROPPED]
            refusal = "the answer could not be used" if rng.random() < _REFUSED else ""
            readouts.append(read_out(replace(view, refusal=refusal), blocks))
    return readouts


def with_fact_of(readout: Readout, other: Readout, fact: Fact) -> Readout:
    """Return a readout with one fact, of every group, taken from another one of the same groups."""
    groups = {
        group: replace(row, **{fact: getattr(other.groups[group], fact)})
        for group, row in readout.groups.items()
    }
    return replace(readout, groups=groups)


def contrast(
    rng: np.random.Generator, readout: Readout, others: Sequence[Readout], domain: Domain
) -> Readout | None:
    """Return the readout with one fact of another one, so that the rule's answer is different.

    Facts and others are tried at random, a few times; None if the answer never changed.
    """
    answer = teacher_edits(readout, domain)
    for _ in range(_TRIES):
        fact = FACTS[int(rng.integers(len(FACTS)))]
        other = others[int(rng.integers(len(others)))]
        changed = with_fact_of(readout, other, fact)
        if teacher_edits(changed, domain) != answer:
            return changed
    return None
