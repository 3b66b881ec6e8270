"""The curves of a run's page: every number that an update records has one where it is recorded."""

import inspect
import re

from tests.training.analysis.pages import page_of
from training.analysis.pages.chart_drawing import short_number
from training.analysis.report import figures
from training.run.directory import RunDirectory
from training.run.records import TimingRecord, UpdateMetrics


def test_metrics_of_options_are_drawn_where_they_are_recorded(finished_run, run_copy):
    drawn = {
        "kl": ("KL divergence to the reference", 0.0123),
        "overlong_penalty": ("Overlong penalty", 0.217),
        "resampled_boards": ("Dynamic sampling", 17),
        "rollout_lag": ("Age of the sampled answers", 1),
        "rehearsal_loss": ("Rehearsed designs", 2.34),
        "grad_norm": ("Gradient norm", 0.789),
        "sampler_gap": ("Sampler gap", 4.56e-7),
        "tokens_per_second": ("Rollout speed", 4321.0),
        "mfu": ("Model FLOPs utilization", 0.321),
        "device_gib": ("Memory", 7.65),
        "host_gib": ("Memory", 3.21),
    }
    always = {"Gradient norm", "Sampler gap"}
    page = page_of(finished_run)
    labels = {value for name, value in page.attributes if name == "aria-label"}
    assert {heading for heading, _ in drawn.values()} & labels == always
    values = {name: value for name, (_, value) in drawn.items()}
    directory = RunDirectory(run_copy)
    for log, kind in ((directory.metrics, UpdateMetrics), (directory.timings, TimingRecord)):
        there = {name: value for name, value in values.items() if name in kind.model_fields}
        assert there
        rows = log.read()
        log.write(
            [one.model_copy(update=there) if getattr(one, "update", None) else one for one in rows]
        )
    changed = page_of(run_copy)
    for name, (heading, value) in drawn.items():
        pattern = rf"data-stops='([^']*)'[^>]*aria-label=.{heading}."
        [chart] = re.findall(pattern, changed.source)
        said = f"{100 * value:.1f}%" if name == "mfu" else short_number(value)
        assert said in chart, name
    told = {
        "phase",
        "stage",
        "update",
        "step",
        "weight_version",
        "board_valid",
        "by_group",
    }
    source = inspect.getsource(figures)
    forgotten = [
        name for name in UpdateMetrics.model_fields.keys() - told if f"{name}=(" not in source
    ]
    assert forgotten == [], "every number that updates record has a curve"
