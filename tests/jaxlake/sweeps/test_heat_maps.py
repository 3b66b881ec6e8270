"""Heat maps of sweeps: each cell shows the rate of its rows."""

import itertools
import re

import numpy as np
import pytest

from jaxlake.statistics.summaries import COUNTERS
from jaxlake.sweeps.heat_maps import plot
from jaxlake.sweeps.knobs import SweepError
from tests.commands import cli as cli

HOLE_RATIOS, WAIT_RATIOS = (0.0, 0.1, 0.2), (0.0, 0.5)


def make_rows(
    sizes=(4,),
    hole_ratios=HOLE_RATIOS,
    wait_ratios=WAIT_RATIOS,
    agent_counts=(2,),
    policies=("random", "optimal"),
):
    """Return rows of 10 boards each, without boards where waits need holes; valid counts differ."""
    keys = ("size", "hole_ratio", "wait_ratio", "num_agents", "policy")
    settings = list(itertools.product(sizes, hole_ratios, wait_ratios, agent_counts, policies))
    columns = {name: np.array([setting[i] for setting in settings]) for i, name in enumerate(keys)}
    columns["configuration"] = np.arange(len(settings)) // len(policies)
    columns |= {name: np.zeros(len(settings), np.int64) for name in COUNTERS}
    columns["boards"] = np.array([0 if h == 0 < w else 10 for _, h, w, *_ in settings])
    columns["valid"] = np.arange(len(settings)) % 11 * (columns["boards"] > 0)
    columns["sum_of_costs"] = 7 * columns["valid"]
    return columns


def read_panels(figure):
    """Return the values of each panel by its title, NaN in grey cells."""
    panels = {axes.get_title(): axes.images for axes in figure.axes if axes.images}
    return {title: np.ma.filled(image.get_array(), np.nan) for title, (image,) in panels.items()}


def test_plot_shows_the_rate_of_each_cell():
    columns = make_rows()
    panels = read_panels(plot(columns))
    assert list(panels) == ["optimal", "random"]
    for name, panel in panels.items():
        assert panel.shape == (2, 3)
        for (y, x), rate in np.ndenumerate(panel):
            (row,) = np.flatnonzero(
                (columns["policy"] == name)
                & (columns["hole_ratio"] == HOLE_RATIOS[x])
                & (columns["wait_ratio"] == WAIT_RATIOS[y])
            )
            expected = 10.0 * columns["valid"][row] if columns["boards"][row] else np.nan
            np.testing.assert_equal(rate, expected)


def test_plot_labels_axes_and_panels():
    figure = plot(make_rows(), x="wait_ratio", value="sum_of_costs")
    assert figure.get_supxlabel() == "boards that need a wait, %"
    assert figure.get_supylabel() == "cells that are holes, %"
    assert figure.get_suptitle() == "4x4, 2 agents, grey: no valid plans"
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "50"]
    assert figure.axes[-1].get_ylabel() == "sum of costs of valid plans, steps"
    assert np.nanmax(read_panels(figure)["random"]) == 7


def test_plot_pools_the_other_ratio():
    columns = make_rows(sizes=(4, 5), policies=("random",))
    figure = plot(columns, x="size", y="hole_ratio")
    assert "boards that need a wait: all shares" in figure.get_suptitle()
    (panel,) = read_panels(figure).values()
    mask = (columns["size"] == 5) & (columns["hole_ratio"] == 0.2)
    num_valid, num_boards = columns["valid"][mask].sum(), columns["boards"][mask].sum()
    assert panel[2, 1] == pytest.approx(100 * num_valid / num_boards)


def test_plot_puts_samples_into_bins():
    (panel,) = read_panels(
        plot(make_rows(hole_ratios=np.linspace(0, 1, 200), policies=("random",)))
    ).values()
    assert panel.shape == (2, 20)
    assert not np.isnan(panel[1, 1:]).any()


def test_plot_has_one_panel_per_size_and_agent_count():
    figure = plot(make_rows(sizes=(4, 7), agent_counts=(2, 3)))
    panels = read_panels(figure)
    assert len(panels) == 8
    assert {"random, 4x4, 2 agents", "optimal, 7x7, 3 agents"} <= set(panels)
    assert len({image.get_clim() for axes in figure.axes for image in axes.images}) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x": "holes"}, "x must be one of hole_ratio, wait_ratio, size, num_agents, got holes"),
        ({"value": "agents"}, "value must be one of valid, .* got agents"),
        ({"x": "size", "y": "size"}, "x and y must be different knobs, got size for both"),
    ],
)
def test_plot_rejects_unknown_names(options, message):
    with pytest.raises(SweepError, match=message):
        plot(make_rows(), **options)


def test_plot_rejects_too_many_panels():
    with pytest.raises(SweepError, match="got 80 panels for policy, size, num_agents"):
        plot(make_rows(sizes=range(4, 14), agent_counts=(2, 3, 4, 5)))


@pytest.mark.parametrize(
    ("options", "name", "prefix"),
    [((), "results.png", b"\x89PNG"), (("--out", "a.svg", "--x", "size"), "a.svg", b"<?xml")],
)
def test_sweep_plot_writes_an_image(options, name, prefix, cli, tmp_path, monkeypatch):
    monkeypatch.setattr("jaxlake.sweeps.read", lambda path: make_rows())
    monkeypatch.chdir(tmp_path)
    result = cli("sweep", "plot", "results", *options)
    assert (result.status, result.out) == (0, f"{name}\n")
    assert (tmp_path / name).read_bytes().startswith(prefix)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "a.gif"), "--out must end in .pdf, .png, .svg, got a.gif"),
        (("--out", "none/a.png"), "none/a.png: can't be written"),
        (("--y", "sizes"), "y must be one of hole_ratio, .* got sizes; did you mean size"),
    ],
)
def test_sweep_plot_rejects_invalid_options(options, message, cli, tmp_path, monkeypatch):
    monkeypatch.setattr("jaxlake.sweeps.read", lambda path: make_rows())
    monkeypatch.chdir(tmp_path)
    result = cli("sweep", "plot", "results", *options)
    assert result.status == 2
    assert re.search(message, result.err)
