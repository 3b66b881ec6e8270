"""A policy's valid and optimal rates on a validation set, without a run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.table import Table

from training.config import RunConfig
from training.errors import UserError
from training.judge import judge
from training.model import huggingface
from training.phases import validate
from training.policy import load
from training.run.directory import write_json
from training.run.progress import console
from training.run.summary import rate
from training.sampling.vllm_sampler import VllmSampler


def policy_folder(run_dir: Path, stage: int | None) -> Path:
    """Where a run keeps its policy after a round (default: the last one that is finished).

    Raises:
      UserError: there is none.
    """
    finished = sorted(
        int(folder.parent.name) for folder in run_dir.glob("stages/*/policy") if folder.is_dir()
    )
    if not finished:
        raise UserError(f"{run_dir}: holds no policy; is it a run that finished a round?")
    if stage is None:
        stage = finished[-1]
    if stage not in finished:
        raise UserError(f"--stage: got {stage}, {run_dir} has {finished}")
    return run_dir / "stages" / str(stage) / "policy"


def evaluate(config: RunConfig, model: str | Path, output: Path | None) -> None:
    """Answer the validation set of `config` with a model folder (or hub name), and print rates.

    Raises:
      UserError: the model can't be read, or the output can't be written.
    """
    try:
        folder = huggingface.resolve(str(model))
    except huggingface.ModelFolderError as error:
        raise UserError(str(error)) from error
    policy, params = load(
        folder, config.model, config.prompt, length_bucket=config.grpo.length_bucket
    )
    boards = validate.boards_for(config)
    with tempfile.TemporaryDirectory() as scratch:
        policy.export(params, Path(scratch) / "engine", untied=True)
        sampler = VllmSampler(Path(scratch) / "engine", config.sampling, seed=config.seed)
        texts = validate.answer(config, policy, sampler, boards, title="evaluate")
        sampler.close()
    verdict = judge(boards, texts, config.prompt)
    result = validate.summarise(validate.tally(boards, verdict))
    if output is not None:
        write_json(output, {"model": str(model), **result})
    table = Table(title=f"{model} on {len(boards)} boards", title_justify="left")
    for head in ("map size", "valid", "optimal (sum of costs)", "optimal (makespan)"):
        table.add_column(head, justify="left" if head == "map size" else "right")
    for name, row in [(f"{row['size']}x{row['size']}", row) for row in result["rows"]] + [
        ("all", result["total"])
    ]:
        table.add_row(
            name, *(rate(row, key) for key in ("valid", "optimal_sum_of_costs", "optimal_makespan"))
        )
    console.print(table)
