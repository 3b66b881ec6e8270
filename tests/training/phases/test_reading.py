"""Reading is measured on all that a context can hold, whatever the engineer of the run is shown."""

from types import SimpleNamespace
from typing import Any

import pytest

from engineer.context.build import BLOCKS
from tests.paths import TINY
from training.phases import reading
from training.schema import load


def test_real_contexts_hold_all_blocks_of_each_trained_stage(monkeypatch: pytest.MonkeyPatch):
    config = load(TINY, ["engineer.blocks=[history]"])
    monkeypatch.setattr(reading, "view_of", lambda config, results, stage: (len(results), stage))
    monkeypatch.setattr(reading, "read_out", lambda view, blocks: (view, tuple(blocks)))
    results: Any = [SimpleNamespace(stage=stage) for stage in range(3)]
    assert reading.real_contexts(config, results) == [((2, 1), BLOCKS), ((3, 2), BLOCKS)]
