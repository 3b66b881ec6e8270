"""`jaxlake evaluate`: measure a policy on a validation set or on the benchmark."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxlake.command_line.arguments import (
    add_configuration,
    describe,
    local_name,
    local_path,
    number,
    whole_numbers,
)
from jaxlake.command_line.paths import require_writable
from training.commands.trust import add_trust, read_only
from training.errors import UserError
from training.runtime import set_library_defaults

if TYPE_CHECKING:
    from training.analysis.benchmark.answering import Answerer
    from training.schema import RunConfig

_HELP = """\
Let a policy answer the validation set of a configuration, and print its valid and optimal rates.

With --benchmark, a policy or a model behind an OpenAI-compatible API answers the benchmark's boards
(`jaxlake dataset benchmark DIR`, or the published rows in a folder). Prompt, answer length,
temperature and seed come from the configuration (prompt.*, validation.temperature,
validation.seed). Answers are saved as they arrive, and the same command resumes an interrupted
evaluation. The API key is read from the environment and never printed. See
docs/paper_experiment.md.

exit status: 0 done, 1 with --benchmark: some answers are missing, 2 invalid input or configuration
"""

_BENCHMARK_OPTIONS = ("endpoint", "agents", "sizes", "limit")
_RESERVED = {"model", "messages", "prompt", "max_tokens", "temperature", "seed", "stream", "n"}
_ENDPOINT_OPTIONS = ("name", "api_key_env", "concurrency", "timeout", "request")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    add_configuration(parser)
    add_trust(parser)
    policy_group = parser.add_mutually_exclusive_group(required=True)
    policy_group.add_argument(
        "--run-dir", metavar="DIR", type=local_path, help="a run whose policy to measure"
    )
    policy_group.add_argument(
        "--model",
        metavar="FOLDER",
        type=local_name,
        help="a Hugging Face model folder, or a hub name",
    )
    policy_group.add_argument(
        "--endpoint",
        metavar="URL",
        help="with --benchmark: an OpenAI-compatible API, ending in /v1",
    )
    stage_help = "with --run-dir: the policy after this stage (default: the newest in force)"
    parser.add_argument("--stage", metavar="S", type=int, help=stage_help)
    output_help = (
        "write the table as JSON too; with --benchmark: the folder of answers.jsonl and "
        "results.json (default: runs/benchmark)"
    )
    parser.add_argument("--output", metavar="PATH", type=local_path, help=output_help)
    samples = "answers to each board, for pass@k; more than 1 need a validation.temperature above 0"
    positive_integer = number(int, 1)
    parser.add_argument("--samples", metavar="N", type=positive_integer, default=1, help=samples)
    _add_benchmark_options(parser.add_argument_group("with --benchmark"))
    _add_endpoint_options(parser.add_argument_group("with --endpoint"))


def _add_benchmark_options(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--benchmark", metavar="DIR", type=local_path, help="answer the boards in DIR"
    )
    agents_help = "only boards with these numbers of agents"
    group.add_argument("--agents", metavar="3,4", type=whole_numbers, help=agents_help)
    sizes_help = "only boards with these side lengths"
    group.add_argument("--sizes", metavar="3,4", type=whole_numbers, help=sizes_help)
    limit_help = "at most N boards, evenly spread"
    group.add_argument("--limit", metavar="N", type=number(int, 1), help=limit_help)


def _add_endpoint_options(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--name", metavar="MODEL", help="name of the model at the endpoint")
    key_help = "environment variable that holds the key (default: no key is sent)"
    group.add_argument("--api-key-env", metavar="VAR", help=key_help)
    positive_integer = number(int, 1)
    group.add_argument(
        "--concurrency", metavar="N", type=positive_integer, help="requests at a time (default: 16)"
    )
    timeout_help = "longest wait for an answer (default: 600)"
    group.add_argument("--timeout", metavar="SECONDS", type=number(float, 0.001), help=timeout_help)
    fields = "more fields of each request, such as chat_template_kwargs='{enable_thinking: false}'"
    group.add_argument("--request", metavar="KEY=VALUE", nargs="+", action="extend", help=fields)


@read_only
def run(args: argparse.Namespace) -> int:
    """Evaluate the policy and print the table."""
    _check_options(args)
    set_library_defaults()
    from training.schema import load

    config = load(args.config, args.set)
    from training.analysis.pass_at_k import check_samples
    from training.commands.runs import policy_folder
    from training.policy.model_folders import require_model

    check_samples(args.samples, config.validation.temperature)
    policy: Any = None
    if args.run_dir is not None:
        policy = policy_folder(args.run_dir, args.stage)
    elif args.model is not None:
        policy = args.model
        require_model(policy)
    if args.benchmark is not None:
        return 0 if _evaluate_benchmark(args, config, policy) else 1
    require_writable(args.output, make_folders=True)
    from training.analysis.evaluation import evaluate

    evaluate(config, policy, args.output, num_samples=args.samples)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    """Raise a `UserError` for options that would be ignored."""
    if args.stage is not None and args.run_dir is None:
        raise UserError(f"--stage is {args.stage}; it needs --run-dir")
    for names, parent in ((_BENCHMARK_OPTIONS, "benchmark"), (_ENDPOINT_OPTIONS, "endpoint")):
        options = [name for name in names if getattr(args, name) is not None]
        if options and getattr(args, parent) is None:
            option, value = options[0].replace("_", "-"), getattr(args, options[0])
            raise UserError(f"--{option} is {value}; it needs --{parent}")
    if args.endpoint is not None and not args.name:
        raise UserError("--name must be set with --endpoint")


def _evaluate_benchmark(args: argparse.Namespace, config: "RunConfig", policy: Any) -> bool:
    if not args.benchmark.exists():
        raise UserError(f"--benchmark must be a folder, got {args.benchmark}")
    from training.analysis.benchmark.boards import read_folder, select_board_indices
    from training.analysis.benchmark.evaluate import evaluate_benchmark
    from training.commands.pairs import read_pairs

    _ = config.lake  # the benchmark's boards are the lake's
    output = args.output or Path("runs/benchmark")
    if output.exists() and not output.is_dir():
        raise UserError(f"--output must be a folder with --benchmark, got the file {output}")
    if output.resolve().is_relative_to(args.benchmark.resolve()):
        raise UserError(
            f"--output must be a folder outside of --benchmark {args.benchmark}, got {output}"
        )
    request = read_pairs("--request", args.request or ())
    if reserved_fields := sorted(_RESERVED & set(request)):
        raise UserError(
            f"--request must not contain {', '.join(reserved_fields)}: the configuration and other "
            "options set these fields"
        )
    folder = read_folder(args.benchmark)
    indices = select_board_indices(
        folder.boards, agents=args.agents, sizes=args.sizes, max_boards=args.limit
    )
    answerer = _open_answerer(args, config, policy, folder.boards, request)
    return evaluate_benchmark(
        config, folder, indices, answerer, output, request=request, num_samples=args.samples
    )


@contextmanager
def _open_answerer(
    args: argparse.Namespace,
    config: "RunConfig",
    policy_or_name: Any,
    boards: Sequence[Any],
    fields: dict[str, Any],
) -> "Iterator[Answerer]":
    """Yield an answerer: an endpoint, or a policy whose engine stops when the block ends."""
    from training.analysis.benchmark.answering import EndpointAnswerer, SamplerAnswerer

    if args.endpoint is not None:
        client = _make_client(args)
        concurrency = args.concurrency or 16
        yield EndpointAnswerer(config, client, boards, concurrency=concurrency, fields=fields)
        return
    from training.analysis.evaluation import open_frozen_policy
    from training.policy.model_folders import resolve_model

    with open_frozen_policy(config, resolve_model(str(policy_or_name))) as (policy, sampler):
        yield SamplerAnswerer(config, policy, sampler, boards)


def _make_client(args: argparse.Namespace) -> Any:
    from engineer.engineers.endpoint import ChatClient
    from training.schema.endpoints import check_url, check_variable

    try:
        check_url(args.endpoint)
        if args.api_key_env is not None:
            check_variable(args.api_key_env)
    except ValueError as error:
        field, _, problem = str(error).partition(" ")
        option = "--endpoint" if field == "base_url" else "--api-key-env"
        raise UserError(f"{option}: {problem}") from None
    return ChatClient(
        args.endpoint, args.name, api_key_env=args.api_key_env, timeout=args.timeout or 600.0
    )
