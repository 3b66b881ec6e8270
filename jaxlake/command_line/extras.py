"""The packages of jaxlake's extras, from its package metadata."""

import re
from importlib import metadata

_DISTRIBUTIONS = {"yaml": "pyyaml", "orbax": "orbax-checkpoint"}
"""Distribution names of packages with a different import name."""

_DEVELOPER_EXTRAS = {"docs", "lint", "notebooks", "test"}


def get_requirements() -> dict[str, dict[str, str]]:
    """Return version bounds by distribution, for each extra and for the core ("")."""
    bounds: dict[str, dict[str, str]] = {"": {}}
    try:
        requirements = metadata.requires("jaxlake") or []
    except metadata.PackageNotFoundError:
        return bounds
    for line in requirements:
        requirement, _, marker = line.partition(";")
        match = re.fullmatch(r"\s*([\w.-]+)(?:\[.*\])?\s*(.*?)\s*", requirement)
        extra_match = re.search(r"extra\s*==\s*[\"']([\w-]+)[\"']", marker)
        extra = extra_match[1] if extra_match else ""
        if match and extra not in _DEVELOPER_EXTRAS:
            bounds.setdefault(extra, {})[_normalise(match[1])] = match[2]
    return bounds


def install_command(package: str, *, for_training: bool = False) -> str:
    """Return the command that installs a missing package, through an extra of jaxlake if any.

    Args:
        package: The import name.
        for_training: Whether to prefer the extra `train` to `sweeps`.
    """
    distribution = distribution_of(package)
    extras = [
        extra for extra, names in get_requirements().items() if distribution in names and extra
    ]
    if extras:
        preferred_extra = "train" if for_training else "sweeps"
        extra = preferred_extra if preferred_extra in extras else extras[0]
        return f"pip install 'jaxlake[{extra}]' (in a clone: '.[{extra}]')"
    return f"pip install {distribution}"


def distribution_of(package: str) -> str:
    """Return the normalised name of the distribution that provides an importable package."""
    return _normalise(_DISTRIBUTIONS.get(package, package))


def _normalise(name: str) -> str:
    """Normalise the name of a distribution as package indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()
