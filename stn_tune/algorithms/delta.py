"""Δ-STN (Bae and Grosse 2020): weights are trained at λ, as ever; responses in steps of their own, at λ+ε."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.backends import mkldnn
from torch.utils._pytree import tree_map_only

from stn_tune.algorithms.options import DeltaOptions
from stn_tune.algorithms.tuner import SelfTuner
from stn_tune.hyper import HyperSample, Value
from stn_tune.nn.first_order import dual, first_order, is_dual
from stn_tune.nn.response import Responding, Response
from stn_tune.training import Batch, LossFn, checked_loss, copied_buffers, put_back, weakly


class DeltaSTN(SelfTuner):
    """Weight step: W on f(λ, W), an ordinary step; every K steps U and V on f(λ+ε, Ŵ(λ+ε)), W held.

    In pieces, one ``with`` more; the optimizer's step then moves both::

        with tuner.responding(batch) as hp:     # every K-th step
            loss_fn(model, batch, hp).backward()
        with tuner.training(batch) as hp:
            loss_fn(model, batch, hp).backward()
        optimizer.step(); optimizer.zero_grad()

    The loss of a batch is computed twice then: what it carries from batch to batch is put back in between, if the tuner
    was given it (``carries``).
    """

    options_type = DeltaOptions
    options: DeltaOptions

    def __init__(self, *args: Any, **keywords: Any):
        super().__init__(*args, **keywords)
        self._origin = self.hyper.lam.clone()
        self._unpaired: Tensor | None = None
        self._alone = False
        self._raw: list[Response] = []
        self._uncentred: list[tuple[Responding, Tensor, Tensor]] = []
        self._stepped = False

    @contextmanager
    def training(self, batch: Batch, sample: HyperSample | None = None) -> Iterator[HyperSample]:
        """The plain model at λ, for a forward and backward pass; λ+ε in force where objectives are not separate.

        Right after :meth:`responding`, on the same batch, the gradients of the responses become relative to this pass.
        """
        if not self.options.separate:
            with self._perturbed(batch, sample) as drawn:
                yield drawn
            return
        self._require_training()
        self._tuning.check_idle()
        self._uncentred = [] if self._stepped else self._uncentred  # of an earlier step
        plain = self.hyper.mean()
        idle = [p for p in self._responses() if p.grad is None]
        with self._paired(), self._plain(plain):
            yield plain
        if self._processes.several:
            for p in idle:
                p.grad = None  # a response to 0 has none; momentum must not move it
        self._usage.read |= plain.read
        self._tuning.passes += 1

    @contextmanager
    def _paired(self) -> Iterator[None]:
        """Subtracts from the responses' gradients what they would be at this pass's gradient of the weights, G.

        The expectation of that is 0, as G does not depend on ε (a control variate).
        """
        epsilon, self._unpaired = self._unpaired, None
        self._alone = epsilon is None
        if epsilon is None:
            yield
            return
        earlier = [(r, None if r.weight.grad is None else r.weight.grad.clone()) for r in self._tuning.responding()]
        yield
        self._processes.average([epsilon])
        for r, before in earlier:
            if r.weight.grad is not None:
                r.response.subtract_gradient(r.weight.grad if before is None else r.weight.grad - before, epsilon)
                self._raw.append(r.response)

    def _plain(self, sample: HyperSample) -> AbstractContextManager[object]:
        """The plain weights; with several processes as responses to 0, as each parameter must get a gradient there."""
        if self._processes.several:
            return self._tuning.applied(sample)
        return self._tuning.plain(sample)

    @contextmanager
    def responding(self, batch: Batch, sample: HyperSample | None = None) -> Iterator[HyperSample]:
        """λ+ε in force, all weights held, for the forward and backward pass that trains the responses.

        Random numbers are given back: :meth:`training`, which comes next, has the same ones.
        """
        if not self.options.separate:
            raise RuntimeError("separate is False: training(batch) trains the responses together with the weights")
        carried = None if self.carries is None else copy.deepcopy(self.carries.state_dict())
        buffers = copied_buffers(self.model)
        moved = {id(p) for p in self._responses()}
        with self._processes.unsynchronised(), self._perturbed(batch, sample, moved) as drawn, self._same_numbers():
            try:
                yield drawn
            finally:
                put_back(buffers)  # running statistics: training updates them
                if self.carries is not None:
                    self.carries.load_state_dict(carried)
        if self.options.in_pairs and not self._alone:  # after a training pass there is none to pair with
            self._unpaired = drawn.delta.clone()

    def _same_numbers(self) -> AbstractContextManager[None]:
        """torch's generators of the CPU and of the model's device are put back in the end."""
        device = self.hyper.lam.device
        index = [] if device.type == "cpu" else [device]
        return torch.random.fork_rng(index, device_type="cuda" if device.type == "cpu" else device.type)

    def train_step(self, loss_fn: LossFn, batch: Batch) -> Tensor:
        """A weight step; in every K-th, the responses move, too. Returns the loss at λ."""
        if not self.options.separate:
            return super().train_step(loss_fn, batch)
        with self._unharmed():
            self._zero_grad()
            responses, finite, perturbed = self._responses(), None, None
            if self.weight_steps % self.options.response_every == 0:
                with self.responding(batch) as sample:
                    perturbed = self._differentiated(loss_fn, batch, sample)
            with self.training(batch) as sample:
                loss = self._differentiated(loss_fn, batch, sample)
            if perturbed is not None:
                finite = self._finite("perturbed loss", perturbed, "gradient", responses, self._name, self.clip)
            own = {id(p) for p in responses}
            weights = [p for p in self._weights() if id(p) not in own]
            all_finite = self._finite("training loss", loss, "gradient", weights, self._name, self.clip)
            self._move(all_finite if finite is None or all_finite is None else finite & all_finite)
        return loss.detach()

    def state_dict(self) -> dict[str, Any]:
        """Everything that training continues from, bit for bit; ``torch.load`` reads it with weights_only=True."""
        return super().state_dict() | {"origin": self._origin}

    def _load(self, state: Mapping[str, Any]) -> None:
        names = list(state["schedule"]["space"])
        super()._load(state)
        self._origin = state["origin"][[names.index(name) for name in self.hyper.space.names]].to(self._origin)

    def _responses(self) -> list[Tensor]:
        return list(self._tuning.responses.parameters())

    def _differentiated(self, loss_fn: LossFn, batch: Batch, hp: Mapping[str, Value]) -> Tensor:
        losses = checked_loss(loss_fn(self.model, batch, hp))
        if is_dual(losses):
            raise RuntimeError(
                "linearised=True, but the loss reads weights past the model's output: call the model as model(...), "
                "take a penalty on weights by stn_tune.nn.l2, or use linearised=False"
            )
        return self._backward(losses)

    @contextmanager
    def _applied(self, sample: HyperSample, responding: list[Responding]) -> Iterator[dict[str, Tensor]]:
        offset = None if self.options.centred else self.hyper.lam - self._origin
        if offset is not None:
            self._uncentred = [(r, offset, r.response.term(offset).detach()) for r in responding]
            self._stepped = False
        with ExitStack() as stack:
            if self.options.linearised:
                stack.enter_context(_first_order_outputs(self.model, sample))
            watch = not self._usage.checked and not self._compiled
            yield stack.enter_context(self._tuning.applied(sample, responding, watch=watch, offset=offset))

    def _before_weight_step(self) -> None:
        super()._before_weight_step()
        raw, self._raw = dict.fromkeys(self._raw), []
        if raw and self.options.damping is not None:
            sigma = self.hyper.sigma.detach()
            for response in raw:
                response.precondition(sigma, self.options.damping)

    def _count_step(self) -> None:
        super()._count_step()
        self._unpaired, self._alone = None, False
        if self._raw and self.options.damping is not None:
            self._raw = []
            raise RuntimeError(
                "a response pass ran inside optimizer.step(closure), where its gradients come too late to be scaled: "
                "run it before optimizer.step(), or use damping=None"
            )

    def _hook(self) -> None:
        super()._hook()
        for one in self.optimizers:
            one.register_step_post_hook(weakly(self._move_with_responses))

    @torch.no_grad()
    def _move_with_responses(self) -> None:
        """W is the weight at λ: it changes with the response to the offset, whichever optimizer moves that."""
        moved = []
        for r, offset, before in self._uncentred:
            now = r.response.term(offset)
            r.weight.add_(now - before)
            moved.append((r, offset, now))
        self._uncentred, self._stepped = moved, True

    def _follow(self, shift: Tensor) -> None:
        if self.options.follow:
            super()._follow(shift)


@contextmanager
def _first_order_outputs(model: nn.Module, sample: HyperSample) -> Iterator[None]:
    """The model's outputs are f + ∂f/∂δ · ε, with the derivative at δ = 0."""

    def to_first_order(module: nn.Module, inputs: Any, output: Any) -> Any:
        return tree_map_only(Tensor, first_order, output)

    handle = model.register_forward_hook(to_first_order)
    try:
        # mkldnn's LSTM has no forward-mode derivative
        with forward_ad.dual_level(), mkldnn.flags(False, deterministic=None, allow_tf32=None):
            epsilon = sample.delta
            sample.delta = dual(torch.zeros_like(epsilon), epsilon)
            yield
            sample.delta = epsilon
    except (NotImplementedError, RuntimeError) as error:
        if "forward AD" not in str(error) and "forward mode AD" not in str(error):
            raise
        raise RuntimeError(
            f"linearised=True needs forward-mode derivatives, which a layer of {type(model).__name__} does not have "
            f"({str(error).splitlines()[0]}): use linearised=False"
        ) from error
    finally:
        handle.remove()
