"""Which devices hold what of the learner: declared, so that no compiler has to guess.

Weights, their gradient and the optimizer's moments are split alike; the rest is on every device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from training.policy.parameters import SHARDING_RULES, parameter_shardings


@dataclass(frozen=True)
class Placement:
    """Where the weights of a pytree are, on a mesh of several devices."""

    params: Any  # a NamedSharding in the place of each weight

    @property
    def everywhere(self) -> NamedSharding:
        """Say that each device holds the whole array."""
        return NamedSharding(jax.tree.leaves(self.params)[0].mesh, PartitionSpec())

    def of(self, tree: Any) -> Any:
        """Return the sharding of each leaf of a pytree that holds pytrees like the weights.

        A leaf belongs to a weight if its path ends with the weight's: so do an optimizer's moments,
        also where it keeps them for some of the weights only.
        """
        weights = dict(jax.tree_util.tree_flatten_with_path(self.params)[0])

        def sharding(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
            ends = (path[start:] for start in range(len(path)))
            found = next((weights[end] for end in ends if end in weights), None)
            if found is None or len(found.spec) > len(leaf.shape):
                return self.everywhere
            return found

        return jax.tree_util.tree_map_with_path(sharding, tree)

    def place(self, tree: Any) -> Any:
        """Place such a pytree: on its devices, or in a program that is traced."""
        return constrain(tree, self.of(tree))

    def split_rows(self, array: Any) -> Any:
        """Split an array of a micro-batch, (rows, ...), over the devices that share batches."""
        spec = PartitionSpec(SHARDING_RULES["batch"])
        return constrain(array, NamedSharding(self.everywhere.mesh, spec))


def placement_of(graphdef: nnx.GraphDef, params: Any) -> Placement | None:
    """Return where the weights of a decoder belong; None if it is on one device."""
    model = nnx.merge(graphdef, params)
    if model.mesh is None:
        return None
    shardings = parameter_shardings(model.config, model.mesh, model.lora)
    state = nnx.state(model, nnx.Param)
    placed = state.from_flat_path(
        (path, leaf.replace(shardings[".".join(map(str, path))]))
        for path, leaf in nnx.to_flat_state(state)
    )
    return Placement(placed)


def place_like(tree: Any, params: Any) -> Any:
    """Place a pytree that holds pytrees like the weights where the weights are."""
    shardings = jax.tree.map(lambda leaf: getattr(leaf, "sharding", None), params)
    found = jax.tree.leaves(shardings, is_leaf=lambda leaf: leaf is None)
    if not found or not all(isinstance(one, NamedSharding) for one in found):
        return tree
    return Placement(shardings).place(tree) if found[0].mesh.size > 1 else tree


def constrain(tree: Any, shardings: Any) -> Any:
    """Say where each leaf of a pytree is."""
    return jax.lax.with_sharding_constraint(tree, shardings)
