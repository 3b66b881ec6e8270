"""The content security policy of a page: nothing is loaded, nothing else may run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

from markupsafe import Markup


def content_policy(styles: Iterable[str], script: str) -> Markup:
    """Return the policy that allows these style sheets and this script, and nothing else.

    `styles` are the exact texts of the page's elements `<style>`; attributes `style` stay
    forbidden. `script` is the text of its one script. The result holds no double quote, and can
    stand in an attribute.
    """
    allowed = " ".join(dict.fromkeys(f"'{hash_source(style)}'" for style in styles))
    rules = ["default-src 'none'", f"style-src {allowed}", f"script-src '{hash_source(script)}'"]
    return Markup("; ".join([*rules, "base-uri 'none'", "form-action 'none'"]))


def hash_source(text: str) -> str:
    """Return how a policy names a style sheet or script: `sha256-` and its hash in base 64."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
