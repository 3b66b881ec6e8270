"""Compact contexts with the rule's edits, and pairs that differ in one fact and in the answer.

A model can imitate most edits without reading most of its context. Pairs reward reading: one fact
about all groups differs between the two contexts, and so does the rule's answer.
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
"""The facts in a row of symbols."""
FACTS: tuple[Fact, ...] = get_args(Fact)

_BLOCKS: tuple[BlockName, ...] = ("failure_breakdown", "training_details", "history")
_BLOCK_DROP_PROBABILITY = 0.1
_REFUSAL_PROBABILITY = 0.1
_TRIES = 12


class DesignExample(NamedTuple):
    """A context and its target answer."""

    context: str
    answer: str


def design_example(readout: Readout, domain: Domain) -> DesignExample:
    """Return a readout as text, with the rule's answer."""
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
    """Return the readouts of simulated runs, some with omitted blocks or a rejected answer."""
    readouts = []
    for _ in range(runs):
        for view in simulated_run(rng, domain, int(rng.integers(1, stages + 1)), counts=counts):
            blocks = [block for block in _BLOCKS if rng.random() >= _BLOCK_DROP_PROBABILITY]
            refusal = "the answer could not be used" if rng.random() < _REFUSAL_PROBABILITY else ""
            readouts.append(read_out(replace(view, refusal=refusal), blocks))
    return readouts


def with_fact_of(readout: Readout, other: Readout, fact: Fact) -> Readout:
    """Return a readout with one fact of every group taken from another readout."""
    groups = {
        group: replace(row, **{fact: getattr(other.groups[group], fact)})
        for group, row in readout.groups.items()
    }
    return replace(readout, groups=groups)


def contrasting_readout(
    rng: np.random.Generator, readout: Readout, others: Sequence[Readout], domain: Domain
) -> Readout | None:
    """Replace one fact of a readout by that of another readout, so that the rule's answer changes.

    Facts and other readouts are drawn at random, up to 12 times; the result is None if the answer
    never changes.
    """
    answer = teacher_edits(readout, domain)
    for _ in range(_TRIES):
        fact = FACTS[int(rng.integers(len(FACTS)))]
        other = others[int(rng.integers(len(others)))]
        changed = with_fact_of(readout, other, fact)
        if teacher_edits(changed, domain) != answer:
            return changed
    return None
