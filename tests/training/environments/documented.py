"""The environment of docs/tutorials/your_environment.md, saved as a module."""

import re
from pathlib import Path

from tests.paths import ROOT

PAGE_TEXT = (ROOT / "docs" / "tutorials" / "your_environment.md").read_text(encoding="utf-8")


def save_environment(folder: Path) -> Path:
    """Write the page's module and configuration into a folder, and return the latter's path."""
    (module,) = re.findall(r"^```python\n(.*?)^```", PAGE_TEXT, re.DOTALL | re.MULTILINE)
    (configuration,) = re.findall(r"^```yaml\n(.*?)^```", PAGE_TEXT, re.DOTALL | re.MULTILINE)
    (folder / "reversal.py").write_text(module, encoding="utf-8")
    (folder / "reversal.yaml").write_text(configuration, encoding="utf-8")
    return folder / "reversal.yaml"
