"""What vLLM imports in each worker: the base of its worker class, and a way for weights to come.

So vLLM's factory knows the engine for shared memory wherever a worker starts, spawned or not.
"""

from contextlib import suppress

from training.weight_transfer.receiver import WeightReceiver

__all__ = ["WeightReceiver"]

with suppress(ImportError, ValueError):  # an older vLLM has no factory; or it is known already
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    WeightTransferEngineFactory.register_engine(
        "jaxlake_shared_memory",
        "training.weight_transfer.shared_memory_engine",
        "SharedMemoryEngine",
    )
