"""Who answers the boards: the policy in an engine of this machine, or a model behind an address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any

from engineer import EngineerError
from jaxlake import parse_grid
from jaxlake.language.prompts import render
from training.analysis.benchmark.boards import BenchmarkBoard
from training.errors import UserError
from training.phases.validate import CHUNK
from training.policy.policy import Policy
from training.run.progress import console
from training.sampling.sampler import Question, Sampler
from training.sampling.vllm_sampler import sampling_seeds
from training.schema import RunConfig

if TYPE_CHECKING:
    from engineer.engineers.endpoint import ChatClient  # imports openai

_ROUNDS_OF_AN_ENGINE = 4
"""An engine gets so many times the prompts that it works on at once: it idles while the last ones
of a batch are answered."""

FAILURES_IN_A_ROW = 8
"""An endpoint that fails so often, and for all requests that are under way, is given up."""


@dataclass(frozen=True)
class Answered:
    """An answer to the board at one place of the benchmark."""

    place: int
    text: str
    tokens: int  # generated for it


class SamplerAnswerer:
    """Asks a policy in the engine that the configuration names, batch after batch."""

    def __init__(
        self, config: RunConfig, policy: Policy, sampler: Sampler, boards: Sequence[BenchmarkBoard]
    ) -> None:
        self._config, self._policy, self._sampler = config, policy, sampler
        self._prompts = [policy.encode_prompt(board_prompt(config, board)) for board in boards]

    @property
    def model(self) -> str:
        """Name the engine's weights."""
        return f"weights {self._sampler.weight_version}"

    def answer(self, places: Sequence[int]) -> Iterator[Answered]:
        """Answer the boards at these places; the seed of an answer depends on its place alone."""
        batch = max(CHUNK, _ROUNDS_OF_AN_ENGINE * self._config.sampling.max_num_seqs)
        for first in range(0, len(places), batch):
            asked = places[first : first + batch]
            question = Question(
                prompts=self._prompts,
                n=1,
                temperature=self._config.validation.temperature,
                max_tokens=self._config.prompt.max_tokens,
                stop_token_ids=self._policy.stop_ids,
                seed=self._config.validation.seed,
                chosen=asked,
            )
            groups = self._sampler.sample(question)
            for place, (completion,) in zip(asked, groups, strict=True):
                text = self._policy.decode(completion.token_ids)
                yield Answered(place, text, len(completion.token_ids))


class EndpointAnswerer:
    """Asks a model behind an OpenAI-compatible address, several boards at a time."""

    def __init__(
        self,
        config: RunConfig,
        client: ChatClient,
        boards: Sequence[BenchmarkBoard],
        *,
        concurrency: int,
        request: dict[str, Any],  # further fields of each request
    ) -> None:
        self._config, self._client, self._request = config, client, request
        self._boards, self._concurrency = boards, concurrency
        self._seeds = sampling_seeds(config.validation.seed, len(boards))

    @property
    def model(self) -> str:
        """Give the endpoint's name of the model."""
        return self._client.model

    def answer(self, places: Sequence[int]) -> Iterator[Answered]:
        """Answer the boards at these places, in any order; those without an answer are left out.

        Raises:
            UserError: The endpoint fails again and again.
        """
        failed = in_a_row = 0
        with ThreadPool(min(self._concurrency, len(places))) as pool:
            for outcome in pool.imap_unordered(self._ask, places):
                if isinstance(outcome, Answered):
                    in_a_row = 0
                    yield outcome
                    continue
                failed, in_a_row, problem = failed + 1, in_a_row + 1, str(outcome)
                if in_a_row >= FAILURES_IN_A_ROW + self._concurrency - 1:
                    raise UserError(
                        f"--endpoint: {in_a_row} questions failed in a row, the last one: "
                        f"{problem}. Answers that came are kept; the same command goes on"
                    )
        if failed:
            console.print(f"{failed} questions failed, the last one: {problem}", style="yellow")

    def _ask(self, place: int) -> Answered | EngineerError:
        config = self._config
        try:
            said = self._client.complete(
                board_prompt(config, self._boards[place]),
                max_tokens=config.prompt.max_tokens,
                chat=config.prompt.chat,
                fields={
                    "temperature": config.validation.temperature,
                    "seed": self._seeds[place],
                    **self._request,
                },
            )
        except EngineerError as error:
            return error
        return Answered(place, said.text, said.tokens)


Answerer = SamplerAnswerer | EndpointAnswerer
"""A model that answers boards. Other weights have another `model`, as far as that is known."""


def board_prompt(config: RunConfig, board: BenchmarkBoard) -> str:
    """Write the prompt for a board, without any chat template."""
    instance = parse_grid(board.grid, max_size=board.size, max_agents=board.num_agents)
    return render(instance, config.prompt.style)
