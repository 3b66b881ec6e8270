"""`jaxlake study`: engineers x seeds on one budget, and what the comparison says."""

import argparse
from pathlib import Path

from training.commands import Subparsers

_DESCRIPTION = """\
Run every engineer of a study with every seed, each in a process of its own and all from one shared
warm start; then write report.md, its figures and results.json. The same command goes on where it
was stopped: finished runs are kept. A run that fails is reported, and the others go on.

docs/studies.md says how a study is written and what its numbers mean.

exit status: 0 every run is finished (--report-only: the report is written), 1 some runs are not,
2 something has to be mended first
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command to those of `jaxlake`."""
    parser = subparsers.add_parser(
        "study",
        help="compare engineers over seeds",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", metavar="STUDY", type=Path, help="a study's YAML file")
    parser.add_argument(
        "--study-dir", metavar="DIR", type=Path, help="where its files go (default: runs/NAME)"
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="where the report goes (default: report in the study's directory)",
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--dry-run", action="store_true", help="print the runs and what they take, and stop"
    )
    only.add_argument(
        "--report-only", action="store_true", help="start nothing, report what is there"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry the command out."""
    from training.run.progress import console
    from training.study.config import load_study
    from training.study.directory import StudyDirectory

    study = load_study(args.study)
    directory = StudyDirectory(args.study_dir or Path("runs") / study.config.name)
    if args.dry_run:
        from training.study.plan import print_plan

        print_plan(study, directory)
        return 0

    from training.study.report import write_report
    from training.study.runner import carry_out

    complete = True
    if args.report_only:
        directory.check(study)
    else:
        known = directory.claim(study)
        verb = "Going on with" if known else "Starting"
        console.print(f"{verb} {study.config.name} in {directory.path}: {len(study.arms)} runs.")
        complete = carry_out(study, directory)
        if not any(directory.finished(arm) for arm in study.arms):
            return 1
    console.print(f"Report: {write_report(study, directory, args.output)}", soft_wrap=True)
    return 0 if complete else 1
