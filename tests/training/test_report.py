"""The report: one safe page that says what the files say, however far the run got."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jaxlake import wilson_interval
from tests.training.sample_run import DESIGNS, HOSTILE, write_sample_run
from training.errors import UserError
from training.report import build_report
from training.report.charts import Line, line_chart, nice_ticks, running_mean, spread
from training.report.headline import mcnemar

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """The elements of a page, and the text of its tables' rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        self.words.append(data)
        if ("td" in self.open or "th" in self.open) and self.rows:
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample_run(tmp_path_factory.mktemp("runs") / "sample")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(finished, tmp_path / "run")


def page_of(run: Path) -> Page:
    return Page(build_report(run).read_text(encoding="utf-8"))


def tallies(run: Path) -> Iterator[tuple[int, str, dict]]:
    """(stage, name of the map size as the page writes it, counts) of every validation."""
    for path in sorted(run.glob("stages/*/validation.json")):
        validation = json.loads(path.read_text())
        stage = validation["stage"]
        for row in validation["rows"]:
            yield stage, f"{row['size']} × {row['size']}", row  # noqa: RUF001
        yield stage, "All sizes", validation["total"]


def test_every_cell_of_the_validation_table_is_the_files_count_and_its_interval(
    finished: Path,
) -> None:
    page = page_of(finished)
    shown = {}
    group = ""
    for cells in page.rows:
        if len(cells) == 6 and "/" in cells[-1]:
            group, cells = cells[0], cells[1:]
        if len(cells) == 5 and "/" in cells[-1]:
            for stage, cell in enumerate(cells[1:]):
                shown[stage, group, cells[0]] = " ".join(cell.split())
    expected = {}
    for stage, name, row in tallies(finished):
        for key, words in (
            ("valid", "valid"),
            ("optimal_sum_of_costs", "optimal, sum of costs"),
            ("optimal_makespan", "optimal, makespan"),
        ):
            low, high = wilson_interval(row[key], row["count"])
            expected[stage, name, words] = (
                f"{100 * row[key] / row['count']:.1f} [{100 * low:.1f}, {100 * high:.1f}] "
                f"{row[key]}/{row['count']}"
            )
    assert shown == expected


def test_the_configuration_table_shows_each_rounds_knobs_and_marks_what_changed(
    finished: Path,
) -> None:
    page = page_of(finished)
    configurations = [
        json.loads((finished / f"stages/{stage}/configuration.json").read_text())
        for stage in (1, 2, 3)
    ]
    last = json.loads((finished / "stages/3/decision.json").read_text())
    configurations.append(last["configuration"])
    shown = [row[-5:] for row in page.rows if len(row) in (5, 6) and row[-5].endswith("_ratio")]
    expected = []
    for size in sorted(configurations[0]["sizes"], key=int):
        for knob in ("data_ratio", "hole_ratio", "wait_ratio"):
            values = [f"{one['sizes'][size][knob]:.2f}" for one in configurations]
            cells = [values[0]] + [
                new if new == old else f"{old} {new}" for old, new in itertools.pairwise(values)
            ]
            expected.append([knob, *cells])
    assert shown == expected
    changed = sum(
        len(json.loads((finished / f"stages/{stage}/decision.json").read_text())["diff"])
        for stage in (1, 2, 3)
    )
    assert changed > 5
    assert sum(value == "number changed" for _, value in page.attributes) == changed


def test_every_decision_shows_its_kind_its_raw_answers_and_its_context(finished: Path) -> None:
    page = page_of(finished)
    for stage in (1, 2, 3):
        decision = json.loads((finished / f"stages/{stage}/decision.json").read_text())
        assert f"After round {stage} {decision['kind']}" in page.text
        context = (finished / f"stages/{stage}/context.txt").read_text()
        assert context in "".join(page.words)
        for answer in DESIGNS[stage - 1]:
            shown = answer.encode("utf-8", "replace").decode()
            assert shown in "".join(page.words)


def test_every_decision_shows_what_it_cost_and_what_was_taken_back_before_it(run: Path) -> None:
    gate = json.loads((run / "stages/2/gate.json").read_text())
    notice = "The valid rate fell by 3.0 points, <b>more</b> than its noise."
    (run / "stages/2/gate.json").write_text(json.dumps(gate | {"notice": notice}))
    page = page_of(run)
    assert page.text.count("Rolled back") == 1
    assert f"Rolled back : {notice}" in page.text
    decision = json.loads((run / "stages/2/decision.json").read_text())
    trained = decision["spent"]["training_instances"]
    assert trained > 0
    assert f"{trained:,} training instances in the round" in page.text
    assert "drawn in probes" not in page.text
    spent = {"training_instances": 0, "engineer_tokens": 1234, "probe_rollouts": 5678}
    (run / "stages/2/decision.json").write_text(json.dumps(decision | {"spent": spent}))
    cost = "1,234 tokens written by the engineer, 5,678 answers drawn in probes"
    assert cost in page_of(run).text


def test_the_headline_says_the_first_and_the_last_valid_rate(finished: Path) -> None:
    text = page_of(finished).text
    totals = {stage: row for stage, name, row in tallies(finished) if name == "All sizes"}
    for stage in (0, 3):
        valid, count = totals[stage]["valid"], totals[stage]["count"]
        low, high = wilson_interval(valid, count)
        assert f"{100 * valid / count:.1f}% [{100 * low:.1f}, {100 * high:.1f}]" in text
        assert f"{valid} of {count}" in text


def test_what_a_model_writes_is_shown_as_text_and_never_runs(finished: Path) -> None:
    page = page_of(finished)
    assert HOSTILE[:-1] in "".join(page.words)
    assert not {"script", "img", "iframe", "link", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_the_page_needs_no_other_file(finished: Path) -> None:
    html = build_report(finished).read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\"' <]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}
    names = {name for name, _ in Page(html).attributes}
    assert not names & {"src", "href", "action", "data", "xlink:href"}
    assert "url(" not in html
    assert "@import" not in html
    assert re.search(r"Content-Security-Policy\" content=\"default-src 'none'", html)


def test_failed_and_solved_episodes_of_the_last_round_are_drawn(finished: Path) -> None:
    page = page_of(finished)
    episodes = [
        json.loads(line) for line in (finished / "stages/3/episodes.jsonl").open(encoding="utf-8")
    ]
    labels = [value or "" for name, value in page.attributes if name == "aria-label"]
    boards = [label for label in labels if " on a " in label]
    kinds = {one["failure"] for one in episodes if one["failure"]}
    assert kinds
    for kind in kinds:
        assert any(kind.replace("_", " ") in label for label in boards)
    for name, outcome in re.findall(
        r"<b>([\w ,]+)</b><span>Board (\d+)", build_report(finished).read_text(encoding="utf-8")
    ):
        record = episodes[int(outcome)]
        assert record["id"] == int(outcome)
        assert name == (
            (record["failure"] or "").replace("_", " ")
            if not record["valid"]
            else ("optimal" if record["optimal_sum_of_costs"] else "valid, not optimal")
        )


@pytest.mark.parametrize(
    ("gone", "sentence"),
    [
        ("summary.json", "has not finished"),
        ("metrics.jsonl", "metrics.jsonl is not there"),
        ("timings.jsonl", "timings.jsonl is not there"),
        ("config.yaml", "config.yaml is not there"),
        ("stages", "stages/0 is not there"),
        ("stages/2", "stages/2 is not there"),
        ("stages/3/decision.json", "stages/3/decision.json is not there"),
        ("stages/1/validation.json", "stages/1/validation.json is not there"),
        ("stages/3/episodes.jsonl", "stages/3/episodes.jsonl is not there"),
        ("stages/1/configuration.json", "stages/1/configuration.json is not there"),
    ],
)
def test_a_run_that_lacks_a_file_still_gives_a_page_that_says_so(
    run: Path, gone: str, sentence: str
) -> None:
    victim = run / gone
    shutil.rmtree(victim) if victim.is_dir() else victim.unlink()
    assert sentence in page_of(run).text


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("metrics.jsonl", '{"phase": "train", "stage": 1, "upd', "metrics.jsonl: left out line 1"),
        ("metrics.jsonl", "[1]\n3\n", "metrics.jsonl: left out line 1, 2"),
        ("stages/2/validation.json", '{"rows": [{"size": 3}]', "validation.json is not JSON"),
        ("stages/2/validation.json", '{"rows": [{"size": 3}]}', "validation.json is left out"),
        ("stages/2/validation.json", "[]", "validation.json is left out"),
        ("stages/2/configuration.json", '{"sizes": {"x": 1}}', "configuration.json is left out"),
        ("stages/2/decision.json", '{"kind": "accepted"}', "decision.json is left out"),
        ("config.yaml", "a: [", "config.yaml is not a YAML mapping"),
        ("summary.json", "{}", "has not finished"),
    ],
)
def test_a_damaged_file_is_named_and_left_out(
    run: Path, name: str, text: str, sentence: str
) -> None:
    (run / name).write_text(text, encoding="utf-8")
    assert sentence in page_of(run).text


def test_odd_values_in_records_do_not_stop_the_page(run: Path) -> None:
    odd = [
        {"phase": "train", "stage": 1, "update": 1, "loss": float("nan"), "by_size": 3},
        {"phase": "train", "stage": None, "update": [], "loss": "x", "by_size": {"3": None}},
        {"phase": "warm_start", "step": None, "loss": 1.0},
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in odd))
    (run / "timings.jsonl").write_text('{"seconds": {"update": NaN}}\n{"seconds": -1}\n')
    episodes = [
        {},
        {"grid": 3, "plan": 4, "text": None, "valid": True},
        {"grid": ["S G"], "plan": [[1], [2]], "valid": False, "failure": 7},
        {"grid": ["S G", "F F"], "plan": [["LEFT"] * 500], "valid": False, "text": "x" * 9999},
        {"grid": ["S G", "F F"], "plan": [None], "valid": False, "agent": "a", "time": {}},
    ]
    (run / "stages/3/episodes.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in episodes)
    )
    text = page_of(run).text
    assert "It can't be drawn" in text
    assert "more than 60 steps" in text
    assert "8499 characters more" in text


def test_a_run_without_a_warm_start_is_not_said_to_have_one(run: Path) -> None:
    config = run / "config.yaml"
    text = config.read_text()
    start = text.index("warm_start:")
    end = text.index("\nstages:")
    config.write_text(text[:start] + "warm_start: null" + text[end:])
    (run / "metrics.jsonl").write_text("")
    shown = page_of(run).text
    assert "Warm start" not in shown
    assert "were valid before training" in shown


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_what_is_no_run_directory_is_a_user_error_that_names_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "here"
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("")
    with pytest.raises(UserError, match=re.escape(str(path))):
        build_report(path)


def test_the_page_goes_where_it_is_told_and_leaves_nothing_else(run: Path, tmp_path: Path) -> None:
    before = sorted(run.rglob("*"))
    target = tmp_path / "out" / "page.html"
    target.parent.mkdir()
    target.write_text("old")
    assert build_report(run, target) == target
    assert target.read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")
    assert sorted(run.rglob("*")) == before
    assert list(target.parent.iterdir()) == [target]
    with pytest.raises(UserError, match="is a folder"):
        build_report(run, target.parent)


def test_the_report_loads_neither_torch_nor_vllm_nor_flax() -> None:
    check = (
        "import sys, training.report; "
        "sys.exit(', '.join({'torch', 'vllm', 'flax', 'transformers'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0, 0), (-3.2, 7.9), (0, 1e-6), (5, 5), (0, 12345)]
)
def test_ticks_cover_the_data_in_equal_round_steps(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    steps = [b - a for a, b in itertools.pairwise(ticks)]
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)
    assert 2 <= len(ticks) <= 8


def test_labels_that_would_overlap_are_moved_apart_and_stay_in_the_picture() -> None:
    placed = spread([90.0, 91.0, 99.0], 10.0, 0.0, 100.0)
    assert all(b - a >= 10.0 for a, b in itertools.pairwise(placed))
    assert min(placed) >= 0.0
    assert max(placed) <= 100.0
    assert spread([10.0, 50.0], 10.0, 0.0, 100.0) == [10.0, 50.0]


def test_the_running_mean_of_a_straight_line_keeps_its_middle() -> None:
    line = [(float(i), 2.0 * i) for i in range(20)]
    for mean, point in zip(running_mean(line, 5)[2:-2], line[2:-2], strict=True):
        assert mean == pytest.approx(point)


def test_a_gap_in_the_data_is_a_gap_in_the_curve() -> None:
    points = [(1.0, 1.0), (2.0, 2.0), (3.0, float("nan")), (4.0, 2.0), (5.0, 1.0)]
    chart = line_chart("t", [Line("a", points)], x_label="x", y_label="y") or ""
    assert chart.count("<polyline") == 2
    assert line_chart("t", [Line("a", [(1.0, None)])], x_label="x", y_label="y") is None


def test_mcnemar_is_the_two_sided_sign_test() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 / 32)
    assert mcnemar(0, 5) == mcnemar(5, 0)
    assert mcnemar(7, 7) == 1.0
