"""Answer benchmark boards with a policy in a local engine or a model behind an endpoint."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from multiprocessing.pool import ThreadPool
from typing import TYPE_CHECKING, Any

import numpy as np

from engineer import EngineerError
from jaxlake import parse_grid
from jaxlake.language.thinking import THINKING_PREFIX, opening_tag
from training.analysis.benchmark.boards import BenchmarkBoard
from training.errors import UserError
from training.phases.validate import CHUNK
from training.policy.policy import Policy
from training.prompts import board_prompt
from training.run.progress import console
from training.run.records import Count, Record
from training.sampling.sampler import Sampler, SamplingRequest
from training.sampling.vllm_sampler import sampling_seeds
from training.schema import RunConfig

if TYPE_CHECKING:
    from engineer.engineers.endpoint import ChatClient  # imports openai

_BATCH_FACTOR = 4
"""Batch size as a multiple of the engine's parallel prompts. Large batches reduce idle time."""

MAX_CONSECUTIVE_FAILURES = 8
"""Maximum number of consecutive failures, in addition to the other pending requests."""


AnswerRequest = tuple[int, int]
"""The index of a board in the benchmark, and the number of the requested answer."""


class BenchmarkAnswer(Record):
    """One line of `answers.jsonl`: a model's answer to one board."""

    config: str  # configuration of the board, such as benchmark_wr0.25; empty if unknown
    sample_id: str
    sample: Count = 0  # number of the answer to this board, from 0
    text: str  # whole answer, including the opening thinking tag if the prompt ends with it
    reasoning: str = ""  # reasoning that an endpoint returned separately; not judged
    tokens: Count  # generated tokens, including requests that timed out
    truncated: bool = False  # whether the token limit cut the answer off


class SamplerAnswerer:
    """Answers boards in batches with a policy in the engine of the configuration."""

    def __init__(
        self, config: RunConfig, policy: Policy, sampler: Sampler, boards: Sequence[BenchmarkBoard]
    ) -> None:
        self._config, self._policy, self._sampler = config, policy, sampler
        self._boards = boards
        self._prompts = [policy.encode_prompt(_prompt(config, board)) for board in boards]

    @property
    def model(self) -> str:
        """The identifier of the engine's weights."""
        return f"weights {self._sampler.weight_version}"

    def answer(self, requests: Sequence[AnswerRequest]) -> Iterator[BenchmarkAnswer]:
        """Yield an answer per request. Its seed depends only on the board and the number."""
        batch = max(CHUNK, _BATCH_FACTOR * self._config.sampling.max_num_seqs)
        for sample, alike in groupby(sorted(requests, key=_sample_number), key=_sample_number):
            places = [place for place, _ in alike]
            for first in range(0, len(places), batch):
                yield from self._answer(places[first : first + batch], sample)

    def _answer(self, places: Sequence[int], sample: int) -> Iterator[BenchmarkAnswer]:
        request = SamplingRequest(
            prompts=self._prompts,
            n=1,
            temperature=self._config.validation.temperature,
            top_p=self._config.validation.top_p,
            top_k=self._config.validation.top_k,
            max_tokens=self._config.prompt.max_tokens,
            stop_token_ids=self._policy.stop_ids,
            seed=_seed(self._config, sample),
            chosen=places,
        )
        for place, (completion,) in zip(places, self._sampler.sample(request), strict=True):
            config, sample_id = self._boards[place].key
            yield BenchmarkAnswer(
                config=config,
                sample_id=sample_id,
                sample=sample,
                text=self._policy.decode(completion.token_ids, self._prompts[place]),
                tokens=len(completion.token_ids),
                truncated=completion.truncated,
            )


class EndpointAnswerer:
    """Answers boards with a model behind an OpenAI-compatible endpoint, several at a time."""

    def __init__(
        self,
        config: RunConfig,
        client: "ChatClient",
        boards: Sequence[BenchmarkBoard],
        *,
        concurrency: int,
        request: dict[str, Any],  # further fields of each request
    ) -> None:
        self._config, self._client, self._request = config, client, request
        self._boards, self._concurrency = boards, concurrency

    @property
    def model(self) -> str:
        """The endpoint's name of the model."""
        return self._client.model

    def answer(self, requests: Sequence[AnswerRequest]) -> Iterator[BenchmarkAnswer]:
        """Yield answers in any order; raise a `UserError` if many questions fail in a row."""
        failed = consecutive = 0
        seeds = {
            sample: sampling_seeds(_seed(self._config, sample), len(self._boards))
            for sample in {sample for _, sample in requests}
        }
        questions = ((place, sample, seeds[sample][place]) for place, sample in requests)
        with ThreadPool(min(self._concurrency, len(requests))) as pool:
            for outcome in pool.imap_unordered(self._request_answer, questions):
                if isinstance(outcome, BenchmarkAnswer):
                    consecutive = 0
                    yield outcome
                    continue
                failed, consecutive, problem = failed + 1, consecutive + 1, str(outcome)
                if consecutive >= MAX_CONSECUTIVE_FAILURES + self._concurrency - 1:
                    raise UserError(
                        f"--endpoint: {consecutive} questions failed in a row, the last one: "
                        f"{problem}. Answers that came are kept; the same command goes on"
                    )
        if failed:
            console.print(f"{failed} questions failed, the last one: {problem}", style="yellow")

    def _opening(self, prompt: str) -> str:
        """Return the opening thinking tag at the end of a prompt, or an empty string."""
        if not self._config.prompt.chat:
            return opening_tag(prompt)
        return THINKING_PREFIX if self._config.prompt.thinking else ""

    def _request_answer(self, request: tuple[int, int, int]) -> BenchmarkAnswer | EngineerError:
        place, sample, seed = request
        config, board = self._config, self._boards[place]
        prompt = _prompt(config, board)
        try:
            response = self._client.complete(
                prompt,
                max_tokens=config.prompt.max_tokens,
                chat=config.prompt.chat,
                fields={
                    "temperature": config.validation.temperature,
                    **_truncation(config),
                    "seed": seed,
                    **self._request,
                },
            )
        except EngineerError as error:
            return error
        return BenchmarkAnswer(
            config=board.config,
            sample_id=board.sample_id,
            sample=sample,
            text=response.text if response.reasoning else self._opening(prompt) + response.text,
            reasoning=response.reasoning,
            tokens=response.tokens,
            truncated=response.truncated,
        )


Answerer = SamplerAnswerer | EndpointAnswerer
"""A source of answers; `model` differs between weights if they can be identified."""


def _sample_number(requests: AnswerRequest) -> int:
    return requests[1]


def _seed(config: RunConfig, sample: int) -> int:
    """Return the seed of answer number `sample` to every board."""
    seed = config.validation.seed
    return int(np.random.default_rng([seed, sample]).integers(2**31)) if sample else seed


def _truncation(config: RunConfig) -> dict[str, float]:
    """Return the truncation fields that are set; some endpoints don't support the others."""
    top_p, top_k = config.validation.top_p, config.validation.top_k
    return ({"top_p": top_p} if top_p < 1.0 else {}) | ({"top_k": top_k} if top_k else {})


def _prompt(config: RunConfig, board: BenchmarkBoard) -> str:
    """Return the prompt of a board, without a chat template."""
    instance = parse_grid(board.grid, max_size=board.size, max_agents=board.num_agents)
    return board_prompt(instance, config.prompt)
