"""verl: a training set whose rows an engineer chooses.

Each row of the Parquet file has `data_source`, its group, and `extra_info.difficulty`:

    data.custom_cls.path=examples/plug_in/verl_dataset.py data.custom_cls.name=EngineerDataset
    data.dataloader_num_workers=0 trainer.use_v1=False

python -m examples.plug_in.verl_dataset     # a loop with an artificial learner
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from engineer import Designer, LearnabilityEngineer, RowPool, knob_domain
from examples.plug_in.learner import Learner

try:
    from verl.utils.dataset.rl_dataset import RLHFDataset
except ImportError:  # the loop below needs no verl

    class RLHFDataset:
        """Stands for verl's data set: `data_files` are the rows themselves."""

        def __init__(self, data_files: list[dict[str, Any]], config: Any) -> None:
            self.rows, self.original_data_files = data_files, data_files
            self.dataframe = {name: [row[name] for row in data_files] for name in data_files[0]}

        def __getitem__(self, item: int) -> dict[str, Any]:
            return self.rows[item]


class EngineerDataset(RLHFDataset):
    """Draws rows as configured, and asks for a new configuration every `STAGE` batches."""

    STAGE = 8

    def __init__(self, data_files: Any, *arguments: Any, config: Any, **options: Any) -> None:
        super().__init__(data_files, *arguments, config=config, **options)
        # verl makes the validation set of the same class, whose rows stay as they are.
        train_files = config.train_files
        self.is_training = list(self.original_data_files) == (
            [train_files] if isinstance(train_files, str) else list(train_files)
        )
        difficulties = [info["difficulty"] for info in self.dataframe["extra_info"]]
        self.pool = RowPool(list(self.dataframe["data_source"]), difficulties)
        domain = knob_domain(self.pool.groups, {"difficulty": "quantile of the row's difficulty"})
        self.designer = Designer(domain, LearnabilityEngineer())
        self.draws, self.batches = 0, 0
        self.counts: dict[str, tuple[int, int]] = {}

    def __getitem__(self, item: int) -> dict[str, Any]:
        if not self.is_training:
            return super().__getitem__(item)
        self.draws += 1
        rng = np.random.default_rng(self.draws)
        return super().__getitem__(self.pool.draw(self.designer.configuration, rng))

    def on_batch_end(self, batch: Any) -> None:
        """Count the answers of a batch; a score above one half is a valid one."""
        scores = np.asarray(batch.batch["token_level_scores"].sum(-1))
        for group, score in zip(batch.non_tensor_batch["data_source"], scores, strict=True):
            valid, count = self.counts.get(group, (0, 0))
            self.counts[group] = valid + int(score > 0.5), count + 1
        self.batches += 1
        if self.batches % self.STAGE == 0:
            self.designer.design(self.counts)
            self.counts = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        progress = {"draws": self.draws, "batches": self.batches, "counts": self.counts}
        return {"designer": self.designer.state_dict(), **progress}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.designer.load_state_dict(state["designer"])
        self.draws, self.batches = state["draws"], state["batches"]
        self.counts = dict(state["counts"])


def main(batches: int = 64, size: int = 16) -> Learner:
    """Train the artificial learner batch by batch, and print each stage."""
    rng = np.random.default_rng(0)
    rows = [
        {"data_source": source, "extra_info": {"difficulty": float(rng.random())}}
        for source in ("algebra", "geometry")
        for _ in range(200)
    ]
    dataset = EngineerDataset(rows, config=SimpleNamespace(train_files=rows))
    learner = Learner(("algebra", "geometry"), speed=0.02)
    for number in range(1, batches + 1):
        batch = [dataset[item] for item in range(size)]
        scores = [
            learner.answers(row["data_source"], row["extra_info"]["difficulty"], 1) for row in batch
        ]
        sources = np.array([row["data_source"] for row in batch])
        dataset.on_batch_end(
            SimpleNamespace(
                batch={"token_level_scores": np.array(scores, float)},
                non_tensor_batch={"data_source": sources},
            )
        )
        if number % dataset.STAGE == 0:
            print(number, dataset.designer.configuration)
    return learner


if __name__ == "__main__":
    main()
