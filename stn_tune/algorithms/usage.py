"""Whether what is tuned is used: responses are trained, hyperparameters are read, bound dropouts are called."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from stn_tune.errors import ConversionError, UnusedError
from stn_tune.hyper import HyperSample
from stn_tune.nn.response import Responding, SelfTuning
from stn_tune.training import moved_by


def _refuse_to_recompute(*_: Any) -> None:
    if torch._C._current_graph_task_id() != -1:  # as torch.utils.checkpoint asks: is a backward pass under way?
        raise RuntimeError(
            "the backward pass computes activations again (torch.utils.checkpoint), but no longer at λ+ε: call "
            "loss.backward() within the `with`, as in `with tuner.training(batch)`"
        )


class Usage:
    """What a tuner's first steps have shown; each mistake is told once, at the first step that shows it."""

    def __init__(self, tuning: SelfTuning, optimizers: Sequence[Optimizer]):
        self._tuning, self._optimizers = tuning, optimizers
        self.read: set[str] = set()
        """Hyperparameters that training has read."""
        self.checked = False
        """Whether a backward pass has reached the responses."""
        self._moved: set[int] = set()
        self._trained: set[str] | None = None
        self._awaiting: list[RemovableHandle] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_moved": set(), "_awaiting": []}  # ids of parameters: a copy has others

    def check_moved(self, responding: Sequence[Responding]) -> None:
        """A module that was replaced after the optimizer was built would not be trained."""
        if not {id(r.weight) for r in responding} <= self._moved:
            self._moved = moved_by(*self._optimizers)
            for r in responding:
                if id(r.weight) not in self._moved:
                    raise ValueError(
                        f"the optimizer does not move {r.path}, which responds: build the optimizer after self_tune "
                        f"and after the last change of the model, or freeze or exclude the parameter before self_tune"
                    )

    def check_responses(self, responding: Sequence[Responding], *, per_example: bool) -> None:
        """After the first backward pass: a response without a gradient, whose parameter has one, was not used."""
        if self.checked:
            return
        for r in responding:
            if r.response.V.grad is None and r.weight.grad is not None:
                raise ConversionError(
                    f"{r.path} was read past its module (kept in a list, or under another name), where it does not "
                    f"respond: read it from its module in forward, or exclude=[{r.path!r}]"
                    + ("; or use draw='batch', as its module was not called" if per_example else "")
                )
        self._trained = {r.path for r in responding if r.response.V.grad is not None}
        self.checked = True

    def await_backward(self, responding: Sequence[Responding]) -> None:
        """The backward pass comes after the step: what it computes again would be computed at other weights."""
        if not self.checked:
            modules = dict.fromkeys(place.module for r in responding for place in r.places)
            self._awaiting = [module.register_forward_pre_hook(_refuse_to_recompute) for module in modules]

    def end_waiting(self) -> None:
        """Forward passes are those of another step."""
        for handle in self._awaiting:
            handle.remove()
        self._awaiting = []

    def warn_of_lost(self, loss: Tensor, shared: Mapping[str, Tensor]) -> None:
        """In the first hyperparameter step: what responds in training should do so in validation."""
        if self._trained is None or not shared:
            return
        paths = list(shared)
        found = torch.autograd.grad(loss, [shared[path] for path in paths], allow_unused=True, retain_graph=True)
        lost = [path for path, grad in zip(paths, found, strict=True) if grad is None and path in self._trained]
        self._trained = None
        if lost and len(lost) < len(paths):
            warnings.warn(
                f"{', '.join(lost)}: in the training loss, but not in the validation loss (read by a penalty alone, or "
                f"merged with others in eval mode), so λ gets no gradient through it",
                stacklevel=4,
            )

    def check_read(self, sample: HyperSample, steps: int) -> None:
        """By the first hyperparameter step, training (or, where it is direct, validation) must have read every name."""
        hyper = self._tuning.hyper
        read = self.read | (sample.read & hyper.direct)
        unread = [name for name in hyper.space.names if name not in read]
        if unread:
            raise UnusedError(
                f"{', '.join(unread)}: read by neither the model nor the loss in {steps} training steps, "
                f"so tuning would have no meaning; use hp[{unread[0]!r}] in the loss, name a regulariser after it, "
                f"bind a dropout to it, or take it out of the space"
            )
        idle = [binding.where for binding in self._tuning.bindings if not binding.used]
        if idle:
            raise UnusedError(
                f"{', '.join(idle)}: bound, but in {steps} training steps neither called nor read; bind "
                f"what the forward pass uses, or leave it out of bind"
            )
        misread = sorted(sample.read - hyper.direct - set(hyper.constants))
        if misread:
            warnings.warn(
                f"{', '.join(misread)}: read in eval mode, where its direct effect on the validation loss gets no "
                f"gradient: guard what only regularises by `if model.training`, or name it in Hyper(direct=[...])",
                stacklevel=3,
            )

    def state_dict(self) -> dict[str, Any]:
        """Plain values."""
        used = [binding.where for binding in self._tuning.bindings if binding.used]
        return {"read": sorted(self.read), "used": used, "checked": self.checked}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state."""
        self.read, self.checked = set(state["read"]), state["checked"]
        for binding in self._tuning.bindings:
            binding.used = binding.where in state["used"]
