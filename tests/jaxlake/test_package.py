"""The import time and the public names of jaxlake."""

import dataclasses
import functools
import json
import re
import subprocess
import sys

import pytest

import jaxlake
from tests.paths import ROOT

HEAVY_PACKAGES = "flax optax torch transformers vllm pydantic datasets pyarrow engineer training"

PROGRAM = """
import json, sys
import jaxlake
assert "jax" not in sys.modules, "the command line answers before JAX is loaded"
jaxlake.solve
from jax._src import xla_bridge
print(json.dumps({
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    "backends": sorted(xla_bridge._backends),
}))
"""


@pytest.fixture(scope="module")
def import_report():
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(process.stdout)


def test_import_loads_no_heavy_package(import_report):
    assert {"jaxlake", "jax", "numpy"} <= set(import_report["modules"])
    assert set(HEAVY_PACKAGES.split()).isdisjoint(import_report["modules"])


def test_import_initializes_no_device(import_report):
    assert import_report["backends"] == []


def test_exported_names_exist_with_docstrings():
    exports = {name: getattr(jaxlake, name) for name in dir(jaxlake) if name[0] != "_"}
    assert {"Instance", "generate", "solve", "verify"} <= exports.keys()
    for name, value in exports.items():
        if callable(value):
            assert value.__doc__, name
            assert not (dataclasses.is_dataclass(value) and value.__doc__.startswith(name)), name


def test_documented_names_need_one_import():
    # The reference pages name modules by their files; building the site checks them.
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"]
    pages.append(ROOT / "README.md")
    pattern = re.compile(r"(?<![\w/.#-])jaxlake(?:\.[A-Za-z_]\w*)+(?![\w/-])")
    names = {name for page in pages for name in pattern.findall(page.read_text(encoding="utf-8"))}
    modules = {
        "jaxlake.environment.conformance.check_environment",
        "jaxlake.language.prompts",
        "jaxlake.language.rewards",
    }
    assert modules < names  # imported by these names
    for name in names - modules:
        functools.reduce(getattr, name.split(".")[1:], jaxlake)
