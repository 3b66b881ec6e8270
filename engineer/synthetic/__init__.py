"""Synthetic contexts with the rule's answers, to teach small models to design."""

from engineer.synthetic.examples import (
    FACTS,
    DesignExample,
    Fact,
    design_example,
    make_contrasting_readout,
    replace_fact,
    synthetic_readouts,
)
from engineer.synthetic.simulated_run import simulated_run

__all__ = ["FACTS", "DesignExample", "Fact", "design_example", "make_contrasting_readout"]
__all__ += ["replace_fact", "simulated_run", "synthetic_readouts"]
