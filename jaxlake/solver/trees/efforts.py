"""The search of constraint trees in two efforts: by one lane each, and by teams."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlake.solver import chunks
from jaxlake.solver.chunks import Widths
from jaxlake.solver.kernels import tree
from jaxlake.solver.trees.node import TreeAnswers, TreeQueries, no_answers
from jaxlake.solver.trees.search import search_trees

_EFFORTS = (
    (1, 0, chunks.EXPANSIONS_BEFORE_TEAM),
    (chunks.TEAM_LANES, chunks.SHARED_SPLITS, np.iinfo(np.int32).max),
)
"""Nodes of a tree in hand, the splits that they share, and the agents replanned at most."""


def search_with_teams(queries: TreeQueries, horizon: int, widths: Widths) -> TreeAnswers:
    """Search each tree by one lane, and by a team the few that are not done soon.

    Plans have at most T = `horizon` steps. Gives an answer for each of the Q queries.
    """
    R, Q = queries.free.shape
    machine = tree.serves(widths.kernels, R, horizon)
    if machine is not None:
        search = partial(tree.search_trees, horizon=horizon, machine=machine, widths=widths)
    else:
        # Two questions per board; the number of lanes is a power of two, so that teams divide it.
        sets = 8 * len(queries.starts) * (horizon + 1) * R * queries.free.dtype.itemsize
        most = widths.fitting(widths.tree_lanes, sets)
        lanes = min(1 << (most.bit_length() - 1), 1 << (Q // 2 - 1).bit_length())
        lanes = max(chunks.TEAM_LANES, lanes)
        search = partial(search_trees, horizon=horizon, lanes=lanes)

    def go_on(
        so_far: TreeAnswers, effort: tuple[jax.Array | int, ...], **options: Any
    ) -> tuple[TreeAnswers, None]:
        team, split, most = effort
        wanted = so_far.gave_up
        budget = jnp.minimum(queries.budget, most)
        left = queries._replace(first=so_far.bound, budget=budget, wanted=wanted)
        answers = search(left, team=team, split=split, **options)
        return answers._replace(
            found=so_far.found | answers.found,
            bound=jnp.where(wanted, answers.bound, so_far.bound),
            expansions=so_far.expansions + answers.expansions,
            paths=jnp.where(wanted, answers.paths, so_far.paths),
        ), None

    nothing = no_answers(queries, horizon)._replace(gave_up=queries.wanted)
    if machine is not None:
        by_one, by_team = _EFFORTS
        return go_on(go_on(nothing, by_one)[0], by_team, helpers=chunks.NODE_LANES)[0]
    # One loop for both, so that the search compiles once.
    return jax.lax.scan(go_on, nothing, tuple(map(jnp.array, zip(*_EFFORTS, strict=True))))[0]
