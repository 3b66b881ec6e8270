"""Notebooks as pages: their text, their code, and the outputs that they were committed with."""

import base64
import json
from pathlib import Path
from typing import Any

LONGEST_OUTPUT = 4_000
"""Characters of one printed output that a page shows."""


def notebook_page(notebook: Path, name: str) -> tuple[str, dict[str, bytes]]:
    """Return the page of a notebook and its pictures, by the names that the page calls them."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            text, picture = _shown(output)
            if picture is not None:
                file = f"{name}-{len(pictures) + 1}.{text}"
                pictures[file] = picture
                parts.append(f"![output of the cell above]({file})")
            elif text.strip():
                cut = text[:LONGEST_OUTPUT].rstrip()
                parts.append(f"```text\n{cut}\n```")
    return "\n\n".join(parts) + "\n", pictures


def _shown(output: dict[str, Any]) -> tuple[str, bytes | None]:
    """Return the text of an output; or else, of a picture, how its name ends, and its bytes."""
    if output["output_type"] == "stream":
        return "".join(output["text"]), None
    data = output.get("data", {})
    if "image/png" in data:
        return "png", base64.b64decode("".join(data["image/png"]))
    html = "".join(data.get("text/html", ""))
    if html.startswith("<svg"):
        return "svg", html.encode()
    return "".join(data.get("text/plain", "")), None
