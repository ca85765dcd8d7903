"""Augmentations against per-example references, with the noise recovered from the output."""

import colorsys
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stn_tune import augment

Augmentation = Callable[..., Tensor]

COLORS: dict[str, Augmentation] = {
    name: getattr(augment, name) for name in ("brightness", "contrast", "saturation", "hue")
}
BLENDS = {name: COLORS[name] for name in ("brightness", "contrast", "saturation")}
BY_STRENGTH: dict[str, Augmentation] = {
    **COLORS,
    "color_jitter": lambda x, a, **kw: augment.color_jitter(x, a, a, a, a, **kw),
    "scale_noise": augment.scale_noise,
    "flip": augment.flip,
    "cutout holes": lambda x, a, **kw: augment.cutout(x, _whole(a, 4), 3, max_holes=4, **kw),
    "cutout length": lambda x, a, **kw: augment.cutout(x, 2, _whole(a, 10), **kw),
}
EVERY: dict[str, Augmentation] = {**BY_STRENGTH, "crop": lambda x, a, **kw: augment.crop(x, 2, **kw)}


def _whole(strength: float | Tensor, most: int) -> float | Tensor:
    scaled = strength * 2 * most
    return scaled.round() if isinstance(scaled, Tensor) else round(scaled)


def _seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _images(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.rand(*shape, dtype=dtype, generator=_seeded(seed))


def _is_uniform(sample: Tensor, low: float, high: float) -> bool:
    """Kolmogorov-Smirnov at a level of 0.001."""
    sample = sample.flatten().sort().values
    steps = torch.arange(1, len(sample) + 1, dtype=sample.dtype) / len(sample)
    inside = bool(sample[0] >= low - 1e-9) and bool(sample[-1] <= high + 1e-9)
    return inside and float(((sample - low) / (high - low) - steps).abs().max()) < 1.95 * len(sample) ** -0.5


def _grey(image: Tensor) -> Tensor:
    return 0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]


# What every augmentation promises


@pytest.mark.parametrize("name", BY_STRENGTH)
@pytest.mark.parametrize("centred", [False, True])
def test_examples_of_strength_zero_are_bitwise_unchanged_in_a_mixed_batch(name: str, centred: bool) -> None:
    x = torch.randn(40, 3, 9, 7) if centred else _images(40, 3, 9, 7)
    strength = torch.tensor([0.0, 0.5]).repeat(20)
    y = BY_STRENGTH[name](x, strength, generator=_seeded())
    assert torch.equal(y[::2].view(torch.int32), x[::2].view(torch.int32))
    changed = (y != x).flatten(1).any(1)[1::2]
    assert changed.sum() >= (3 if name == "flip" else 15)


@pytest.mark.parametrize("name", BY_STRENGTH)
def test_strength_zero_is_the_identity_however_it_is_given(name: str) -> None:
    x = _images(8, 3, 9, 7)
    for zero in (0, 0.0, torch.tensor(0.0), torch.zeros(8), torch.zeros(8, dtype=torch.float64)):
        assert torch.equal(BY_STRENGTH[name](x, zero), x)
    assert torch.equal(augment.crop(x, 0), x)


@pytest.mark.parametrize("name", EVERY)
def test_number_scalar_tensor_and_vector_mean_the_same(name: str) -> None:
    x = _images(16, 3, 9, 7)
    strengths = (0.5, torch.tensor(0.5), torch.full((16,), 0.5), torch.full((16,), 0.5, dtype=torch.float64))
    first, *others = (EVERY[name](x, s, generator=_seeded(3)) for s in strengths)
    assert not torch.equal(first, x)
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("name", BY_STRENGTH)
def test_an_examples_result_does_not_depend_on_its_neighbours(name: str) -> None:
    x, strength = _images(12, 3, 9, 7), torch.full((12,), 0.5)
    whole = BY_STRENGTH[name](x, strength, generator=_seeded())
    other_x, other_strength = x.clone(), strength.clone()
    other_x[6:], other_strength[6:] = 0.3, 0.25
    assert torch.equal(BY_STRENGTH[name](other_x, other_strength, generator=_seeded())[:6], whole[:6])


@pytest.mark.parametrize("name", EVERY)
def test_noise_differs_between_equal_examples_and_between_calls(name: str) -> None:
    x = _images(1, 3, 9, 7).expand(64, -1, -1, -1)
    y = EVERY[name](x, 0.5, generator=_seeded(5))
    assert len({tuple(row.tolist()) for row in y.flatten(1)}) >= (2 if name == "flip" else 15)
    assert not torch.equal(y, EVERY[name](x, 0.5))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_shape_and_dtype_are_kept_and_the_input_is_not_written_to(name: str, dtype: torch.dtype) -> None:
    x = _images(6, 3, 9, 7).to(dtype)
    before = x.clone()
    y = EVERY[name](x, torch.full((6,), 0.5))
    assert (y.shape, y.dtype) == (x.shape, dtype)
    assert torch.equal(x, before)
    assert torch.isfinite(y).all()


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("strength", [0.5, torch.full((6,), 0.5, device="meta")])
def test_everything_stays_on_the_device_and_never_waits_for_it(name: str, strength: float | Tensor) -> None:
    """The meta device refuses both CPU operands and reading a value."""
    y = EVERY[name](torch.empty(6, 3, 9, 7, device="meta"), strength)
    assert (y.device.type, y.shape) == ("meta", (6, 3, 9, 7))


@pytest.mark.parametrize("name", EVERY)
def test_gradient_flows_to_the_images(name: str) -> None:
    x = _images(4, 3, 5, 4, dtype=torch.float64).mul(0.4).add(0.2).requires_grad_()
    strength = torch.tensor([0.0, 0.1, 0.3, 0.5])
    assert torch.autograd.gradcheck(lambda x: EVERY[name](x, strength, generator=_seeded(2)), x)


def test_gradient_is_finite_on_black_white_and_grey_pixels() -> None:
    x = torch.tensor([0.0, 0.5, 1.0]).expand(5, 3, 2, 3).clone().requires_grad_()
    augment.color_jitter(x, 0.5, 0.5, 0.5, 0.5).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue", "scale_noise"])
def test_gradient_flows_to_the_strength(name: str) -> None:
    x = _images(3, 3, 5, 4, dtype=torch.float64).mul(0.4).add(0.3)
    strength = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: BY_STRENGTH[name](x, s, generator=_seeded(2)), strength)


# Cutout


def _masked(size: int, batch: int, holes: float | Tensor, length: float | Tensor, seed: int = 0) -> Tensor:
    y = augment.cutout(torch.ones(batch, 2, size, size), holes, length, generator=_seeded(seed))
    assert torch.equal(y[:, 0], y[:, 1])
    return y[:, 0] == 0


@pytest.mark.parametrize("length", range(25))
def test_one_hole_is_a_square_of_exactly_its_length_away_from_the_border(length: int) -> None:
    mask = _masked(48, 64, 1, length)
    rows, columns = mask.any(2), mask.any(1)
    assert torch.equal(mask, rows[:, :, None] & columns[:, None, :])
    for edge in (rows, columns):
        interior = ~(edge[:, 0] | edge[:, -1])
        assert interior.sum() > 5
        assert (edge[interior].sum(1) == length).all()
        switches = edge.int().diff(dim=1).abs().sum(1)
        assert (switches <= 2).all()


@pytest.mark.parametrize("holes", range(5))
def test_holes_times_length_squared_pixels_are_masked_when_apart_and_interior(holes: int) -> None:
    for length in range(25):
        area = _masked(256, 32, holes, length, seed=length).sum((1, 2))
        assert area.max() == holes * length**2


def test_holes_and_length_may_differ_per_example() -> None:
    holes, length = torch.cartesian_prod(torch.arange(5), torch.tensor([0, 1, 2, 3, 8, 13, 24])).T
    most = torch.stack([_masked(256, 35, holes, length, seed=s).sum((1, 2)) for s in range(24)]).amax(0)
    assert torch.equal(most, holes * length**2)
    as_float = augment.cutout(torch.ones(35, 1, 40, 40), holes.float(), length.double(), generator=_seeded())
    assert torch.equal(as_float[:, 0] == 0, _masked(40, 35, holes, length))


@pytest.mark.parametrize(("length", "shares"), [(3, {4: 4, 6: 12, 9: 9}), (2, {1: 1, 2: 8, 4: 16})])
def test_centres_are_uniform_and_holes_are_clipped_at_the_border(length: int, shares: dict[int, int]) -> None:
    """On 5 x 5 pixels the 25 centres give these areas so many times each."""
    mask = _masked(5, 20_000, 1, length)
    area = mask.sum((1, 2))
    for pixels, share in shares.items():
        assert (area == pixels).float().mean() == pytest.approx(share / 25, abs=0.015)
    centre = _masked(5, 20_000, 1, 1)
    assert torch.allclose(centre.float().mean(0), torch.tensor(1 / 25), atol=0.006)


def test_cutout_keeps_the_other_pixels_and_bounds_the_holes() -> None:
    x = torch.randn(32, 3, 20, 14)
    y = augment.cutout(x, torch.full((32,), 3), 4, max_holes=3)
    assert torch.equal(y, torch.where(y == 0, 0, x))
    assert (augment.cutout(x, torch.full((32,), 3), 2, max_holes=1) == 0).sum((1, 2, 3)).max() <= 3 * 4
    assert torch.equal(augment.cutout(x, torch.full((32,), 3), 2, max_holes=0), x)


def test_large_positions_survive_half_precision() -> None:
    x = torch.ones(20, 1, 1, 4001, dtype=torch.bfloat16)
    area = (augment.cutout(x, 1, torch.full((20,), 301), generator=_seeded()) == 0).sum((1, 2, 3))
    assert area.max() == area.median() == 301


# Colour


@pytest.mark.parametrize(
    ("name", "channels"),
    [("brightness", 1), ("brightness", 3), ("contrast", 1), ("contrast", 3), ("saturation", 3)],
)
def test_blends_equal_the_per_example_definition(name: str, channels: int) -> None:
    """The factor is read off the pixel that moves least, then has to explain every other pixel."""
    x = _images(50, channels, 6, 5, dtype=torch.float64)
    amount = torch.linspace(0.05, 2, 50)
    y = BLENDS[name](x, amount, generator=_seeded())
    assert y.max() == 1
    for image, output, a in zip(x, y, amount.tolist(), strict=True):
        grey = _grey(image) if channels == 3 else image[0]
        towards = {"brightness": torch.zeros(()), "contrast": grey.mean(), "saturation": grey}[name]
        apart = (image - towards).abs()
        pixel = torch.where(apart < 1e-3, 9, apart).argmin()
        factor = ((output - towards) / (image - towards)).flatten()[pixel]
        assert max(0, 1 - a) - 1e-6 <= factor <= 1 + a + 1e-6
        expected = (factor * image + (1 - factor) * towards).clamp(0, 1)
        torch.testing.assert_close(output, expected, atol=1e-9, rtol=0)


def _turned(rgb: list[float], shift: float) -> list[float]:
    h, s, v = colorsys.rgb_to_hsv(*rgb)
    return list(colorsys.hsv_to_rgb((h + shift) % 1, s, v))


def test_hue_equals_colorsys_pixel_by_pixel() -> None:
    """A pure red pixel tells the shift, which then has to explain every other pixel."""
    x = _images(40, 3, 5, 5, dtype=torch.float64)
    x[:, :, 0, 0] = torch.tensor([1.0, 0.0, 0.0])
    x[:, :, 1] = x[:, :, 1].round()
    x[:, :, 2] = (x[:, :, 2] * 3).round() / 3
    x[:, :, 3] = 0.5 + 1e-5 * x[:, :, 3]
    amount = torch.linspace(0.02, 0.5, 40)
    y = augment.hue(x, amount, generator=_seeded())
    for image, output, a in zip(x, y, amount.tolist(), strict=True):
        shift = colorsys.rgb_to_hsv(*output[:, 0, 0].tolist())[0]
        assert min(shift, 1 - shift) <= a + 1e-6
        expected = [_turned(rgb, shift) for rgb in image.flatten(1).T.tolist()]
        torch.testing.assert_close(output.flatten(1).T, torch.tensor(expected).double(), atol=1e-7, rtol=0)


@settings(max_examples=200, deadline=None)
@given(rgb=st.tuples(*[st.floats(0, 1, width=32)] * 3), seed=st.integers(0, 99))
def test_hue_of_any_colour_in_single_precision(rgb: tuple[float, float, float], seed: int) -> None:
    x = torch.tensor([rgb, (1.0, 0.0, 0.0)]).T.reshape(1, 3, 1, 2)
    y = augment.hue(x, 0.5, generator=_seeded(seed))
    shift = colorsys.rgb_to_hsv(*y[0, :, 0, 1].tolist())[0]
    assert y[0, :, 0, 0].tolist() == pytest.approx(_turned(list(rgb), shift), abs=2e-6)
    assert y.min() >= 0
    assert y.max() <= 1


@pytest.mark.parametrize("amount", [0.3, 1.0, 1.7])
def test_factors_are_uniform_and_never_negative(amount: float) -> None:
    low, high = max(0.0, 1 - amount), 1 + amount
    colors = torch.tensor([0.2, 0.3, 0.25], dtype=torch.float64).view(1, 3, 1, 1).expand(4000, -1, -1, 2)
    x = torch.stack([colors[..., 0], 0.9 * colors[..., 1]], dim=-1)
    for name, blend in BLENDS.items():
        factor = {
            "brightness": lambda y: y[:, 0, 0, 0] / 0.2,
            "contrast": lambda y: (y[..., 0] - y[..., 1])[:, 0, 0] / 0.02,
            "saturation": lambda y: (y[:, 1] - y[:, 0])[:, 0, 0] / 0.1,
        }[name]
        assert _is_uniform(factor(blend(x, amount, generator=_seeded(7))), low, high), name


def test_hue_shift_and_scale_are_uniform() -> None:
    red = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).view(1, 3, 1, 1).expand(4000, -1, -1, -1)
    turned = augment.hue(red, 0.3, generator=_seeded()).flatten(1).tolist()
    shift = torch.tensor([colorsys.rgb_to_hsv(*rgb)[0] for rgb in turned])
    assert _is_uniform(shift - shift.round(), -0.3, 0.3)
    assert _is_uniform(augment.scale_noise(red, 0.4, generator=_seeded())[:, 0], 0.6, 1.4)


def test_color_jitter_is_its_four_steps_in_order() -> None:
    x = _images(10, 3, 6, 5)
    amounts = dict(zip(COLORS, torch.rand(4, 10, generator=_seeded()) * 0.5, strict=True))
    expected, generator = x, _seeded(4)
    for name, step in COLORS.items():
        expected = step(expected, amounts[name], generator=generator)
    assert torch.equal(augment.color_jitter(x, **amounts, generator=_seeded(4)), expected)
    assert augment.color_jitter(x) is x
    grey = _images(10, 1, 6, 5)
    assert not torch.equal(augment.color_jitter(grey, brightness=0.5, contrast=torch.full((10,), 0.5)), grey)


# Geometry and scale


def test_scale_noise_is_one_factor_per_example() -> None:
    x = torch.randn(100, 2, 4, 4, dtype=torch.float64)
    amount = torch.linspace(0, 1, 100)
    factor = (augment.scale_noise(x, amount, generator=_seeded()) / x).flatten(1)
    torch.testing.assert_close(factor, factor[:, :1].expand_as(factor))
    assert ((factor[:, 0] - 1).abs() <= amount + 1e-6).all()


def test_flip_mirrors_whole_examples_with_their_probability() -> None:
    x = _images(9000, 1, 2, 3)
    y = augment.flip(x, torch.tensor([0.0, 0.3, 1.0]).repeat(3000), generator=_seeded())
    mirrored = (y == x.flip(-1)).flatten(1).all(1)
    assert (mirrored | (y == x).flatten(1).all(1)).all()
    assert mirrored.view(-1, 3).double().mean(0).tolist() == pytest.approx([0, 0.3, 1], abs=0.03)
    assert torch.equal(augment.flip(x, 1), x.flip(-1))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_crop_takes_every_window_of_the_padded_image_equally_often(layout: torch.memory_format) -> None:
    image = torch.arange(1.0, 41.0).view(1, 2, 4, 5)
    padded = torch.zeros(1, 2, 8, 9)
    padded[..., 2:6, 2:7] = image
    windows = torch.stack([padded[0, :, i : i + 4, j : j + 5] for i in range(5) for j in range(5)])
    x = image.expand(5000, -1, -1, -1).contiguous(memory_format=layout)
    y = augment.crop(x, 2, generator=_seeded())
    matches = (y.flatten(1)[:, None] == windows.flatten(1)).all(2)
    assert (matches.sum(1) == 1).all()
    assert torch.allclose(matches.float().mean(0), torch.tensor(1 / 25), atol=0.012)


# Mistakes


RGB = torch.rand(4, 3, 6, 6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: augment.brightness(RGB[0], 0.1), r"brightness: x has shape \(3, 6, 6\): must be 4-D"),
        (lambda: augment.crop(RGB.byte(), 2), r"crop: x is torch.uint8: must be floating point"),
        (lambda: augment.color_jitter(RGB.byte()), r"color_jitter: x is torch.uint8"),
        (lambda: augment.flip(RGB, torch.rand(3)), r"flip: p has shape \(3,\): .* \(4,\)"),
        (lambda: augment.contrast(RGB, torch.rand(4, 1)), r"contrast: amount has shape \(4, 1\)"),
        (lambda: augment.scale_noise(RGB, -0.1), r"scale_noise: amount=-0.1: must be a number at least 0"),
        (lambda: augment.scale_noise(RGB, float("inf")), r"scale_noise: amount=inf"),
        (lambda: augment.color_jitter(RGB, contrast=-1), r"contrast: amount=-1"),
        (lambda: augment.hue(RGB, 0.6), r"hue: amount=0.6: must be a number in \[0, 0.5\]"),
        (lambda: augment.flip(RGB, 1.5), r"flip: p=1.5: must be a number in \[0, 1\]"),
        (lambda: augment.flip(RGB, float("nan")), r"flip: p=nan"),
        (lambda: augment.cutout(RGB, 1.5, 2), r"cutout: holes=1.5: must be a whole number at least 0"),
        (lambda: augment.cutout(RGB, 1, -2), r"cutout: length=-2: must be a whole number"),
        (lambda: augment.cutout(RGB, 3, 2, max_holes=2), r"cutout: max_holes=2 .* at least"),
        (lambda: augment.cutout(RGB, torch.ones(4), 2, max_holes=-1), r"cutout: max_holes=-1"),
        (lambda: augment.crop(RGB, -1), r"crop: padding=-1 is negative"),
        (lambda: augment.hue(RGB[:, :1], 0), r"hue: x has 1 channels: must have 3"),
        (lambda: augment.color_jitter(RGB[:, :1], saturation=0.1), r"saturation: x has 1 channels"),
        (lambda: augment.contrast(RGB[:, :2], 0.1), r"contrast: x has 2 channels: must have 1 or 3"),
    ],
)
def test_mistakes_get_one_line_that_says_what_would_be_right(call: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
