import bisect
import itertools
import json
import re
import time
from fractions import Fraction

import numpy as np
import pytest

from engineer import review_answer
from engineer.lake import Bounds, lake_domain
from engineer.synthetic_examples import synthetic_example
from tests.engineer import words
from tests.engineer.builders import BOUNDS, lake, roomy

SCARCE = lake_domain(BOUNDS, min_acceptance=0.1)
# Where every kind of board can be made, the rule is all there is to an answer.
ROOMY = roomy()


def at_least_one_step(shares: dict[int, int]) -> dict[int, int]:
    """Lift empty shares of 20 to 1 and scale the others down, in exact fractions."""
    exact = {s: Fraction(x) for s, x in shares.items()}
    while any(x < 1 for x in exact.values()):
        large = {s: x for s, x in exact.items() if x > 1}
        left = 20 - (len(exact) - len(large))
        exact = {
            s: large[s] * left / sum(large.values()) if s in large else Fraction(1) for s in exact
        }
    whole = {s: int(x) for s, x in exact.items()}
    for s in sorted(exact, key=lambda s: (whole[s] - exact[s], s))[: 20 - sum(whole.values())]:
        whole[s] += 1
    return whole


def answer_from_text(context: str) -> str:
    """The rule, read off the context's words alone by other means than the package's."""
    rates = {int(s): int(v) for s, v in re.findall(r"^(\d+) valid (\d+)", context, re.MULTILINE)}
    line = re.search(r"# current\n(.*)", context)
    assert line is not None
    current = {
        int(s): tuple(round(float(x) * 100) for x in knobs)
        for s, *knobs in re.findall(
            r'"(\d+)":\{"data_ratio":([\d.]+),"hole_ratio":([\d.]+),"wait_ratio":([\d.]+)', line[1]
        )
    }
    shares = at_least_one_step({s: knobs[0] // 5 for s, knobs in current.items()})
    # Nearest to one half first, the smaller size first where two are equally near.
    by_distance = sorted(rates, key=lambda s: (abs(rates[s] - 50), s))
    takes, gives = by_distance[0], [s for s in by_distance if shares[s] > 1][-1]
    if abs(rates[gives] - 50) > abs(rates[takes] - 50):
        shares[takes], shares[gives] = shares[takes] + 1, shares[gives] - 1
    parts = []
    for s, p in rates.items():
        move = -5 if p < 20 else 0 if p < 60 else 5
        _, holes, waits = current[s]
        holes, waits = min(max(holes + move, 0), 50), min(max(waits + move, 0), 100)
        numbers = (f"{x // 100}.{x % 100:02d}" for x in (5 * shares[s], holes, waits))
        knobs = zip(("data_ratio", "hole_ratio", "wait_ratio"), numbers, strict=True)
        parts.append(f'"{s}":{{' + ",".join(f'"{knob}":{x}' for knob, x in knobs) + "}")
    return "{" + ",".join(parts) + "}"


def test_a_rehearsed_answer_is_a_function_of_the_text():
    rng = np.random.default_rng(0)
    for _ in range(400):
        context, answer = synthetic_example(rng, ROOMY)
        assert answer == answer_from_text(context)


def test_rehearsals_are_accepted_and_cover_what_happens(current):
    rng = np.random.default_rng(1)
    drawn = [synthetic_example(rng, ROOMY) for _ in range(1000)]
    for rehearsal in drawn:
        decision = review_answer(rehearsal.answer, current, ROOMY)
        assert (decision.kind, decision.repairs) == ("accepted", ())
    assert {context.count("\nstage ") for context, _ in drawn} == {0, 1, 2, 3}
    assert 50 < sum(context.startswith("# refused") for context, _ in drawn) < 150
    assert len({answer for _, answer in drawn}) > 990
    moves, transfers = set(), set()
    for context, answer in drawn:
        rates = re.findall(r"^\d+ valid (\d+)", context, re.MULTILINE)
        moves.add(tuple(bisect.bisect((20, 60), int(rate)) for rate in rates))
        before, after = (
            [float(x) for x in re.findall(r'"data_ratio":([\d.]+)', text)]
            for text in (context, answer)
        )
        if min(before) > 0:
            transfers.add(tuple(round(20 * (b - a)) for a, b in zip(before, after, strict=True)))
    assert moves == set(itertools.product(range(3), repeat=3))
    assert transfers - {(0, 0, 0)} == set(itertools.permutations((1, 0, -1)))


@pytest.mark.parametrize("sizes", [(3,), (3, 4, 5), (4, 9, 10)])
@pytest.mark.parametrize("past", [0, 2])
@pytest.mark.parametrize("counts", [(10, 99), (100, 999)])
def test_what_the_answer_turns_on_stands_at_the_same_distance_from_it(sizes, past, counts):
    domain = lake_domain(Bounds(sizes=sizes))
    rng = np.random.default_rng(7)
    layouts, answers, hundreds = set(), set(), 0
    for _ in range(300):
        context, answer = synthetic_example(rng, domain, max_history=past, counts=counts)
        tail = context[context.index("# failures") :]
        failures, rest = tail.split("\n# current\n")
        heading, rows = failures.split("\n", 1)
        # Every digit is a place that is always a digit; a per cent of 100 alone takes one more.
        wider = len(re.findall(r"[a-z] 100\b", rows))
        assert len(tail) == _tail_length(sizes, len(str(counts[0]))) + wider
        hundreds += wider
        narrow = re.sub(r"([a-z]) 100\b", r"\1 99", rows)
        layouts.add(re.sub(r"\d", "9", f"{heading}\n{narrow}"))
        answers |= {re.sub(r"\d", "9", text) for text in (rest.split("\n")[0], answer)}
    digits = "9" * len(str(counts[0]))
    assert {layout.split("\n")[0] for layout in layouts} == {f"# failures of {digits}"}
    assert len(layouts) == 1
    assert len(answers) == 1
    assert hundreds > 0


def _tail_length(sizes: tuple[int, ...], digits: int) -> int:
    """Characters from the failures to the end, written out anew, all per cents below 100."""
    row = "S valid 00 opt 00 parse 00 board 00 hole 00 vertex 00 swap 00 goal 00\n"
    knobs = '"S":{"data_ratio":0.00,"hole_ratio":0.00,"wait_ratio":0.00},'
    each = sum(len(row) + len(knobs) + 2 * (len(str(size)) - 1) for size in sizes)
    # The braces around the JSON stand for its last comma and one character more.
    return len("# failures of \n# current\n\n# answer\n") + digits + each + 1


def test_a_history_ends_where_the_next_stage_begins():
    rng = np.random.default_rng(2)
    for _ in range(100):
        context, _ = synthetic_example(rng, ROOMY)
        rows = re.findall(r"^(\d+) \d+ \d+ \d+ (\d+) to (\d+)$", context, re.MULTILINE)
        for size in ("3", "4", "5"):
            moves = [(before, after) for s, before, after in rows if s == size]
            for (_, after), (before, _) in itertools.pairwise(moves):
                assert after == before


@pytest.mark.parametrize("sizes", [(3, 4), (3, 4, 5, 6, 7, 8, 9, 10)])
def test_rehearsals_fit_any_experiment(sizes):
    domain = lake_domain(Bounds(sizes=sizes, min_share=0.05, max_wait_ratio=0.75))
    rng = np.random.default_rng(3)
    for _ in range(50):
        context, answer = synthetic_example(
            rng, domain, blocks=("failure_breakdown", "history"), max_history=1
        )
        assert "# guideline" not in context
        rows = re.findall(r"^(\d+) valid", context, re.MULTILINE)
        asked = json.loads(context.split("# current\n")[1].split("\n")[0])
        names = [str(size) for size in sizes]
        assert rows == list(asked) == list(json.loads(answer)) == names
        current = lake(*((float(size == 3), 0, 0) for size in sizes), sizes=sizes)
        decision = review_answer(answer, current, domain)
        assert (decision.kind, decision.repairs) == ("accepted", ())


def test_the_same_seed_rehearses_the_same_and_another_does_not():
    one, same, other = (
        [synthetic_example(np.random.default_rng(seed), ROOMY) for _ in range(2)]
        for seed in (5, 5, 6)
    )
    assert one == same
    assert one != other


def test_a_thousand_rehearsals_take_seconds_at_most():
    rng = np.random.default_rng(0)
    start = time.process_time()
    for _ in range(1000):
        synthetic_example(rng, ROOMY)
    assert time.process_time() - start < 3.0


def test_where_boards_are_scarce_an_answer_is_the_nearest_that_can_be_made(current):
    rng = np.random.default_rng(8)
    moved = 0
    for _ in range(300):
        context, answer = synthetic_example(rng, SCARCE)
        by_the_rule = review_answer(answer_from_text(context), current, SCARCE)
        as_rehearsed = review_answer(answer, current, SCARCE)
        assert as_rehearsed.configuration == by_the_rule.configuration
        assert (as_rehearsed.kind, as_rehearsed.repairs) == ("accepted", ())
        assert {repair.name for repair in by_the_rule.repairs} <= {"feasibility"}
        moved += bool(by_the_rule.repairs)
    assert 0 < moved < 300


@pytest.mark.parametrize("style", ["compact", "full"])
def test_any_environment_can_be_rehearsed_in_both_styles(style):
    rng = np.random.default_rng(9)
    for _ in range(30):
        context, answer = synthetic_example(rng, words.DOMAIN, style=style)
        decision = review_answer(answer, words.CURRENT, words.DOMAIN)
        assert (decision.kind, decision.repairs) == ("accepted", ())
        assert "typo" in context or "misspelt word" in context or "100%" in context
        assert not re.search(r"\b(lake|map|hole|board)", context)
