"""Made-up contexts with the rule's answers, which teach a small model how to design.

`simulated_run` makes whole runs of a learner that exists in a formula alone; `examples` turns their
stages into contexts and answers, and into pairs that differ in one fact and in the answer.
"""

from engineer.synthetic.examples import (
    FACTS,
    DesignExample,
    Fact,
    contrast,
    design_example,
    synthetic_readouts,
    with_fact_of,
)
from engineer.synthetic.simulated_run import simulated_run

__all__ = ["FACTS", "DesignExample", "Fact", "contrast", "design_example", "simulated_run"]
__all__ += ["synthetic_readouts", "with_fact_of"]
