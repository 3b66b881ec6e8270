"""`jaxlake study`: run and compare engineers x seeds on one budget."""

import argparse
from pathlib import Path

from jaxlake.command_line.arguments import (
    describe,
    local_path,
    number,
    reject_ignored,
    whole_numbers,
)
from jaxlake.command_line.paths import check_output_folder
from training.commands.trust import add_trust, read_only
from training.errors import UserError

_HELP = """\
Run every engineer of a study with every seed, each in a separate process and all from one shared
warm start; then write report.html and results.json. The same command resumes a study: finished runs
are kept. A run that fails is reported, and the others continue.

docs/how_to/studies.md explains how to write a study and what its numbers mean.

exit status: 0 every run is finished (--report-only: the report is written), 1 some runs are not,
2 invalid input or configuration
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    parser.add_argument("study", metavar="STUDY", type=local_path, help="a study's YAML file")
    parser.add_argument(
        "--study-dir",
        metavar="DIR",
        type=local_path,
        help="directory of the study's files (default: runs/NAME)",
    )
    seeds_help = "run a part of the study: these seeds instead of the file's, separated by commas"
    parser.add_argument("--seeds", metavar="1,2,3", type=whole_numbers, help=seeds_help)
    names = "run a part of the study: only these of its engineers, separated by commas"
    parser.add_argument("--engineers", metavar="A,B", type=lambda text: text.split(","), help=names)
    report_help = "folder of the report (default: report in the study's directory)"
    jobs_help = (
        "number of runs at the same time, each on its own share of the cores (default: 1; with "
        "--cluster: number of submitted jobs, by default all); no effect with --dry-run"
    )
    parser.add_argument("--jobs", metavar="N", type=number(int, 1), help=jobs_help)
    job_help = "start every run as a job of a cluster, through submitit (local: on this machine)"
    parser.add_argument("--cluster", choices=("slurm", "local"), help=job_help)
    parser.add_argument(
        "--cluster-set",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        help="submitit's parameters of a job: slurm_partition=gpu gpus_per_node=8 timeout_min=600",
    )
    parser.add_argument("--output", metavar="DIR", type=local_path, help=report_help)
    boards_help = (
        "let every run's last policy answer the boards in DIR, and compare the engineers on them"
    )
    parser.add_argument("--benchmark", metavar="DIR", type=local_path, help=boards_help)
    mode_group = parser.add_mutually_exclusive_group()
    mode_group.add_argument(
        "--dry-run", action="store_true", help="print the runs and their cost, and stop"
    )
    mode_group.add_argument(
        "--report-only", action="store_true", help="write the report of existing runs, start none"
    )
    add_trust(parser)


def run(args: argparse.Namespace) -> int:
    """Run or resume the study, and write its report."""
    return read_only(_run)(args) if args.report_only else _run(args)


def _run(args: argparse.Namespace) -> int:
    from training.analysis.study.cluster import Cluster
    from training.analysis.study.config import load_study
    from training.analysis.study.directory import StudyDirectory
    from training.commands.pairs import read_pairs
    from training.run.directory import require_literal_path

    job_parameters = read_pairs("--cluster-set", args.cluster_set)
    if job_parameters and not args.cluster:
        raise UserError("--cluster-set needs --cluster")
    if args.trust_code and not args.report_only:
        raise UserError("--trust-code needs --report-only; running a study trusts its code")
    if args.dry_run:
        reject_ignored(args, "--dry-run", ("--cluster", "--output", "--benchmark"))
    if args.report_only:
        reject_ignored(args, "--report-only", ("--jobs", "--cluster"))
    folder = None
    if args.benchmark is not None:
        from training.analysis.benchmark.boards import read_folder

        folder = read_folder(args.benchmark)
    study = load_study(args.study, seeds=args.seeds, engineers=args.engineers)
    study_dir = args.study_dir or Path("runs") / study.config.name
    require_literal_path(study_dir)
    directory = StudyDirectory(check_output_folder("--study-dir", study_dir))
    if args.output is not None:
        check_output_folder("--output", args.output)
    directory.check(study)
    if not args.report_only:
        from training.analysis.study.contexts import require_equal_contexts

        require_equal_contexts(study)
    from training.analysis.study.report import write_report
    from training.analysis.study.runner import print_study_plan, run_study
    from training.run.progress import console

    if args.dry_run:
        print_study_plan(study, directory)
        return 0
    is_complete, cluster, max_jobs = True, None, args.jobs or 1
    if not args.report_only:
        console.print(f"{study.config.name} in {directory.path}: {len(study.runs)} runs.")
        if args.cluster:
            parameters = {**study.config.cluster, **job_parameters}
            cluster = Cluster(args.cluster, directory.path / "jobs", parameters)
            max_jobs = args.jobs or len(study.runs)
        is_complete = run_study(study, directory, max_jobs=max_jobs, cluster=cluster)
        if not any(directory.run_directory(run).finished() for run in study.runs):
            return 1
    console.print(f"Report: {write_report(study, directory, args.output)}", soft_wrap=True)
    if folder is not None:
        from training.analysis.study.benchmark import make_evaluations, write_tables
        from training.analysis.study.runner import run_processes

        evaluations = [] if args.report_only else make_evaluations(study, directory, folder)
        is_complete &= run_processes(evaluations, directory, max_jobs=max_jobs, cluster=cluster)
        results_path = write_tables(study, directory, folder)
        console.print(f"Benchmark: {results_path}", soft_wrap=True)
    return 0 if is_complete else 1
