"""Batched image augmentation whose strength may differ from example to example.

Every function maps images `x` of shape (B, C, H, W) to images of the same shape, dtype and device, and
draws its noise anew for each example. A strength is a number, a 0-d tensor or a `(B,)` tensor, so one
function serves a fixed hyperparameter and the per-example samples of a Self-Tuning Network alike. An
example whose strength is 0 comes out bitwise unchanged; a plain number 0 returns `x` itself.

The colour functions follow torchvision's `ColorJitter` and expect images in [0, 1]: apply them before any
normalisation. The values of strength tensors are not checked, as that would wait for the device.
"""

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

__all__ = [
    "brightness",
    "color_jitter",
    "contrast",
    "crop",
    "cutout",
    "flip",
    "hue",
    "saturation",
    "scale_noise",
]

Strength = float | Tensor


def cutout(
    x: Tensor,
    holes: Strength,
    length: Strength,
    *,
    max_holes: int | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Cutout (DeVries & Taylor, 2017): up to `holes` squares of `length` pixels set to 0 in each image.

    Centres are uniform over the pixels and a hole is clipped at the border, so an image loses at most
    `holes * length**2` pixels; holes may overlap. A hole centred on pixel c covers
    c - length // 2, ..., c - length // 2 + length - 1 in either direction.

    Args:
        x: images, (B, C, H, W).
        holes: whole number of holes.
        length: whole number of pixels along a hole's side.
        max_holes: the most holes any image may get, the bound that sizes the work. By default `holes` if it
            is a number; if it is a tensor, its largest value, which waits for the device once: give the bound
            (the upper end of the search space) to avoid that.
    """
    _check_images("cutout", x)
    count = _strength("cutout", "holes", holes, x, whole=True)
    side = _strength("cutout", "length", length, x, whole=True)
    if max_holes is None:
        max_holes = int(holes.max()) if isinstance(holes, Tensor) else int(holes)
    elif max_holes < 0 or (not isinstance(holes, Tensor) and holes > max_holes):
        raise ValueError(f"cutout: max_holes={max_holes} is too small: must be at least holes and 0")
    if max_holes == 0 or _is_zero(length):
        return x

    drawn = torch.arange(max_holes, device=x.device) < count.view(-1, 1)
    rows = _spans(x.shape[-2], side, x, max_holes, generator) & drawn.unsqueeze(-1)
    columns = _spans(x.shape[-1], side, x, max_holes, generator)
    covered = rows.mT.to(x.dtype) @ columns.to(x.dtype)
    return x * (covered == 0).unsqueeze(1)


def _spans(size: int, side: Tensor, x: Tensor, holes: int, generator: Generator | None) -> Tensor:
    """Pixels of an axis of `size` that each hole covers: bool, (B, holes, size)."""
    centre = torch.randint(size, (len(x), holes, 1), device=x.device, generator=generator)
    side = side.view(-1, 1, 1)
    offset = torch.arange(size, device=x.device) - centre + side // 2
    return (offset >= 0) & (offset < side)


def brightness(x: Tensor, amount: Strength, *, generator: Generator | None = None) -> Tensor:
    """Multiply each image by f ~ U(max(0, 1 - amount), 1 + amount) and clamp to [0, 1]."""
    _check_images("brightness", x)
    a = _strength("brightness", "amount", amount, x)
    if _is_zero(amount):
        return x
    return _clamp(x * _factor(x, a, generator), a)


def contrast(x: Tensor, amount: Strength, *, generator: Generator | None = None) -> Tensor:
    """Blend each image with its mean grey m: f x + (1 - f) m, clamped to [0, 1].

    f ~ U(max(0, 1 - amount), 1 + amount). Needs C = 3, or C = 1, where m is the image's own mean.
    """
    _check_images("contrast", x, channels=(1, 3))
    a = _strength("contrast", "amount", amount, x)
    if _is_zero(amount):
        return x
    f = _factor(x, a, generator)
    mean = x.mean((2, 3), keepdim=True)
    return _clamp((x * f).add_((1 - f) * (_grey(mean) if x.shape[1] == 3 else mean)), a)


def saturation(x: Tensor, amount: Strength, *, generator: Generator | None = None) -> Tensor:
    """Blend each image with its greyscale version g: f x + (1 - f) g, clamped to [0, 1].

    f ~ U(max(0, 1 - amount), 1 + amount), g = 0.2989 R + 0.587 G + 0.114 B. Needs C = 3.
    """
    _check_images("saturation", x, channels=(3,))
    a = _strength("saturation", "amount", amount, x)
    if _is_zero(amount):
        return x
    f = _factor(x, a, generator)
    return _clamp((x * f).add_(_grey(x) * (1 - f)), a)


def hue(x: Tensor, amount: Strength, *, generator: Generator | None = None) -> Tensor:
    """Turn each image's hue by s ~ U(-amount, amount) of the colour circle, amount in [0, 0.5]. Needs C = 3.

    This is the rotation through HSV, exactly, without its case distinctions. With value v = max(R, G, B),
    chroma c = v - min(R, G, B) and hue h in turns, red at 0::

        |h| = 1/3 + (G + B - R - v) / 6c,    sign h = sign(G - B),
        channel at hue z (R: 0, G: 1/3, B: 2/3) = v + c clamp(1 - 6 d, -1, 0),

    where d is the distance from h + s to z around the circle. No value leaves the range of its pixel's own
    three, so there is nothing to clamp.
    """
    _check_images("hue", x, channels=(3,))
    a = _strength("hue", "amount", amount, x, upper=0.5)
    if _is_zero(amount):
        return x
    shift = a * _symmetric(x, generator)
    red, green, blue = x.chunk(3, dim=1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    turn = (green + blue).sub_(red).sub_(value).div_((6 * chroma).clamp_min_(torch.finfo(x.dtype).tiny))
    primaries = torch.arange(3, dtype=x.dtype, device=x.device).div_(3).view(1, 3, 1, 1)
    turn = turn.add_(1 / 3).copysign(green - blue) - (primaries - shift)
    distance = turn.sub_(turn.round()).abs_()
    rotated = distance.mul_(-6).add_(1).clamp_(-1, 0).mul_(chroma).add_(value)
    return rotated.lerp_(x, (a == 0).to(x.dtype))  # picks like torch.where, but vectorised


def color_jitter(
    x: Tensor,
    brightness: Strength = 0,
    contrast: Strength = 0,
    saturation: Strength = 0,
    hue: Strength = 0,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """`brightness`, `contrast`, `saturation` and `hue` noise, always in this order.

    The plain number 0 skips a step, so greyscale images may be given brightness and contrast.
    """
    _check_images("color_jitter", x)
    for step, amount in zip(_COLOR_STEPS, (brightness, contrast, saturation, hue), strict=True):
        if not _is_zero(amount):
            x = step(x, amount, generator=generator)
    return x


_COLOR_STEPS = (brightness, contrast, saturation, hue)


def scale_noise(x: Tensor, amount: Strength, *, generator: Generator | None = None) -> Tensor:
    """Scale each image by 1 + amount u, u ~ U(-1, 1), without clamping."""
    _check_images("scale_noise", x)
    a = _strength("scale_noise", "amount", amount, x)
    if _is_zero(amount):
        return x
    return x * (1 + a * _symmetric(x, generator))


def flip(x: Tensor, p: Strength = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Mirror each image left to right with probability p."""
    _check_images("flip", x)
    probability = _strength("flip", "p", p, x, upper=1)
    if _is_zero(p):
        return x
    return torch.where(_uniform(x, generator) < probability, x.flip(-1), x)


def crop(x: Tensor, padding: int, *, generator: Generator | None = None) -> Tensor:
    """Pad each image with `padding` zeros on every side, then cut a random (H, W) window out of it."""
    _check_images("crop", x)
    if padding < 0:
        raise ValueError(f"crop: padding={padding} is negative: must be a whole number of pixels, at least 0")
    if padding == 0:
        return x
    batch, channels, height, width = x.shape
    top, left = torch.randint(2 * padding + 1, (2, batch, 1, 1), device=x.device, generator=generator).unbind()
    rows = top + torch.arange(height, device=x.device).view(-1, 1)
    columns = left + torch.arange(width, device=x.device)
    window = (rows * (width + 2 * padding) + columns).view(batch, 1, -1)
    padded = F.pad(x, (padding,) * 4).flatten(2)
    return padded.gather(2, window.expand(-1, channels, -1)).view(x.shape)


def _check_images(function: str, x: Tensor, channels: tuple[int, ...] = ()) -> None:
    if x.dim() != 4:
        raise ValueError(f"{function}: x has shape {tuple(x.shape)}: must be 4-D, (batch, channels, height, width)")
    if not x.is_floating_point():
        raise ValueError(f"{function}: x is {x.dtype}: must be floating point, for images in [0, 1]")
    if channels and x.shape[1] not in channels:
        allowed = " or ".join(map(str, channels))
        raise ValueError(f"{function}: x has {x.shape[1]} channels: must have {allowed}")


def _strength(
    function: str, name: str, value: Strength, x: Tensor, *, upper: float = math.inf, whole: bool = False
) -> Tensor:
    """`value` beside `x`, in its dtype or, if `whole`, as int64: (1, 1, 1, 1) or (B, 1, 1, 1)."""
    dtype = torch.int64 if whole else x.dtype
    if isinstance(value, Tensor):
        if value.dim() > 0 and value.shape != x.shape[:1]:
            raise ValueError(
                f"{function}: {name} has shape {tuple(value.shape)}: "
                f"must be a number, 0-d or ({len(x)},), one per example"
            )
        return value.to(x.device, dtype).view(-1, 1, 1, 1)
    if not (0 <= value <= upper and math.isfinite(value)) or (whole and value % 1 != 0):
        kind = "a whole number" if whole else "a number"
        bound = "at least 0" if upper == math.inf else f"in [0, {upper}]"
        raise ValueError(f"{function}: {name}={value}: must be {kind} {bound}")
    return torch.full((1, 1, 1, 1), value, dtype=dtype, device=x.device)


def _is_zero(value: Strength) -> bool:
    return not isinstance(value, Tensor) and value == 0


def _uniform(x: Tensor, generator: Generator | None) -> Tensor:
    """u ~ U(0, 1) for each example: (B, 1, 1, 1)."""
    return torch.rand(len(x), 1, 1, 1, dtype=x.dtype, device=x.device, generator=generator)


def _symmetric(x: Tensor, generator: Generator | None) -> Tensor:
    """u ~ U(-1, 1) for each example: (B, 1, 1, 1)."""
    return 2 * _uniform(x, generator) - 1


def _factor(x: Tensor, amount: Tensor, generator: Generator | None) -> Tensor:
    """f ~ U(max(0, 1 - amount), 1 + amount) for each example, exactly 1 where amount is 0: (B, 1, 1, 1)."""
    low = (1 - amount).clamp_min(0)
    return low + (1 + amount - low) * _uniform(x, generator)


def _clamp(x: Tensor, amount: Tensor) -> Tensor:
    """Clamp to [0, 1], in place, the images whose amount is not 0."""
    slack = torch.zeros_like(amount).masked_fill_(amount == 0, math.inf)
    return x.clamp_min_(-slack).clamp_max_(1 + slack)


def _grey(x: Tensor) -> Tensor:
    """Luma of RGB images: (B, 3, H, W) -> (B, 1, H, W)."""
    red, green, blue = x.chunk(3, dim=1)
    return (0.2989 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)
