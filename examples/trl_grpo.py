"""GRPO with TRL's trainer on boards, prompts and rewards of jaxlake.

pip install '.[hub]' trl                                 # in a clone
python examples/trl_grpo.py                              # the base model of jaxlake, on a CPU
python examples/trl_grpo.py --model Qwen/Qwen3-0.6B --prompt full --chat --tokens 512 --rate 1e-6
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # JAX would take most of the memory of PyTorch's GPU

import jax
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import jaxlake
from jaxlake.datasets import to_hugging_face
from jaxlake.language.rewards import lake_reward

BASE_MODEL = Path(__file__).resolve().parents[1] / "training/base_model"


def generate_boards(count: int, size: int, args: argparse.Namespace) -> Dataset:
    """Generate distinct boards for two agents, each with its optimum and a prompt."""
    params = jaxlake.lake_params(size, hole_ratio=0.2, wait_ratio=0.25)
    lakes = jaxlake.generate(jax.random.key(args.seed), params, count)
    return to_hugging_face(lakes, prompt=args.prompt, chat=args.chat)


def main(argv: list[str] | None = None) -> GRPOTrainer:
    """Train a model and return the trainer."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(BASE_MODEL), help="a folder, or a name on the hub")
    parser.add_argument("--prompt", default="compact", choices=["compact", "full"])
    parser.add_argument("--chat", action="store_true", help="prompts as messages")
    parser.add_argument("--thinking", action="store_true", help="let chat models think first")
    parser.add_argument("--tokens", type=int, default=40, help="longest answer")
    parser.add_argument("--rate", type=float, default=3e-4, help="learning rate")
    parser.add_argument("--size", type=int, default=4, help="side of the boards")
    parser.add_argument("--boards", type=int, default=512)
    parser.add_argument("--steps", type=int, default=150, help="updates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="runs/trl_grpo")
    args = parser.parse_args(argv)
    trainer = GRPOTrainer(
        model=args.model,
        reward_funcs=lake_reward,
        train_dataset=generate_boards(args.boards, args.size, args),
        args=GRPOConfig(
            output_dir=args.output,
            max_steps=args.steps,
            per_device_train_batch_size=64,  # completions: eight boards, eight answers each
            num_generations=8,
            max_completion_length=args.tokens,
            learning_rate=args.rate,
            seed=args.seed,
            logging_steps=1,
            log_completions=True,  # into OUTPUT/completions, with what failed in each
            num_completions_to_print=0,
            report_to="none",
            bf16=torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
            # Reasoning cut off by --tokens leaves no answer; templates may ignore this option.
            chat_template_kwargs={"enable_thinking": args.thinking} if args.chat else None,
        ),
    )
    trainer.train()
    return trainer


if __name__ == "__main__":
    main()
