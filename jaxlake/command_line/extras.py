"""The packages of jaxlake's extras, from its package metadata."""

import re
from importlib import metadata

_DISTRIBUTIONS = {"yaml": "pyyaml", "orbax": "orbax-checkpoint"}
"""Distribution names of packages with a different import name."""

_FOR_DEVELOPERS = {"docs", "lint", "notebooks", "test"}


def requirements() -> dict[str, dict[str, str]]:
    """Return the requirements of the core ("") and each extra: versions by distribution."""
    result: dict[str, dict[str, str]] = {"": {}}
    try:
        required = metadata.requires("jaxlake") or []
    except metadata.PackageNotFoundError:
        return result
    for line in required:
        requirement, _, marker = line.partition(";")
        match = re.fullmatch(r"\s*([\w.-]+)(?:\[.*\])?\s*(.*?)\s*", requirement)
        extra = re.search(r"extra\s*==\s*[\"']([\w-]+)[\"']", marker)
        name = extra[1] if extra else ""
        if match and name not in _FOR_DEVELOPERS:
            result.setdefault(name, {})[_normalise(match[1])] = match[2]
    return result


def install_command(package: str) -> str:
    """Return the command that installs a missing package, by an extra of jaxlake if it has one."""
    distribution = distribution_of(package)
    extras = [extra for extra, names in requirements().items() if distribution in names and extra]
    if extras:
        return " or ".join(f"pip install 'jaxlake[{extra}]'" for extra in extras)
    return f"pip install {distribution}"


def distribution_of(package: str) -> str:
    """Return the normalised name of the distribution that has an importable package."""
    return _normalise(_DISTRIBUTIONS.get(package, package))


def _normalise(name: str) -> str:
    """Normalise the name of a distribution as package indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()
