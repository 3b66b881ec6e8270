"""prime-rl: a task sampler that lets an engineer choose among the tasks of a verifiers taskset.

A task brings its group and difficulty as fields of its `TaskData`. prime-rl's configuration names
its own samplers only, so that this one is set in Python:

    source.curricula["my-env"].sampler = EngineerSampler(tasks, LearnabilityEngineer())

python -m examples.plug_in.prime_rl_sampler     # a loop with an artificial learner
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from engineer import Designer, Engineer, LearnabilityEngineer, RowPool, knob_domain
from examples.plug_in.learner import Learner

try:
    from prime_rl.orchestrator.curriculum import TaskSampler
except ImportError:  # the loop below needs no prime-rl
    TaskSampler = object


class EngineerSampler(TaskSampler):
    """Draws tasks as configured, and asks for a new configuration every `stage` groups."""

    def __init__(self, tasks: Sequence[Any], engineer: Engineer, stage: int = 64) -> None:
        self.tasks, self.stage = list(tasks), stage
        task_data = [task.data for task in self.tasks]
        self.pool = RowPool([row.group for row in task_data], [row.difficulty for row in task_data])
        domain = knob_domain(self.pool.groups, {"difficulty": "quantile of the task's difficulty"})
        self.designer = Designer(domain, engineer)
        self.draws, self.seen = 0, 0
        self.counts: dict[str, tuple[int, int]] = {}

    def __next__(self) -> Any:
        self.draws += 1
        row = self.pool.draw(self.designer.configuration, np.random.default_rng(self.draws))
        return self.tasks[row]

    def observe(self, group: list[Any]) -> None:
        """Count the answers to one task; more than half of the full reward is a valid one."""
        traces = [trace for episode in group for trace in episode.traces]
        usable = [trace for trace in traces if not trace.has_error and trace.agent.trainable]
        rewards = [trace.reward for trace in usable]
        name = group[0].task.data.group
        valid, count = self.counts.get(name, (0, 0))
        self.counts[name] = valid + sum(reward > 0.5 for reward in rewards), count + len(rewards)
        self.seen += bool(rewards)
        if rewards and self.seen % self.stage == 0:
            self.designer.design(self.counts)
            self.counts = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        progress = {"draws": self.draws, "seen": self.seen, "counts": self.counts}
        return {"designer": self.designer.state_dict(), **progress}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.designer.load_state_dict(state["designer"])
        self.draws, self.seen, self.counts = state["draws"], state["seen"], dict(state["counts"])

    def metrics(self) -> dict[str, float]:
        """Return the configuration in force, such as `hard/data_ratio`."""
        knobs = self.designer.configuration.items()
        return {f"{group}/{knob}": value for group, row in knobs for knob, value in row.items()}


def main(updates: int = 512) -> Learner:
    """Train the artificial learner on one task after another, and print each stage."""
    rng = np.random.default_rng(0)
    task_data = [
        SimpleNamespace(group=group, difficulty=float(rng.random()))
        for group in ("grids", "words")
        for _ in range(200)
    ]
    tasks = [SimpleNamespace(data=row) for row in task_data]
    sampler, learner = EngineerSampler(tasks, LearnabilityEngineer()), Learner(("grids", "words"))
    for update in range(1, updates + 1):
        task = next(sampler)
        agent = SimpleNamespace(trainable=True)
        traces = [
            SimpleNamespace(reward=float(valid), has_error=False, agent=agent)
            for valid in learner.answers(task.data.group, task.data.difficulty)
        ]
        sampler.observe([SimpleNamespace(task=task, traces=[trace]) for trace in traces])
        if update % sampler.stage == 0:
            print(update, sampler.designer.configuration)
    return learner


if __name__ == "__main__":
    main()
