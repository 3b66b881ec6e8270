"""Synthetic contexts with the rule's answers, to teach small models to design."""

from engineer.synthetic.examples import (
    FACTS,
    DesignExample,
    Fact,
    contrasting_readout,
    design_example,
    synthetic_readouts,
    with_fact_of,
)
from engineer.synthetic.simulated_run import simulated_run

__all__ = [
    "FACTS",
    "DesignExample",
    "Fact",
    "contrasting_readout",
    "design_example",
    "simulated_run",
]
__all__ += ["synthetic_readouts", "with_fact_of"]
