"""Convert notebooks to pages with their text, code and committed outputs."""

import base64
import json
from pathlib import Path
from typing import Any

MAX_OUTPUT_LENGTH = 4_000
"""Maximum number of characters of one printed output on a page."""


def make_notebook_page(notebook: Path, name: str) -> tuple[str, dict[str, bytes]]:
    """Return the page of a notebook, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            text, picture = _read_output(output)
            if picture is not None:
                file_name = f"{name}-{len(pictures) + 1}.{text}"
                pictures[file_name] = picture
                parts.append(f"![output of the cell above]({file_name})")
            elif text.strip():
                excerpt = text[:MAX_OUTPUT_LENGTH].rstrip()
                parts.append(f"```text\n{excerpt}\n```")
    return "\n\n".join(parts) + "\n", pictures


def _read_output(output: dict[str, Any]) -> tuple[str, bytes | None]:
    """Return the text of an output and None, or the suffix and the bytes of a picture."""
    if output["output_type"] == "stream":
        return "".join(output["text"]), None
    data = output.get("data", {})
    if "image/png" in data:
        return "png", base64.b64decode("".join(data["image/png"]))
    html = "".join(data.get("text/html", ""))
    if html.startswith("<svg"):
        return "svg", html.encode()
    return "".join(data.get("text/plain", "")), None
