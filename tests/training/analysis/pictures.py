"""What an SVG says."""

import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def words_in(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def words_inside(svg: str) -> list[str]:
    """The words of a figure, every one of which begins inside of it."""
    picture = ElementTree.fromstring(svg)
    width, height = float(picture.get("width")), float(picture.get("height"))
    for text in picture.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x")) <= width
        assert 0 <= float(text.get("y")) <= height
    return words_in(svg)
