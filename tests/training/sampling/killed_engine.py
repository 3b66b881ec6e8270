"""Kill the process of a vLLM engine with two workers while it answers; in a process of its own.

The argument is an empty folder. Prints the seconds until the error, its message, and the processes
that are left.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil

from tests.paths import TINY as TINY_FILE
from training.errors import UserError
from training.policy.policy import load_policy, make_policy
from training.sampling.engine_watch import engine_processes
from training.sampling.sampler import Question
from training.sampling.vllm_sampler import VllmSampler
from training.schema import Sampling, load


def main(folder: Path) -> None:
    """Start an engine, kill it during a long answer, and say what came of it."""
    config = load(TINY_FILE)
    texts = ["Agent 0: UP DOWN LEFT RIGHT WAIT", '{"3":{"data_ratio":0.5,"hole_ratio":0.25}}'] * 4
    make_policy(folder / "initial", config.model, texts, max_len=512, seed=0)
    policy, params = load_policy(folder / "initial", config)
    policy.export(params, folder / "engine", untied=True)
    settings = Sampling(max_model_len=512, max_num_seqs=8, tensor_parallel_size=2)
    sampler = VllmSampler(folder / "engine", settings)
    # Not found by their title, which is cut where a process has little room for it.
    (process,) = engine_processes(sampler._engine)
    core = psutil.Process(process.pid)
    processes = [core, *core.children(recursive=True)]
    killed_at = 0.0

    def kill() -> None:
        nonlocal killed_at
        killed_at = time.monotonic()
        os.kill(core.pid, signal.SIGKILL)

    threading.Timer(2.0, kill).start()
    message = ""
    try:
        while True:
            sampler.sample(
                Question(
                    prompts=[[5, 30, 31]] * 64,
                    n=4,
                    temperature=1.0,
                    max_tokens=500,
                    stop_token_ids=[],
                    seed=1,
                )
            )
    except UserError as error:
        message = str(error)
    seconds = time.monotonic() - killed_at
    sampler.close()
    left = [one.pid for one in psutil.wait_procs(processes, timeout=20)[1]]
    print(json.dumps({"seconds": seconds, "message": message, "left": left, "core": core.pid}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
