"""Print what a run's engineer wrote in each Design phase, and what became of it.

python tools/written_designs.py RUN_DIR
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from training.errors import UserError
from training.run.directory import RunDirectory


def _printable(text: str) -> str:
    """Leave out what a terminal would obey."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in text)


def main() -> int:
    """Print all answers, stage by stage, and the decision after them."""
    parser = argparse.ArgumentParser(description="Print what a run's engineer wrote.")
    parser.add_argument("run_dir", type=Path, help="a run's directory")
    directory = RunDirectory(parser.parse_args().run_dir)
    try:
        directory.config()
        for stage in directory.stage_numbers():
            files = directory.stage(stage)
            if not files.decision.exists():
                continue
            for answer in files.answers.read():
                print(f"--- stage {stage}, answer {answer.attempt + 1}: {answer.kind}")
                print("(none)" if answer.text is None else _printable(answer.text))
                if answer.reason:
                    print(f"--- because: {answer.reason}")
            print(f"--- stage {stage}, decided: {files.decision.read().kind}\n")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
