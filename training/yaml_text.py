"""YAML text to plain values, the same way whatever else the process has loaded."""

from typing import Any

import yaml
from yaml.constructor import SafeConstructor


class _Reader(yaml.SafeLoader):
    """The safe reader; a library that vLLM brings along lets the shared one take dates for text."""

    yaml_constructors = SafeConstructor.yaml_constructors | {
        "tag:yaml.org,2002:timestamp": SafeConstructor.construct_yaml_timestamp
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
