"""Tables as wide as the terminal: nothing of them is lost, and no line is too long."""

import io
import itertools

from hypothesis import given
from hypothesis import strategies as st

from jaxlake.text_tables import aligned_text, column_groups, output_width, wrapped

HEADS = ("engineer", "kind", "tokens", "seconds", "learn")
ROWS = [
    ("rule", "accepted", "0", "0.1", "0.123"),
    ("a name that is rather long", "kept", "123,456", "1234", "-"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("not a file")


def test_a_pipe_has_no_width_and_columns_sets_one(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output_width() is None
    for said, width in (("60", 60), ("3", 20), ("", None), ("-5", None), ("wide", None)):
        monkeypatch.setenv("COLUMNS", said)
        assert output_width() == width


def test_a_terminal_that_does_not_say_its_size_has_no_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert output_width() is None


@given(
    widths=st.lists(st.integers(1, 30), min_size=1, max_size=9),
    room=st.integers(1, 90),
    kept=st.integers(1, 3),
    gap=st.integers(0, 3),
)
def test_every_column_stands_once_in_order_and_fits_if_it_can(widths, room, kept, gap):
    groups = column_groups(widths, room, kept=kept, gap=gap)
    if len(widths) <= kept:
        assert groups == [list(range(len(widths)))]
        return
    assert [one for group in groups for one in group[kept:]] == list(range(kept, len(widths)))
    for group in groups:
        assert group[:kept] == list(range(kept))
        taken = sum(widths[one] for one in group) + gap * (len(group) - 1)
        assert taken <= room or len(group) == kept + 1
    for group, following in itertools.pairwise(groups):
        more = [*group, following[kept]]  # none is put off without need
        assert sum(widths[one] for one in more) + gap * (len(more) - 1) > room


def test_a_table_is_whole_without_a_width_and_in_parts_with_one():
    whole = aligned_text(HEADS, ROWS, left=1)
    assert whole.split("\n") == [
        "engineer                        kind   tokens  seconds  learn",
        "rule                        accepted        0      0.1  0.123",
        "a name that is rather long      kept  123,456     1234      -",
    ]
    cut = aligned_text(HEADS, ROWS, left=1, width=50).split("\n")
    assert cut[2] == "a name that ...      kept  123,456     1234      -"
    parts = aligned_text(HEADS, ROWS, left=1, width=36).split("\n\n")
    assert len(parts) == 2
    assert [head for part in parts for head in part.split("\n")[0].split()] == [
        *("engineer", "kind", "tokens", "engineer", "seconds", "learn")
    ]
    for width in (36, 50, 60):
        lines = aligned_text(HEADS, ROWS, left=1, width=width).split("\n")
        assert max(map(len, lines)) <= width


def test_prose_is_broken_at_blanks_alone():
    assert wrapped("a path/that/is/long and so on", 12) == "a\npath/that/is/long\nand so on"
    assert wrapped("as it is, however long", None) == "as it is, however long"
