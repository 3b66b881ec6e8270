"""The pictures of the README are small and have no scripts."""

from xml.etree import ElementTree

import pytest

from tests.paths import ROOT


@pytest.mark.parametrize("name", ["lake.svg", "loop.svg"])
def test_pictures_are_small_and_self_contained(name: str):
    text = (ROOT / "docs/pictures" / name).read_text(encoding="utf-8")
    assert len(text) < 20_000
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
    assert not tags & {"script", "image", "foreignObject", "use"}
    assert "prefers-color-scheme:dark" in text
