"""How stages are linked to the chain, and that weights are compared with their link before use."""

import re
from pathlib import Path
from typing import Any

import pytest

from engineer.attempt import escape_surrogates
from jaxlake.command_line.entry import main
from tests.training.audit import forging
from tests.training.audit.findings import problem
from tests.training.audit.forging import (
    both,
    change,
    links,
    put,
    remove,
)
from tests.training.sample_run import CONFIG, DESIGNS, write_sample_run
from training.audit import require_sealed_weights, seal
from training.errors import UserError
from training.phases.stage_results import configuration_for, read_stage_results
from training.phases.validate import validation_set
from training.policy.tokenizer import train_tokenizer
from training.rollout.instances import draw_stage_boards
from training.run.directory import RunDirectory
from training.schema import RunConfig


@pytest.mark.parametrize("after", [0, 2])
def test_a_run_in_progress_holds_as_far_as_its_chain_goes(run, after, capsys):
    def leave_off(metrics: list[dict[str, Any]]) -> None:
        metrics[:] = [one for one in metrics if one.get("stage", 0) <= after]

    remove("summary.json", *(str(stage) for stage in range(after + 1, 4)))(run)
    links(lambda *links: links[: after + 1])(run)
    change("metrics.jsonl", leave_off)(run)
    assert main(["audit", str(run), "--shallow"]) == 0
    *stages, last = capsys.readouterr().out.splitlines()
    assert len(stages) == after + 1
    assert last == "Holds so far: the run is in progress."
    links(lambda *links: links[:1])(run)
    cut = "stage 1: chain.jsonl: expected a link, found the end: the chain is truncated"
    assert problem(run) == (cut if after else None)


def sealed_again(run: Path, stage: int) -> bytes:
    """The chain after the loop has come to the end of a stage (once more)."""
    directory = RunDirectory(run)
    config, boards = directory.config(), None
    validation = validation_set(config)
    if stage:
        configuration = configuration_for(config, read_stage_results(directory, config), stage)
        boards = draw_stage_boards(config, stage, configuration, validation).boards
    seal(config, directory, validation, stage, boards)
    return (run / "chain.jsonl").read_bytes()


def test_a_stage_is_linked_once_also_after_a_kill(run, finished):
    chain = (finished / "chain.jsonl").read_bytes()
    assert sealed_again(run, 0) == sealed_again(run, 3) == chain
    links(lambda *links: links[:3])(run)
    (run / ".chain.jsonl.4711.tmp").write_text("left behind by a kill")
    put("3/answers.jsonl", 0, "seconds", value=99.0)(run)
    remove("timings.jsonl")(run)
    assert sealed_again(run, 3) == chain


@pytest.mark.parametrize(
    ("damage", "stage", "message"),
    [
        (both(links(lambda *links: []), remove("0/policy")), 0, r"0/policy: holds no \*\.safetens"),
        (links(lambda *links: links[:2]), 3, r"chain\.jsonl: holds 2 links, but 3 must stand befo"),
        (links(lambda a, b, c, d: [a, b, c[:99]]), 3, r"chain\.jsonl:3: is not a link: "),
    ],
)
def test_a_stage_that_lacks_its_weights_or_an_earlier_link_is_not_linked(
    run, damage, stage, message
):
    damage(run)
    before = (run / "chain.jsonl").read_bytes()
    with pytest.raises(UserError, match=message):
        sealed_again(run, stage)
    assert (run / "chain.jsonl").read_bytes() == before


def test_weights_of_an_earlier_stage_are_those_of_its_link_or_are_refused(run):
    directory = RunDirectory(run)
    for stage in (0, 1):
        require_sealed_weights(directory, stage)
    file = directory.stage(1).policy / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    require_sealed_weights(directory, 0)
    with pytest.raises(UserError, match=rf"^{re.escape(str(file.parent))}: its weights have"):
        require_sealed_weights(directory, 1)
    require_sealed_weights(directory, 99)  # of which there is no link yet


@pytest.mark.parametrize("designed", [False, True])
def test_what_was_made_of_lost_weights_is_dropped_with_its_links_and_those_before_hold(
    designed, run, capsys
):
    directory = RunDirectory(run)
    directory.summary.remove()
    assert directory.drop_later(2, designed=designed)
    stage = directory.stage(2)
    assert stage.configuration.exists()
    assert stage.validation.exists() == stage.gate.exists() == designed
    assert not stage.decision.exists()
    assert not stage.answers.exists()
    assert not directory.stage(3).configuration.exists()
    assert len((run / "chain.jsonl").read_text().splitlines()) == 2
    assert not directory.drop_later(2, designed=designed)
    last = directory.metrics.read()
    directory.metrics.write([one for one in last if one.stage < 2])
    assert main(["audit", str(run), "--shallow"]) == 0
    assert capsys.readouterr().out.endswith("Holds so far: the run is in progress.\n")


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json"])
def test_a_flipped_bit_in_adapters_is_found_by_the_audit_and_refused_by_the_run(name, tmp_path):
    config = RunConfig.model_validate(CONFIG | {"model": {"pretrained": None, "lora": {"rank": 2}}})
    texts = [text for answers in DESIGNS for text in answers]
    tokenizer = train_tokenizer([escape_surrogates(text) for text in texts], 300)
    path = write_sample_run(tmp_path / "run", config, tokenizer=tokenizer)
    sealed = (path / "chain.jsonl").read_bytes()
    forging.rehash(path)
    assert (path / "chain.jsonl").read_bytes() == sealed
    assert problem(path, deep=False) is None
    directory = RunDirectory(path)
    require_sealed_weights(directory, 2)

    file = directory.stage(2).adapters / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert re.match(r"stage 2: adapters: expected .*, found ", problem(path, deep=False) or "")
    require_sealed_weights(directory, 1)
    with pytest.raises(UserError, match=rf"^{re.escape(str(file.parent))}: its weights have"):
        require_sealed_weights(directory, 2)
    file.unlink()
    assert "adapters" in (problem(path, deep=False) or "")
