"""Answer benchmark boards with a policy in a local engine or a model behind an endpoint."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from multiprocessing.pool import ThreadPool
from operator import itemgetter
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
"""Batch size as a multiple of the engine's parallel prompts, so that the engine is rarely idle."""

MAX_CONSECUTIVE_FAILURES = 8
"""An evaluation ends after this many consecutive failures (more with parallel requests)."""

AnswerRequest = tuple[int, int]
"""Index of a board in the benchmark, and number of the answer to this board (its sample)."""


class BenchmarkAnswer(Record):
    """One line of `answers.jsonl`: a model's answer to one board."""

    config: str  # configuration of the board, such as benchmark_wr0.25; empty if unknown
    sample_id: str
    sample: Count = 0  # number of the answer to this board, from 0
    text: str  # whole answer, including the opening thinking tag if the prompt ends with it
    reasoning: str = ""  # reasoning that an endpoint returned separately; not judged
    tokens: Count  # generated tokens; the token limit if the endpoint reports no number
    truncated: bool = False  # whether the token limit cut the answer off


class SamplerAnswerer:
    """Answers boards in batches with a policy in the engine of the configuration."""

    def __init__(
        self, config: RunConfig, policy: Policy, sampler: Sampler, boards: Sequence[BenchmarkBoard]
    ) -> None:
        self._config, self._policy, self._sampler = config, policy, sampler
        self._boards = boards
        self._prompts = [policy.encode_prompt(_make_prompt(config, board)) for board in boards]

    @property
    def model(self) -> str:
        """The identifier of the engine's weights."""
        return f"weights {self._sampler.weight_version}"

    def answer(self, requests: Sequence[AnswerRequest]) -> Iterator[BenchmarkAnswer]:
        """Yield one answer per request. Its seed depends only on the board and the sample."""
        batch_size = max(CHUNK, _BATCH_FACTOR * self._config.sampling.max_num_seqs)
        get_sample = itemgetter(1)
        for sample, group in groupby(sorted(requests, key=get_sample), key=get_sample):
            indices = [index for index, _ in group]
            for start in range(0, len(indices), batch_size):
                yield from self._answer_batch(indices[start : start + batch_size], sample)

    def _answer_batch(self, indices: Sequence[int], sample: int) -> Iterator[BenchmarkAnswer]:
        request = SamplingRequest(
            prompts=self._prompts,
            n=1,
            temperature=self._config.validation.temperature,
            top_p=self._config.validation.top_p,
            top_k=self._config.validation.top_k,
            max_tokens=self._config.prompt.max_tokens,
            stop_token_ids=self._policy.stop_ids,
            seed=_get_seed(self._config, sample),
            chosen=indices,
        )
        for index, (completion,) in zip(indices, self._sampler.sample(request), strict=True):
            config, sample_id = self._boards[index].key
            yield BenchmarkAnswer(
                config=config,
                sample_id=sample_id,
                sample=sample,
                text=self._policy.decode(completion.token_ids, self._prompts[index]),
                tokens=len(completion.token_ids),
                truncated=completion.truncated,
            )


class EndpointAnswerer:
    """Answers boards with a model behind an OpenAI-compatible endpoint, in parallel requests."""

    def __init__(
        self,
        config: RunConfig,
        client: "ChatClient",
        boards: Sequence[BenchmarkBoard],
        *,
        concurrency: int,
        fields: dict[str, Any],  # further fields of each request
    ) -> None:
        self._config, self._client, self._fields = config, client, fields
        self._boards, self._concurrency = boards, concurrency

    @property
    def model(self) -> str:
        """The name of the model at the endpoint."""
        return self._client.model

    def answer(self, requests: Sequence[AnswerRequest]) -> Iterator[BenchmarkAnswer]:
        """Yield answers in any order; raise a `UserError` if many consecutive requests fail."""
        num_failed = num_consecutive = 0
        seeds = {
            sample: sampling_seeds(_get_seed(self._config, sample), len(self._boards))
            for sample in {sample for _, sample in requests}
        }
        seeded_requests = ((index, sample, seeds[sample][index]) for index, sample in requests)
        with ThreadPool(min(self._concurrency, len(requests))) as pool:
            for result in pool.imap_unordered(self._request_answer, seeded_requests):
                if isinstance(result, BenchmarkAnswer):
                    num_consecutive = 0
                    yield result
                    continue
                num_failed, problem = num_failed + 1, str(result)
                num_consecutive += 1
                if num_consecutive >= MAX_CONSECUTIVE_FAILURES + self._concurrency - 1:
                    raise UserError(
                        f"--endpoint: {num_consecutive} consecutive requests failed, the last one "
                        f"with {problem}. The same command resumes the evaluation"
                    )
        if num_failed:
            console.print(
                f"{num_failed} requests failed, the last one with {problem}", style="yellow"
            )

    def _get_opening_tag(self, prompt: str) -> str:
        """Return the opening thinking tag at the end of a prompt, or an empty string."""
        if not self._config.prompt.chat:
            return opening_tag(prompt)
        return THINKING_PREFIX if self._config.prompt.thinking else ""

    def _request_answer(
        self, seeded_request: tuple[int, int, int]
    ) -> BenchmarkAnswer | EngineerError:
        index, sample, seed = seeded_request
        config, board = self._config, self._boards[index]
        prompt = _make_prompt(config, board)
        try:
            response = self._client.complete(
                prompt,
                max_tokens=config.prompt.max_tokens,
                chat=config.prompt.chat,
                fields={
                    "temperature": config.validation.temperature,
                    **_get_truncation_fields(config),
                    "seed": seed,
                    **self._fields,
                },
            )
        except EngineerError as error:
            return error
        thinking_tag = "" if response.reasoning else self._get_opening_tag(prompt)
        return BenchmarkAnswer(
            config=board.config,
            sample_id=board.sample_id,
            sample=sample,
            text=thinking_tag + response.text,
            reasoning=response.reasoning,
            tokens=response.tokens,
            truncated=response.truncated,
        )


Answerer = SamplerAnswerer | EndpointAnswerer
"""Answers boards. Its `model` is the identifier of the weights, or their name at an endpoint."""


def _get_seed(config: RunConfig, sample: int) -> int:
    """Return the seed of answer number `sample`, common to all boards."""
    seed = config.validation.seed
    return int(np.random.default_rng([seed, sample]).integers(2**31)) if sample else seed


def _get_truncation_fields(config: RunConfig) -> dict[str, float]:
    """Return `top_p` and `top_k` if they are in use, because some endpoints reject them."""
    top_p, top_k = config.validation.top_p, config.validation.top_k
    return ({"top_p": top_p} if top_p < 1.0 else {}) | ({"top_k": top_k} if top_k else {})


def _make_prompt(config: RunConfig, board: BenchmarkBoard) -> str:
    """Return the prompt of a board, without a chat template."""
    instance = parse_grid(board.grid, max_size=board.size, max_agents=board.num_agents)
    return board_prompt(instance, config.prompt)
