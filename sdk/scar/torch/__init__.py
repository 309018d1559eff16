"""PyTorch models on SCAR: their parameters are tables, and an optimizer of torch names the shards' rules.

    model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    worker, optimizer = scar.torch.initialize(model, optimizer, shards=4, workers=2)
    for clock in worker.clocks(limit=500):
        loss = ...  # model(x) pulls the parameters, once a clock
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # pushes the gradient, as a mean over the workers
        worker.report(loss.item() / worker.world_size)

`scar train` runs such a script. Files with a job and a training function have :func:`tables` for the one and
:class:`Optimizer` for the other.

Workers that shall meet only every so many steps have :class:`DiLoCo` in its place. docs/torch.md says what
becomes of buffers, of frozen and of shared parameters.
"""

try:
    from scar.torch.checkpoint_folders import export_checkpoint, import_checkpoint
    from scar.torch.diloco import DiLoCo
    from scar.torch.embeddings import Embedding, EmbeddingBag
    from scar.torch.keyed_embeddings import KeyedEmbedding, KeyedEmbeddingBag
    from scar.torch.model_tables import load, tables
    from scar.torch.prefetching import prefetch
    from scar.torch.sampler import DistributedSampler
    from scar.torch.script import initialize
    from scar.torch.weight_files import import_safetensors
    from scar.torch.worker_optimizer import Optimizer
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "scar.torch needs PyTorch: pip install 'scar-ps[torch]'", name="torch"
    ) from error

__all__ = [
    "DiLoCo",
    "DistributedSampler",
    "Embedding",
    "EmbeddingBag",
    "KeyedEmbedding",
    "KeyedEmbeddingBag",
    "Optimizer",
    "export_checkpoint",
    "import_checkpoint",
    "import_safetensors",
    "initialize",
    "load",
    "prefetch",
    "tables",
]
