"""The engineer's description of MAPF-FrozenLake."""

from engineer.domain import Domain, Factor, Label
from engineer.lake.configuration import Bounds
from engineer.lake.feasibility import Acceptance, NearestFeasible, lookup_acceptance

# In the order in which the lake checks failures within a time step.
FAILURES = (
    Label("parse_error", "unparsable answer", "parse"),
    Label("off_board", "move off the board", "board"),
    Label("hole", "hole", "hole"),
    Label("vertex_conflict", "vertex conflict", "vertex"),
    Label("swapping_conflict", "swapping conflict", "swap"),
    Label("goal_not_reached", "goal not reached", "goal"),
)
SCORES = (
    Label("optimal_sum_of_costs", "optimal by sum of costs", "opt"),
    Label("optimal_makespan", "optimal by makespan", "span"),
)
STATISTICS = (
    Label("acceptance", "share of random boards that the set could use", "accept"),
    Label("mean_sum_of_costs", "mean optimum (sum of costs)", "cost"),
    Label("conflict_density", "share of boards on which not all can go straight", "conflict"),
    Label("missing", "boards that could not be made", "missing"),
)

# Unparsable answers and unreached goals have no associated knob.
CAUSES = {
    "off_board": "hole_ratio",
    "hole": "hole_ratio",
    "vertex_conflict": "wait_ratio",
    "swapping_conflict": "wait_ratio",
}

_OPENING = (
    "You are the environment engineer of a language model that learns multi-agent path finding on"
    " frozen lakes: n x n boards with holes, on which all agents must reach their goals without"
    " leaving the board, falling into a hole, meeting in a cell or swapping cells. The model trains"
    " in stages. After each stage you read what it has shown and write the configuration of the"
    " next one: for each map size data_ratio (its share of the training boards), hole_ratio (holes"
    " as a share of all cells of a training board) and wait_ratio (share of its training boards"
    " that no optimal plan solves without a wait)."
)
_EFFECTS = (
    "hole_ratio up: harder training boards, with narrower passages and longer detours. In training"
    " more answers fall into holes, leave the board, collide or are cut off by the token limit. The"
    " model practises to avoid this wherever some of its answers still succeed.",
    "wait_ratio up: on more training boards the agents meet unless one of them waits, which is"
    " practice against vertex and swapping conflicts.",
    "data_ratio up: more training on this map size and less on the others. Every kind of failure"
    " becomes rarer with training that is neither too easy nor too hard.",
    "Unparsable and cut off answers: no knob acts on them directly. They are fewer on easier"
    " training boards, which need less text.",
)
_GUIDELINE = (
    "Learning comes from instances that are sometimes solved and sometimes not. Give most data to"
    " map sizes with a valid rate between 20% and 80%, little to those near 0% or 100%, but keep"
    " some of each so that nothing is forgotten.",
    "Raise hole_ratio and wait_ratio where the valid rate is above 60%, lower them where it is"
    " below 20%, and by small steps: making everything harder at once ends the learning signal.",
    "Let the kinds of failure say which knob to change: falls into holes and moves off the board"
    " point to hole_ratio, vertex and swapping conflicts to wait_ratio. The valid rate says"
    " which way.",
    "Keep what worked in earlier stages, and take back what made the valid rate fall.",
)


def lake_domain(
    bounds: Bounds,
    num_agents: int = 2,
    *,
    acceptance: Acceptance | None = lookup_acceptance,
) -> Domain:
    """Return the lake's domain.

    Args:
        bounds: The space of configurations.
        num_agents: Number of agents on each board.
        acceptance: Returns the acceptance rate of given knobs; None disables this check.
    """
    return Domain(
        name="lake",
        space=bounds,
        opening=_OPENING,
        guideline=_GUIDELINE,
        failures=FAILURES,
        effects=_EFFECTS,
        scores=SCORES,
        statistics=STATISTICS,
        instance="board",
        group_format="{0}x{0}",
        group_symbol="n{0}",
        nearest=NearestFeasible(bounds, num_agents, acceptance),
        causes=CAUSES,
        factors={
            "hole_ratio": Factor("hole_ratio", {f"{n / 100:g}": n / 100 for n in range(51)}),
            "wait_ratio": Factor(
                "waits", {"no wait needed": 0.0, "wait needed": 1.0}, mixture=True
            ),
        },
    )
