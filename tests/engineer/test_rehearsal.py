import itertools
import re
import time

import numpy as np
import pytest

from engineer.configuration import Bounds, LakeConfiguration, SizeKnobs
from engineer.context import build_context
from engineer.engineers import RuleEngineer
from engineer.pipeline import review
from engineer.rehearsal import rehearse
from jaxlake import infeasibility

BOUNDS = Bounds(sizes=(3, 4, 5))


def answer_from_text(context: str) -> str:
    """The rule, read off the context's words alone by other means than the package's."""
    rates = {int(s): int(v) for s, v in re.findall(r"^(\d+) valid (\d+)", context, re.MULTILINE)}
    line = re.search(r"# current\n(.*)", context)
    assert line is not None
    current = {
        int(s): (round(float(h) * 100), round(float(w) * 100))
        for s, h, w in re.findall(
            r'"(\d+)":\{"data_ratio":[\d.]+,"hole_ratio":([\d.]+),"wait_ratio":([\d.]+)', line[1]
        )
    }
    level = {s: 3 if 30 <= p <= 70 else 2 if 10 <= p <= 90 else 1 for s, p in rates.items()}
    exact = {s: 20 * w / sum(level.values()) for s, w in level.items()}
    shares = {s: int(x + 1e-9) for s, x in exact.items()}
    for s in sorted(exact, key=lambda s: (-round(exact[s] - shares[s], 6), s))[
        : 20 - sum(shares.values())
    ]:
        shares[s] += 1
    parts = []
    for s, p in rates.items():
        move = 5 if p > 70 else -5 if p < 20 else 0
        holes, waits = current[s]
        holes, waits = min(max(holes + move, 0), 50), min(max(waits + move, 0), 100)
        numbers = (f"{x / 100:g}" for x in (5 * shares[s], holes, waits))
        knobs = zip(("data_ratio", "hole_ratio", "wait_ratio"), numbers, strict=True)
        parts.append(f'"{s}":{{' + ",".join(f'"{knob}":{x}' for knob, x in knobs) + "}")
    return "{" + ",".join(parts) + "}"


def test_a_rehearsed_answer_is_a_function_of_the_text():
    rng = np.random.default_rng(0)
    for _ in range(400):
        context, answer = rehearse(rng, bounds=BOUNDS)
        assert answer == answer_from_text(context)


def test_rehearsals_are_accepted_and_cover_what_happens(current):
    rng = np.random.default_rng(1)
    drawn = [rehearse(rng, bounds=BOUNDS) for _ in range(400)]
    for rehearsal in drawn:
        decision = review(
            rehearsal.answer, current, bounds=BOUNDS, num_agents=2, feasibility=infeasibility
        )
        assert (decision.kind, decision.repairs) == ("accepted", ())
    assert {context.count("\nstage ") for context, _ in drawn} == {0, 1, 2, 3}
    assert 10 < sum("# refused" in context for context, _ in drawn) < 90
    assert len({answer for _, answer in drawn}) > 300
    levels = [
        tuple(3 if 30 <= p <= 70 else 2 if 10 <= p <= 90 else 1 for p in map(int, rates))
        for context, _ in drawn
        if (rates := re.findall(r"^\d+ valid (\d+)", context, re.MULTILINE))
    ]
    assert set(levels) == set(itertools.product((1, 2, 3), repeat=3))


def test_a_history_ends_where_the_next_stage_begins():
    rng = np.random.default_rng(2)
    for _ in range(100):
        context, _ = rehearse(rng, bounds=BOUNDS)
        rows = re.findall(r"^(\d+) \d+ \d+ \d+ (\d+) to (\d+)$", context, re.MULTILINE)
        for size in ("3", "4", "5"):
            moves = [(before, after) for s, before, after in rows if s == size]
            for (_, after), (before, _) in itertools.pairwise(moves):
                assert after == before


@pytest.mark.parametrize("sizes", [(3, 4), (3, 4, 5, 6, 7, 8, 9, 10)])
def test_rehearsals_fit_any_experiment(sizes):
    bounds = Bounds(sizes=sizes, min_share=0.05, max_wait_ratio=0.75)
    rng = np.random.default_rng(3)
    for _ in range(50):
        context, answer = rehearse(
            rng, bounds=bounds, blocks=("failure_breakdown", "history"), max_history=1
        )
        assert "# guideline" not in context
        assert f"json sizes {' '.join(map(str, sizes))} " in context
        current = LakeConfiguration(
            sizes={
                s: SizeKnobs(data_ratio=float(s == 3), hole_ratio=0.0, wait_ratio=0.0)
                for s in sizes
            }
        )
        decision = review(answer, current, bounds=bounds, num_agents=2, feasibility=infeasibility)
        assert (decision.kind, decision.repairs) == ("accepted", ())


def test_a_rehearsal_is_rendered_as_the_real_question_is(evidence, current):
    real = build_context(evidence, current, [], bounds=BOUNDS, style="compact")
    rehearsed, _ = rehearse(np.random.default_rng(4), bounds=BOUNDS, max_history=0)

    def shape(text: str) -> str:
        return re.sub(r"[\d.]+", "9", text)

    for part in ("# failures", "# history", "# guideline", "# current", "# answer"):
        ours, theirs = (text[text.index(part) :].split("\n# ")[0] for text in (real, rehearsed))
        assert shape(ours) == shape(theirs)


def test_the_same_seed_rehearses_the_same_and_another_does_not():
    one, same, other = (
        [rehearse(np.random.default_rng(seed), bounds=BOUNDS) for _ in range(2)]
        for seed in (5, 5, 6)
    )
    assert one == same
    assert one != other


def test_a_thousand_rehearsals_take_seconds_at_most():
    rng = np.random.default_rng(0)
    start = time.process_time()
    for _ in range(1000):
        rehearse(rng, bounds=BOUNDS)
    assert time.process_time() - start < 3.0


def test_the_rule_engineer_answers_what_a_real_context_asks(evidence, current, history):
    proposal = RuleEngineer(BOUNDS, 2).propose(
        "", schema={}, attempt=0, evidence=evidence, current=current
    )
    context = build_context(evidence, current, history, bounds=BOUNDS, style="compact")
    assert proposal.text == answer_from_text(context)
