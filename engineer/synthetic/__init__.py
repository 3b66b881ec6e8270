"""Synthetic contexts with the rule's answers, to teach small models to design."""

from engineer.synthetic.examples import (
    FACTS,
    DesignExample,
    Fact,
    make_contrasting_context,
    make_design_example,
    make_synthetic_contexts,
    replace_fact,
)
from engineer.synthetic.simulated_run import simulate_run

__all__ = ["FACTS", "DesignExample", "Fact", "make_contrasting_context", "make_design_example"]
__all__ += ["make_synthetic_contexts", "replace_fact", "simulate_run"]
