"""`python -m examples.base_model RECIPE`: train a base model that runs can start from."""

import argparse
import sys
from pathlib import Path

from examples.base_model.recipe import Recipe
from training.errors import UserError
from training.runtime import set_library_defaults
from training.schema import load_config


def main(arguments: list[str] | None = None) -> int:
    """Train the model of a recipe, or resume its training."""
    parser = argparse.ArgumentParser(prog="python -m examples.base_model", description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--set", metavar="KEY=VALUE", nargs="+", default=[])
    parser.add_argument("--run-dir", metavar="DIR", type=Path, help="default: runs/NAME")
    args = parser.parse_args(arguments)
    set_library_defaults()
    try:
        recipe = load_config(Recipe, args.recipe, args.set)
        from examples.base_model.train import train

        train(recipe, args.run_dir or Path("runs") / recipe.name)
    except UserError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
