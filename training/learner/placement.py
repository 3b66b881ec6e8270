"""Explicit shardings of the learner's arrays.

Weights, gradients and the optimizer's moments have the same sharding. All else is replicated.
"""

from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

from training.policy.parameters import SHARDING_RULES, parameter_shardings


@dataclass(frozen=True)
class Placement:
    """The shardings of a pytree of weights on a mesh of several devices."""

    params: Any  # a pytree like the weights, of NamedSharding

    @property
    def replicated(self) -> NamedSharding:
        """The sharding that replicates an array on every device."""
        return NamedSharding(jax.tree.leaves(self.params)[0].mesh, PartitionSpec())

    def get_shardings(self, tree: Any) -> Any:
        """Return the sharding of each leaf of a pytree that contains pytrees like the weights.

        A leaf has the sharding of a weight if its path ends with the weight's path, as the
        optimizer's moments do. All other leaves are replicated.
        """
        weights = dict(jax.tree_util.tree_flatten_with_path(self.params)[0])

        def get_sharding(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
            suffixes = (path[start:] for start in range(len(path)))
            candidate = next((weights[suffix] for suffix in suffixes if suffix in weights), None)
            if candidate is None or len(candidate.spec) > len(leaf.shape):
                return self.replicated
            return candidate

        return jax.tree_util.tree_map_with_path(get_sharding, tree)

    def place(self, tree: Any) -> Any:
        """Return the pytree with `get_shardings` applied; under jit this is a constraint."""
        return constrain(tree, self.get_shardings(tree))

    def split_rows(self, array: Any) -> Any:
        """Return an array of a micro-batch, (rows, ...), split over the batch axis of the mesh."""
        spec = PartitionSpec(SHARDING_RULES["batch"])
        return constrain(array, NamedSharding(self.replicated.mesh, spec))


def get_placement(graphdef: nnx.GraphDef, params: Any) -> Placement | None:
    """Return the placement of a decoder's weights, or None on a single device."""
    model = nnx.merge(graphdef, params)
    if model.mesh is None:
        return None
    shardings = parameter_shardings(model.config, model.mesh, model.lora)
    state = nnx.state(model, nnx.Param)
    return Placement(
        state.from_flat_path(
            (path, leaf.replace(shardings[".".join(map(str, path))]))
            for path, leaf in nnx.to_flat_state(state)
        )
    )


def place_like(tree: Any, params: Any) -> Any:
    """Move a pytree that contains pytrees like the weights to the devices of the weights."""
    shardings = jax.tree.map(lambda leaf: getattr(leaf, "sharding", None), params)
    leaves = jax.tree.leaves(shardings, is_leaf=lambda leaf: leaf is None)
    if not leaves or not all(isinstance(leaf, NamedSharding) for leaf in leaves):
        return tree
    return Placement(shardings).place(tree) if leaves[0].mesh.size > 1 else tree


def constrain(tree: Any, shardings: Any) -> Any:
    """Constrain the sharding of each leaf of a pytree under jit."""
    return jax.lax.with_sharding_constraint(tree, shardings)
