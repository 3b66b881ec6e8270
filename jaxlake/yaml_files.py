"""Reader of YAML files and of overrides `key.sub=value`; requires PyYAML."""

import itertools
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from jaxlake.errors import UserError
from jaxlake.files import decode_text


def read_yaml(path: Path) -> dict[Any, Any]:
    """Read a YAML file that holds a mapping; raise `UserError` if it is unreadable or invalid."""
    try:
        tree = parse_yaml(decode_text(path.read_bytes()))
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path}: is not YAML: {error}") from error
    if not isinstance(tree, dict):
        type_name = "nothing" if tree is None else type(tree).__name__
        raise UserError(f"{path}: must hold a mapping of keys, got {type_name}")
    return tree


def parse_yaml(text: str) -> Any:
    """Parse a YAML document; raise `ValueError` with a one-line message if it is invalid."""
    try:
        return yaml.load(text, _StrictLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Dates and long numbers raise plain ValueErrors.
        raise ValueError(" ".join(str(error).split())) from error


def apply_override(override: str, tree: dict[Any, Any]) -> None:
    """Apply a `key.sub=value` override to a tree in place; raise `UserError` if it is invalid."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError(f"--set {override!r:.200}: must be key.sub=value")
    try:
        value = parse_yaml(text)
    except ValueError as error:
        raise UserError(f"--set {override!r:.200}: the value is not YAML") from error
    # As in YAML, keys of up to 18 digits are integers.
    *parents, last_key = (
        int(part) if re.fullmatch("[0-9]{1,18}", part) else part for part in key.split(".")
    )
    for part in parents:
        child = tree.setdefault(part, {})
        if not isinstance(child, dict):
            raise UserError(f"--set {override!r:.200}: {part!r} holds {child!r:.99}, not a mapping")
        tree = child
    tree[last_key] = value


_MAX_VALUES = 1_000_000


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML loader that rejects repeated keys in a mapping and oversized documents."""

    def get_single_node(self) -> yaml.Node | None:
        """Reject aliases that form a cycle or expand to more than `_MAX_VALUES` values."""
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _expanded_size(node, {}) > _MAX_VALUES:
            raise ValueError(f"aliases form a cycle or expand to more than {_MAX_VALUES:,} values")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        names = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(names)) < len(names):
            name = next(pair for pair in names if names.count(pair) > 1)[1]
            raise ValueError(
                f"the key {name[:100]!r} is repeated in the mapping that begins in line "
                f"{node.start_mark.line + 1}"
            )
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Reject equal keys that are written differently, such as 3 and 0x3."""
        merge = "tag:yaml.org,2002:merge"
        key_nodes = [key for key, _ in node.value if key.tag != merge]
        keys = [self.construct_object(key, deep=True) for key in key_nodes]
        if all(isinstance(key, Hashable) for key in keys) and len(set(keys)) < len(keys):
            repeated_key = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(
                f"the key {repeated_key!r:.100} is repeated in the mapping that begins in line "
                f"{node.start_mark.line + 1}"
            )
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _expanded_size(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Return the number of values in a node with all aliases expanded."""
    if id(node) not in sizes:
        sizes[id(node)] = _MAX_VALUES + 1  # read only if an alias in the node refers to the node
        children = [] if isinstance(node, yaml.ScalarNode) else node.value
        if isinstance(node, yaml.MappingNode):
            children = itertools.chain.from_iterable(children)
        sizes[id(node)] = 1 + sum(_expanded_size(child, sizes) for child in children)
    return sizes[id(node)]
