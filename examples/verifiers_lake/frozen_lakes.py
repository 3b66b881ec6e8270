"""The lake as an environment of `verifiers`: boards as tasks, scored by jaxlake.

pip install . ./examples/verifiers_lake                  # in a clone
vf-validate frozen-lakes --runtime.type subprocess
vf-eval frozen-lakes --env.agent.harness.id null --env.agent.runtime.type subprocess --model NAME

`verifiers` finds the taskset by the name of this module. A task is one question and one answer, so
it needs neither tools (the harness `null`) nor a sandbox (the runtime `subprocess`).
"""

import asyncio

import jax
import verifiers.v1 as vf

import jaxlake
from jaxlake.language.prompts import PromptStyle, render, target
from jaxlake.language.rewards import Score, score


class LakeData(vf.TaskData):
    """One board, with the fields of a row of `jaxlake.datasets.to_hugging_face`."""

    grid: list[str]
    sum_of_costs: int
    answer: str


class LakeTask(vf.Task[LakeData]):
    """A task that rewards the plan in the model's last reply."""

    async def _score(self, text: str) -> Score:
        # Verification compiles a program at the first call, so it runs outside the event loop.
        return await asyncio.to_thread(score, text, self.data.grid, self.data.sum_of_costs)

    @vf.reward
    async def lake_reward(self, trace: vf.Trace) -> float:
        """Return 1 for an optimal plan, 0.6 for another valid plan, and 0 otherwise."""
        return (await self._score(trace.last_reply)).reward

    @vf.metric
    async def verdict(self, trace: vf.Trace) -> dict[str, float]:
        """Return whether the reply holds a plan, and whether it is valid and optimal."""
        verdict = await self._score(trace.last_reply)
        return {name: float(getattr(verdict, name)) for name in ("parsed", "valid", "optimal")}

    async def validate(self, runtime: vf.Runtime) -> bool:
        """Check that the solver's plan is optimal, for `vf-validate`."""
        return (await self._score(self.data.answer)).optimal is True


class LakeConfig(vf.TasksetConfig):
    """The boards to generate: `--env.taskset.size 6 --env.taskset.count 500`."""

    count: int = 100
    size: int = 5
    agents: int = 2
    hole_ratio: float = 0.2
    wait_ratio: float = 0.25  # share of the boards on which an optimal plan has to wait
    seed: int = 0
    prompt: PromptStyle = "full"


class LakeTaskset(vf.Taskset[LakeTask, LakeConfig]):
    """Distinct boards with proved optima; equal settings give equal boards."""

    def load(self) -> list[LakeTask]:
        """Generate the boards."""
        config = self.config
        params = jaxlake.lake_params(
            config.size, config.hole_ratio, config.wait_ratio, num_agents=config.agents
        )
        lakes = jax.device_get(jaxlake.generate(jax.random.key(config.seed), params, config.count))
        return [self._make_task(lakes, i) for i in range(config.count) if lakes.filled[i]]

    def _make_task(self, lakes: jaxlake.Generated, index: int) -> LakeTask:
        board, solution = jax.tree.map(lambda leaf: leaf[index], (lakes.instances, lakes.solutions))
        data = LakeData(
            prompt=render(board, self.config.prompt),
            grid=jaxlake.format_grid(board),
            sum_of_costs=int(solution.sum_of_costs),
            answer=target(solution.plan),
        )
        return LakeTask(data, self.config.task)


__all__ = ["LakeTaskset"]
