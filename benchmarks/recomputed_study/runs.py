"""The plain files of a study's runs, and what keeps two of them from being compared."""

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.recomputed_study.comparison import Object

METRICS = ("valid", "optimal_sum_of_costs", "optimal_makespan")


@dataclass(frozen=True)
class Run:
    """One finished run; stage 0 is the warm start and has only episodes.

    Where answers alone are kept, `folder` is their file, and nothing is known of decisions.
    """

    engineer: str
    seed: int
    folder: Path
    episodes: list[list[Object]]  # by stage, then board
    configurations: list[Object]  # of stages 1..R, by size
    decisions: list[Object]  # of stages 1..R
    prompts: int  # of one update
    answers_alone: bool = False  # nothing else is kept of it

    @property
    def stage_count(self) -> int:
        """R."""
        return len(self.configurations)

    def rows(self, metric: str) -> list[int]:
        """What each board scored after the last stage."""
        return [int(one[metric]) for one in self.episodes[-1]]


def read_json(path: Path) -> Any:
    """Return the value of a JSON file, compressed if its name ends with .gz."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def json_lines(path: Path) -> list[Object]:
    """Return the objects of a file with one on each line."""
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def folders(study: Path, settings: Object) -> Iterator[tuple[str, int, Path]]:
    """Yield engineer, seed and directory of every run; seeds are the outer loop."""
    for seed in settings["seeds"]:
        for engineer in settings["engineers"]:
            yield engineer, seed, study / "runs" / engineer / str(seed)


def read_run(engineer: str, seed: int, folder: Path) -> Run:
    """Read the directory of a finished run."""
    count = max(int(path.name) for path in (folder / "stages").iterdir())
    stages = [folder / "stages" / str(stage) for stage in range(count + 1)]
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    (prompts,) = re.findall(r"^ +prompts_per_update: (\d+)$", config, flags=re.MULTILINE)
    return Run(
        engineer=engineer,
        seed=seed,
        folder=folder,
        episodes=[json_lines(stage / "episodes.jsonl") for stage in stages],
        configurations=[read_json(stage / "configuration.json")["sizes"] for stage in stages[1:]],
        decisions=[read_json(stage / "decision.json") for stage in stages[1:]],
        prompts=int(prompts),
    )


def read_outcomes(paths: Sequence[Path]) -> list[Run]:
    """Read the runs whose answers are kept in these files, `outcomes.json.gz` of a study."""
    runs = []
    for path in paths:
        content = read_json(path)
        boards, kinds = content["boards"], content["kinds"]
        for run in content["runs"]:
            stages = []
            for stage, what in enumerate(run["kinds"]):
                episodes = []
                for place, board in enumerate(boards):
                    kind = kinds[int(what[place])]
                    scores = {metric: run[metric][stage][place] == "1" for metric in METRICS}
                    failure = None if kind == "valid" else kind
                    episodes.append({**board, **scores, "id": place, "failure": failure})
                stages.append(episodes)
            runs.append(
                Run(
                    engineer=run["engineer"],
                    seed=run["seed"],
                    folder=path,
                    episodes=stages,
                    configurations=run["configurations"],
                    decisions=[],
                    prompts=0,
                    answers_alone=True,
                )
            )
    return runs


def contradictions(run: Run, first: Run) -> Iterator[str]:
    """Yield what keeps a run from being compared with the first one."""
    boards = [one["grid"] for one in first.episodes[0]]
    name = f"{run.engineer}/{run.seed}"
    if run.stage_count != first.stage_count:
        other = f"{first.engineer}/{first.seed}"
        yield f"{name}: {run.stage_count} stages, {first.stage_count} of {other}"
    for stage, episodes in enumerate(run.episodes):
        where = f"{name}, stage {stage}"
        if [one["grid"] for one in episodes] != boards:
            yield f"{where}: not the boards of {first.engineer}/{first.seed}, stage 0"
        for one in episodes:
            if one["valid"] != (one["failure"] is None):
                yield f"{where}, board {one['id']}: both valid and a failure, or neither"
            if not one["valid"] and any(one[metric] for metric in METRICS):
                yield f"{where}, board {one['id']}: optimal, but not valid"


def counts(episodes: list[Object], rows: Sequence[int]) -> Object:
    """Count the boards in these places, and how many of them score by each metric."""
    sums = {metric: sum(episodes[row][metric] for row in rows) for metric in METRICS}
    return {"count": len(rows), **sums}
