"""What a step would cost if only its operations counted, or only the weights that it reads and writes."""

from __future__ import annotations


def limits(tuned: float, plain: float) -> dict[str, float]:
    """Ratios by operation counts, for forward multiply-adds in layers that are converted and that are not.

    A plain step is forward, gradient of inputs, gradient of weights: 3. Per example, a converted layer does twice
    the work; a hyperparameter step needs no gradient of weights. Where all examples share one λ the weights are
    materialised: a weight step is a plain step, and a hyperparameter step needs the gradient of Ŵ(λ), but not of
    the layers that stay plain.
    """
    whole = 3 * (tuned + plain)
    return {
        "weight": 3 * (2 * tuned + plain) / whole,
        "weight, one ε": 1.0,
        "hyper": 2 * (2 * tuned + plain) / whole,
        "hyper, one λ": (3 * tuned + 2 * plain) / whole,
    }


def traffic(tuned: float, plain: float, *, clip: bool, momentum: bool) -> dict[str, float]:
    """Ratios by bytes of weights moved with one shared draw, for numbers of weights that respond and that do not.

    Every tensor of the size of W counts once per pass that reads or writes it. Plain: W is read forward and backward,
    dW written (3); the optimizer reads dW and W and writes W (3), and reads and writes its momentum (2); clipping
    reads dW for the norm, reads and writes it to scale it (3). Of weights that respond, materialising reads W and U
    and writes Ŵ, and backward reads dŴ and U and writes dU (6); the optimizer and the clipping do for U what they do
    for W, and without clipping the norm is still taken, to find what is not finite (1 per gradient). A hyperparameter
    step materialises without dU (5), reads Ŵ twice and writes dŴ (3), and lets W take up its response (3); of the other
    weights it reads W twice. Activations are left out, and so is that an LSTM reads its weights anew at every time
    step: the fewer examples share a weight, the nearer a step comes to these ratios, instead of :func:`limits`.
    """
    update = 3 + 2 * momentum + 3 * clip
    whole = (3 + update) * (tuned + plain)
    norm = 0 if clip else 1
    return {
        "weight": ((3 + update + norm) * (tuned + plain) + (6 + update + norm) * tuned) / whole,
        "hyper": (11 * tuned + 2 * plain) / whole,
    }
