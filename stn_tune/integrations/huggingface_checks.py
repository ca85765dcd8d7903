"""Mistakes of those who build a self-tuning Trainer of Transformers, told in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from stn_tune.algorithms.options import DeltaOptions
from stn_tune.algorithms.registry import algorithm_named
from stn_tune.nn.response import self_tuning_of

NOT_SHARDED = (
    "it shards or splits weights, so that their responses would be lost: use torchrun alone "
    "(DistributedDataParallel), or tune a smaller model and replay its schedule"
)


def check_options(algorithm: str, given: Mapping[str, Any]) -> None:
    """Unknown algorithms and options, and one that Transformers' models have no use for."""
    options = algorithm_named(algorithm).checked_options(given)
    if isinstance(options, DeltaOptions) and options.linearised:
        raise ValueError(
            "linearised is True, which needs a loss outside of the model, but Transformers' models compute their loss "
            "themselves: use linearised=False"
        )


def check_data(tuning: Any, training: Any) -> None:
    """There must be data that the weights are not trained on."""
    if tuning is None:
        raise ValueError("tuning_dataset is missing: give the data to tune hyperparameters on, held out from training")
    if tuning is training:
        raise ValueError("tuning_dataset is train_dataset: tune hyperparameters on data held out from training")


def check_model(model: nn.Module | None, options: Mapping[str, Any]) -> None:
    """A plain model, or one that is self-tuned and needs no ``options`` of self_tune."""
    if model is None:
        raise ValueError(
            "model is None: give the model that hyper and bind were made for (model_init is not supported)"
        )
    if isinstance(model, (DataParallel, DistributedDataParallel)):
        raise ValueError(
            f"model is wrapped by {type(model).__name__}: give model.module, which the Trainer wraps itself"
        )
    given = [name for name, value in options.items() if value]
    if given and self_tuning_of(model) is not None:
        raise ValueError(f"{', '.join(given)}: the model is self-tuned already; give this to self_tune, not here")


def check_arguments(args: Any) -> None:
    """TrainingArguments that cannot be honoured."""
    for name in ("deepspeed", "fsdp", "parallelism_config"):
        if getattr(args, name, None):
            raise ValueError(f"TrainingArguments({name}=...): {NOT_SHARDED}")
    for name in ("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"):
        if (getattr(args, name, None) or {}).get("use_reentrant"):
            raise ValueError(
                f"{name} has use_reentrant=True, whose recomputation frees what the next layer needs: use "
                f"use_reentrant=False, Transformers' default"
            )


def check_parallelism(trainer: Any) -> None:
    """What shows once the Trainer has set up its devices, by Accelerate's own config or the GPUs that it finds."""
    for name in ("is_deepspeed_enabled", "is_fsdp_enabled", "is_distributed_loading_by_transformers"):
        if getattr(trainer, name, False):
            raise ValueError(f"{name}: {NOT_SHARDED}")
    if (gpus := trainer.args.n_gpu) > 1:
        raise ValueError(
            f"DataParallel would copy the model to {gpus} GPUs without its responses: start one process for each "
            f"(torchrun --nproc-per-node {gpus}), or set CUDA_VISIBLE_DEVICES=0"
        )
