"""YAML text to plain values, the same way whatever else the process has loaded."""

from typing import Any

import yaml
from yaml.constructor import SafeConstructor


def _integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    """Read an integer; one in hexadecimal may be too long for any message to show it."""
    value: int = SafeConstructor.construct_yaml_int(loader, node)
    str(value)  # raises a ValueError then, as reading a decimal number of that length does
    return value


class _Reader(yaml.SafeLoader):
    """The safe reader; a library that vLLM brings along lets the shared one take dates for text."""

    yaml_constructors = SafeConstructor.yaml_constructors | {
        "tag:yaml.org,2002:timestamp": SafeConstructor.construct_yaml_timestamp,
        "tag:yaml.org,2002:int": _integer,
    }


def parse_yaml(text: str) -> Any:
    """What a YAML document holds: mappings, lists, text, numbers, booleans, dates or None.

    Raises:
        ValueError: it is not YAML; the message is one line.
    """
    try:
        return yaml.load(text, _Reader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Beside errors of its own, the reader lets those of dates and of long numbers through.
        raise ValueError(" ".join(str(error).split())) from error
