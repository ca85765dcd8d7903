"""Transformers' Trainer, self-tuned: hyperparameter steps between its weight steps. What it saves is a plain model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader

from stn_tune import rng
from stn_tune.algorithms.checks import checked_tuning
from stn_tune.algorithms.options import option_names
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.checkpoint import load_state, save_state
from stn_tune.hyper import Hyper, Value
from stn_tune.integrations import huggingface_checks as checks
from stn_tune.integrations.packages import require
from stn_tune.integrations.state import load_own_state, own_state
from stn_tune.integrations.steps import hyper_steps_due, response_due
from stn_tune.nn.attach import self_tune
from stn_tune.nn.response import SelfTuning
from stn_tune.stream import Stream

require("huggingface", transformers="5.3", accelerate="1.3")

from accelerate.data_loader import SeedableRandomSampler  # noqa: E402
from transformers import PreTrainedModel, Trainer, TrainerCallback  # noqa: E402
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR  # noqa: E402

FOLDER = "stn_tune"
"""Inside a checkpoint folder: what training continues from beside the plain model, its optimizer and scheduler."""

Base: Any = Trainer if TYPE_CHECKING else object


class SelfTuningMixin(Base):  # type: ignore[misc]
    """Makes a Trainer self-tuning: ``class Mine(SelfTuningMixin, Seq2SeqTrainer): ...``.

    The Trainer's own arguments, and

    Args:
        hyper: the hyperparameters. One that no dropout and no named regulariser reads, ``compute_loss`` of a subclass
            may read: ``self.hyper.current["decay"]``, where ``model.training``.
        tuning_dataset: data for hyperparameter steps, held out from training; gone through again and again, with the
            collator and the batch size of training. Keep ``eval_dataset`` apart from it if you select by it.
        bind, include, exclude: see :func:`stn_tune.self_tune`, which the model goes through here. An optimizer of your
            own (``optimizers``) must move the responses, too: call ``self_tune`` yourself, then build the optimizer,
            and leave these out.
        algorithm: "stn" or "delta"; further keywords are its options, as for :class:`stn_tune.SelfTuner`. T_train
            counts steps of the optimizer, not micro-batches.

    hp/* and scale/* are logged with the training loss; ``tuner.schedule`` is what was found. Evaluation uses the plain
    model at λ, and model files are those of a plain model, which ``from_pretrained`` loads without stn_tune. Their
    config keeps its dropout rates: one of them stands for many modules, which may have ended at different rates.
    Checkpoints have λ, σ, the responses and the tuner's state in a folder of their own. Resumed training is exact.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        args: Any = None,
        *more: Any,
        hyper: Hyper,
        tuning_dataset: Any = None,
        bind: Mapping[str, str] | None = None,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        algorithm: str = "stn",
        **keywords: Any,
    ):
        options = {name: keywords.pop(name) for name in option_names() if name in keywords}
        checks.check_options(algorithm, options)
        checks.check_data(tuning_dataset, keywords.get("train_dataset"))
        checks.check_model(model, {"bind": bind, "include": include, "exclude": exclude})
        checks.check_arguments(args)
        super().__init__(model, args, *more, **keywords)
        checks.check_parallelism(self)
        self.hyper, self.tuning_dataset = hyper, tuning_dataset
        self.tuner: SelfTuner = None  # type: ignore[assignment]  # until training begins
        self._options = {"algorithm": algorithm, **options}
        self_tune(self.model, hyper, bind=bind, include=include, exclude=exclude)
        self._prefix = next(f"{path}." for path, m in self.model.named_modules() if isinstance(m, SelfTuning))
        if self.optimizer is not None:
            checked_tuning(self.model, hyper, [self.optimizer])
        if isinstance(self.model, PreTrainedModel):  # for save_pretrained and push_to_hub of the model itself
            self.model._keys_to_ignore_on_save = [*(self.model._keys_to_ignore_on_save or ()), *self._added()]
        self.add_callback(_HyperparameterSteps(self))

    def get_tuning_dataloader(self) -> DataLoader[Any]:
        """Batches of ``tuning_dataset``, made as ``get_train_dataloader`` makes those of training."""
        size, sampler = self._train_batch_size, self._get_train_sampler
        return self._get_dataloader(self.tuning_dataset, "Tuning", size, sampler, True)  # type: ignore[no-any-return]

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Responses do not decay: that would pull hypergradients towards zero."""
        return [name for name in super().get_decay_parameter_names(model) if not name.startswith(self._prefix)]

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: str | None) -> Any:
        model, train_loader = super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        optimizer: Any = getattr(self.optimizer, "optimizer", self.optimizer)  # Accelerate wraps it
        if self.tuner is None or self.tuner.model is not model or self.tuner.optimizer is not optimizer:
            model.train()
            self.tuner = SelfTuner(model, self.hyper, optimizer, **self._options)
        loader = self.get_tuning_dataloader()
        sampler = getattr(loader.batch_sampler, "sampler", None)
        if isinstance(sampler, SeedableRandomSampler) and sampler.generator is None:
            sampler.generator = Generator()  # it would make one in its first pass, a loader that is restored has none
        self._tuning_batches = Stream(loader, rng.derived(self.args.seed, 2))
        if resume_from_checkpoint is not None:
            state = load_state(Path(resume_from_checkpoint, FOLDER))
            load_own_state(self.tuner, state["tuner"])
            if hasattr(loader, "set_epoch"):  # Accelerate shuffles by the number of the pass
                loader.set_epoch(state["batches"]["passes"])
            self._tuning_batches.load_state_dict(state["batches"])
        return model, train_loader

    def training_step(self, model: nn.Module, inputs: Any, *more: Any, **keywords: Any) -> Any:
        """Forward and backward pass of a micro-batch at λ+ε; two, where the algorithm trains responses on their own."""
        if not model.training:
            model.train()
        if response_due(self.tuner):
            with self.tuner.responding(inputs):
                super().training_step(model, inputs, *more, **keywords)
        with self.tuner.training(inputs):
            return super().training_step(model, inputs, *more, **keywords)

    def _tune(self) -> None:
        """After every T_train weight steps, T_valid hyperparameter steps."""
        if self.accelerator.optimizer_step_was_skipped:
            return
        for _ in range(hyper_steps_due(self.tuner, self.tuner.weight_steps - 1)):
            self.tuner.valid_step(self._tuning_loss, next(self._tuning_batches), self.accelerator.scaler)

    def _tuning_loss(self, model: nn.Module, batch: Any, hp: Mapping[str, Value]) -> Tensor:
        """The loss that ``evaluate`` has for a batch."""
        inputs = self._prepare_inputs(batch)
        count = self._get_num_items_in_batch([inputs], self.args.device)
        with self.compute_loss_context_manager():
            return self.compute_loss(model, inputs, num_items_in_batch=count)  # type: ignore[no-any-return]

    def log(self, logs: dict[str, float], *more: Any, **keywords: Any) -> None:
        """With every training loss, hp/* and scale/*."""
        if "loss" in logs and self.tuner is not None:
            logs.update({name: value for name, value in self.tuner.metrics().items() if name != "step"})
        super().log(logs, *more, **keywords)

    def _added(self) -> dict[str, Any]:
        """What self_tune added to the model's state: λ, σ and the responses."""
        return {key: value for key, value in self.model.state_dict().items() if key.startswith(self._prefix)}

    def _save(self, output_dir: str | None = None, state_dict: Mapping[str, Any] | None = None) -> None:
        state = self.model.state_dict() if state_dict is None else state_dict
        super()._save(output_dir, {key: value for key, value in state.items() if not key.startswith(self._prefix)})

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        if self.args.should_save:
            run = Path(self._get_output_dir(trial=trial))
            folder = run / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}" / FOLDER
            folder.mkdir(parents=True, exist_ok=True)
            batches = self._tuning_batches.state_dict()
            save_state(folder, {"model": self._added(), "tuner": own_state(self.tuner), "batches": batches})
        super()._save_checkpoint(model, trial)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        self._load_added(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        self._load_added(self.state.best_model_checkpoint)

    def _load_added(self, checkpoint: str) -> None:
        self.model.load_state_dict(load_state(Path(checkpoint, FOLDER))["model"], strict=False)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        missing = [key for key in load_result.missing_keys if not key.startswith(self._prefix)]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))


class SelfTuningTrainer(SelfTuningMixin, Trainer):  # type: ignore[misc]
    """Transformers' Trainer, whose model tunes its own hyperparameters; :class:`SelfTuningMixin` has the arguments."""


class _HyperparameterSteps(TrainerCallback):  # type: ignore[misc]
    """Between weight steps, when gradients are cleared and nothing has been logged, evaluated or saved yet."""

    def __init__(self, trainer: SelfTuningMixin):
        self._trainer = trainer

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._trainer._tune()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self._trainer.tuner.look()
