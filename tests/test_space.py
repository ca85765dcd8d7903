"""One conformance suite for every kind of domain, then its properties over random bounds, then each error."""

import json
import math
import pickle
import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ray import tune
from ray.tune.search import sample
from ray.tune.search.variant_generator import generate_variants

from stn_tune.domains import describe, positive, real
from stn_tune.errors import SpaceError
from stn_tune.space import HyperSpace
from stn_tune.transform import Transform

INF, NAN = math.inf, math.nan
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

CONTINUOUS = {
    "uniform": (tune.uniform(0, 0.75), 0, 0.75),
    "uniform_inexact_ends": (tune.uniform(-0.7, 0.1), -0.7, 0.1),
    "uniform_offset": (tune.uniform(1000, 1001), 1000, 1001),
    "uniform_huge": (tune.uniform(-(10**30), 10**30), -1e30, 1e30),
    "float": (sample.Float(2, 3), 2, 3),
    "loguniform": (tune.loguniform(1e-5, 1e-1), 1e-5, 1e-1),
    "loguniform_huge": (tune.loguniform(1e-30, 1e30), 1e-30, 1e30),
    "positive": (positive(), 0, INF),
    "positive_low": (positive(0.7, 3), 0.7, INF),
    "positive_below_zero": (positive(-2, 1e-3), -2, INF),
    "real": (real(), -INF, INF),
    "randn": (tune.randn(10, 0.5), -INF, INF),
}
DISCRETE = {
    "randint": (tune.randint(0, 5), [0, 1, 2, 3, 4]),
    "randint_negative": (tune.randint(-2, 1), [-2, -1, 0]),
    "randint_numpy": (tune.randint(np.int64(7), np.int64(9)), [7, 8]),
    "integer": (sample.Integer(1, 3), [1, 2]),
    "lograndint": (tune.lograndint(1, 9), [1, 2, 3, 4, 5, 6, 7, 8]),
    "qrandint": (tune.qrandint(1, 10, 3), [3, 6, 9]),
    "qrandint_upper_included": (tune.qrandint(-4, 4, 2), [-4, -2, 0, 2, 4]),
    "qrandint_of_1": (tune.qrandint(0, 4), [0, 1, 2, 3]),
    "qlograndint": (tune.qlograndint(1, 20, 4), [4, 8, 12, 16, 20]),
    "qlograndint_of_1": (tune.qlograndint(2, 5, 1), [2, 3, 4]),
    "quniform": (tune.quniform(0, 0.7, 0.1), [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
    "quniform_thirds": (tune.quniform(-1, 1, 1 / 3), [-1.0, -2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3, 1.0]),
    "quniform_whole": (tune.quniform(2, 6, 2), [2.0, 4.0, 6.0]),
    "quniform_of_1": (tune.quniform(0, 3, 1), [0.0, 1.0, 2.0, 3.0]),
    "quniform_small": (tune.quniform(1e-14, 3e-14, 1e-14), [1e-14, 2e-14, 3e-14]),
    "qloguniform": (tune.qloguniform(0.5, 2.5, 0.5), [0.5, 1.0, 1.5, 2.0, 2.5]),
    "choice": (tune.choice([16, 64, 256]), [16, 64, 256]),
    "choice_falling": (tune.choice([1.0, 0.5, 0.1]), [1.0, 0.5, 0.1]),
    "choice_ints_and_floats": (tune.choice([0, 0.5, 1]), [0, 0.5, 1]),
    "choice_numpy": (tune.choice(np.array([0.1, 0.9])), [0.1, 0.9]),
}
EVERY = {name: case[0] for name, case in {**CONTINUOUS, **DISCRETE}.items()}

each = pytest.mark.parametrize("domain", EVERY.values(), ids=EVERY)
each_continuous = pytest.mark.parametrize(("domain", "low", "high"), CONTINUOUS.values(), ids=CONTINUOUS)
each_discrete = pytest.mark.parametrize(("domain", "values"), DISCRETE.values(), ids=DISCRETE)


def transform_of(domain: sample.Domain) -> Transform:
    return HyperSpace({"x": domain}).transform("x")


def draw(domain: sample.Domain, size: int, seed: int = 0) -> list:
    return [domain.cast(x) for x in domain.sample(size=size, random_state=np.random.default_rng(seed))]


def u_axis(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    far = torch.logspace(math.log10(8), 4, 200, dtype=torch.float64)
    return torch.cat([-far, torch.linspace(-8, 8, 4001, dtype=torch.float64), far]).sort().values.to(dtype)


# Every kind


@each
def test_json_and_pickle_give_back_an_equal_space(domain):
    space = HyperSpace({"x": domain})
    for copy in (
        HyperSpace.from_json(json.loads(json.dumps(space.to_json()))),
        pickle.loads(pickle.dumps(space)),
    ):
        assert copy == space
        assert hash(copy) == hash(space)
        assert describe(copy.domain("x")) == describe(domain)
        assert draw(copy.domain("x"), 20) == draw(domain, 20)
        u = torch.linspace(-4, 4, 9)
        assert torch.equal(copy.transform("x").constrain(u), space.transform("x").constrain(u))


@each
@pytest.mark.parametrize("dtype", FLOATS)
def test_constrain_is_finite_monotone_and_keeps_shape_and_dtype(domain, dtype):
    transform = transform_of(domain)
    u = u_axis(dtype)
    x = transform.constrain(u)
    assert x.dtype == dtype
    assert x.isfinite().all()
    falls = describe(domain) == "tune.choice([1.0, 0.5, 0.1])"
    assert ((x.diff() <= 0) if falls else (x.diff() >= 0)).all()
    assert x[0] != x[-1] or torch.finfo(dtype).bits == 16
    assert torch.equal(transform.constrain(u[:6].reshape(2, 3)), x[:6].reshape(2, 3))
    assert torch.equal(transform.constrain(u[7]), x[7])


@each
def test_constrain_lets_a_diverged_nan_be_seen(domain):
    assert transform_of(domain).constrain(torch.tensor([NAN, 0.0])).isnan().tolist() == [True, False]


@each
def test_what_tune_samples_is_in_the_domain_and_survives_the_round_trip(domain):
    transform = transform_of(domain)
    space = HyperSpace({"x": domain})
    for value in draw(domain, 200):
        checked = space.check("x", value)
        assert checked == pytest.approx(value, rel=1e-12)
        assert isinstance(value, type(checked))
        (u,) = space.unconstrain({"x": value})
        back = transform.constrain(torch.tensor(u, dtype=torch.float64)).item()
        assert back == pytest.approx(value, rel=1e-9, abs=1e-12)


# Continuous kinds


@each_continuous
def test_continuous_u_survives_the_round_trip(domain, low, high):
    transform = transform_of(domain)
    for u in torch.linspace(-6, 6, 25, dtype=torch.float64):
        assert transform.unconstrain(transform.constrain(u).item()) == pytest.approx(u.item(), abs=1e-6)


@each_continuous
@pytest.mark.parametrize("dtype", FLOATS)
def test_continuous_values_stay_inside_and_approach_the_ends(domain, low, high, dtype):
    x = transform_of(domain).constrain(u_axis(dtype)).double()
    assert x.min().item() > low if math.isinf(high) else x.min().item() >= low
    assert x.max().item() <= high
    if dtype in (torch.float32, torch.float64):
        reach = 1e-6 if dtype == torch.float32 else 1e-12
        if math.isfinite(low):
            assert x.min().item() == pytest.approx(low, rel=reach, abs=1e-30)
        if math.isfinite(high):
            assert x.max().item() == pytest.approx(high, rel=reach)


@each_continuous
def test_continuous_gradient_is_that_of_the_map_and_always_finite(domain, low, high):
    transform = transform_of(domain)
    u = u_axis().requires_grad_()
    (grad,) = torch.autograd.grad(transform.constrain(u).sum(), u)
    assert grad.isfinite().all()
    assert (grad >= 0).all()
    assert (grad[u.abs() < 4] > 0).all()

    h = 1e-5
    at = torch.linspace(-3, 3, 13, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(transform.constrain(at).sum(), at)
    with torch.no_grad():
        slope = (transform.constrain(at + h) - transform.constrain(at - h)) / (2 * h)
    assert torch.allclose(grad, slope, rtol=1e-5, atol=0)


@each_continuous
def test_continuous_float32_agrees_with_float64(domain, low, high):
    transform = transform_of(domain)
    exact = transform.constrain(u_axis().double())
    zero = 1e-6 * max(-low, high) if describe(domain).startswith("tune.uniform") else 1e-37
    assert torch.allclose(transform.constrain(u_axis()).double(), exact, rtol=2e-5, atol=zero)


@each_continuous
def test_continuous_native_values_are_floats_of_the_closed_domain(domain, low, high):
    transform, space = transform_of(domain), HyperSpace({"x": domain})
    assert not transform.discrete
    inside = transform.constrain(torch.tensor(0.3)).item()
    assert transform.native(inside) == inside
    for end in (low, high):
        if math.isfinite(end):
            outside = end + (1 if end == high else -1) * max(1.0, abs(end))
            assert transform.native(outside) == end
            assert type(transform.native(int(end))) is float
            assert space.check("x", end) == end
            with pytest.raises(SpaceError, match="is on the edge of"):
                space.unconstrain({"x": end})
            with pytest.raises(SpaceError, match="the nearest value is"):
                space.check("x", outside)
    with pytest.raises(TypeError, match="cannot be listed"):
        transform.values()


@pytest.mark.parametrize(
    ("domain", "value"),
    [
        (tune.uniform(0, 0.75), 0.375),
        (tune.loguniform(1e-4, 1e-2), 1e-3),
        (positive(1, 2), 1 + 2 * math.log(2)),
        (real(3, 2), 3),
        (tune.randint(0, 5), 2),
        (tune.lograndint(1, 9), 2),  # sqrt(0.5 * 8.5) = 2.06
        (tune.choice([10, 20, 30]), 20),
    ],
)
def test_the_middle_of_the_axis(domain, value):
    assert transform_of(domain).constrain(torch.zeros(1, dtype=torch.float64)).item() == pytest.approx(value)


@pytest.mark.parametrize(
    ("domain", "value"),
    [
        (positive(), 1e-20),
        (positive(), 1e4),
        (tune.uniform(0, 1), 1e-20),
        (tune.loguniform(1e-3, 1), math.nextafter(1e-3, 1)),
        (tune.loguniform(1e-3, 1), math.nextafter(1, 0)),
    ],
)
def test_unconstrain_is_accurate_next_to_the_ends(domain, value):
    transform = transform_of(domain)
    u = transform.unconstrain(value)
    assert math.isfinite(u)
    assert transform.constrain(torch.tensor(u, dtype=torch.float64)).item() == pytest.approx(value, rel=1e-12, abs=0)


# Discrete kinds


@each_discrete
def test_discrete_values_are_those_that_tune_samples(domain, values):
    listed = transform_of(domain).values()
    assert list(listed) == values
    assert [type(x) for x in listed] == [type(x) for x in values]
    assert len(listed) == len(values)
    assert listed[-1] == values[-1]
    assert list(listed[1:]) == values[1:]
    drawn = draw(domain, 2000)
    assert {min(values, key=lambda v: abs(v - x)) for x in drawn} == set(values)
    assert all(min(abs(v - x) for v in values) <= 1e-12 * abs(x) for x in drawn)


@each_discrete
def test_discrete_values_are_all_reached_in_order_with_both_ends(domain, values):
    transform = transform_of(domain)
    x = transform.constrain(u_axis())
    assert [transform.native(v) for v in x.unique_consecutive().tolist()] == values
    assert torch.equal(x.unique_consecutive(), torch.tensor(values, dtype=torch.float32))
    assert transform.native(x[0].item()) == values[0]
    assert transform.native(x[-1].item()) == values[-1]


@each_discrete
def test_discrete_cells_have_the_stretched_maps_width(domain, values):
    """The share of the sigmoid's axis that rounds to each value: equal, or log((v + q/2) / (v - q/2))."""
    s = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    x = transform_of(domain).constrain(s.logit())
    shares = torch.stack([(x - v).abs() < 1e-3 * abs(values[1] - values[0]) for v in values]).double().mean(1)
    half = (values[1] - values[0]) / 2
    log = "log" in describe(domain)
    widths = torch.tensor([math.log((v + half) / (v - half)) if log else 1.0 for v in values]).double()
    assert torch.allclose(shares, widths / widths.sum(), rtol=0, atol=2e-5)


@each_discrete
def test_discrete_values_survive_the_round_trip_through_the_middle_of_their_cells(domain, values):
    transform, space = transform_of(domain), HyperSpace({"x": domain})
    for index, value in enumerate(values):
        (u,) = space.unconstrain({"x": value})
        for dtype in (torch.float32, torch.float64):
            native = transform.native(transform.constrain(torch.tensor(u, dtype=dtype)).item())
            assert native == value
            assert type(native) is type(value)
        if "log" not in describe(domain):
            assert 1 / (1 + math.exp(-u)) == pytest.approx((index + 0.5) / len(values))


@each_discrete
def test_discrete_tensors_carry_no_gradient(domain, values):
    transform = transform_of(domain)
    assert transform.discrete
    assert not transform.constrain(torch.zeros(3, requires_grad=True)).requires_grad


@each_discrete
def test_discrete_check_wants_a_value_of_the_grid(domain, values):
    space = HyperSpace({"x": domain})
    low, high = min(values), max(values)
    gap = abs(values[1] - values[0])
    for wrong in (low - gap, high + gap, values[0] + 0.4 * (values[1] - values[0])):
        nearest = re.escape(str(min(values, key=lambda v: abs(v - wrong))))
        with pytest.raises(SpaceError, match=f"the nearest value is {nearest}$"):
            space.check("x", wrong)
    for value in values:
        rounded = torch.tensor(value, dtype=torch.float32).item()
        assert space.check("x", rounded) == value


@pytest.mark.parametrize(
    "domain", [tune.randint(-5, 2**20 - 5), tune.lograndint(1, 2**20 + 1), tune.quniform(0.1, 104857.6, 0.1)]
)
def test_float32_reaches_every_value_of_the_largest_grids(domain):
    transform = transform_of(domain)
    values = transform.values()
    assert len(values) == 2**20
    picked = [*values[:100], *values[:: 2**20 // 5000], *values[-100:]]
    u = torch.tensor([transform.unconstrain(v) for v in picked])
    assert [transform.native(x) for x in transform.constrain(u).tolist()] == picked


def test_float32_holds_the_decimal_value_nearest_to_it():
    transform = transform_of(tune.quniform(0, 100, 0.1))
    x = transform.constrain(torch.tensor([transform.unconstrain(i / 10) for i in range(1001)]))
    assert x.tolist() == torch.tensor([i / 10 for i in range(1001)]).tolist()


def test_float32_reaches_every_value_of_a_grid_far_from_zero():
    x = transform_of(tune.randint(4_000_000, 4_000_004)).constrain(torch.linspace(-8, 8, 1000))
    assert x.unique().tolist() == [4_000_000, 4_000_001, 4_000_002, 4_000_003]


# Properties over random bounds

bound = st.floats(-1e6, 1e6)
width = st.floats(1, 1e6)
above_zero = st.floats(1e-8, 1e6)
ratio = st.floats(1.01, 1e8)
step = st.sampled_from([0.1, 0.05, 0.25, 1e-3, 1 / 3, 0.7, 2.5, 3.0, math.pi]) | st.floats(1e-3, 1e3)
k = st.integers(-10_000, 10_000)
k_above_zero = st.integers(1, 10_000)
count = st.integers(2, 300)
off_grid = st.floats(0, 0.99)
numbers = st.sets(st.integers(-1000, 1000) | st.integers(-999, 999).map(lambda i: i / 100), min_size=2).map(sorted)


def multiples(constructor):
    return lambda first, n, q: constructor(first * q, (first + n) * q, q)


def loose_multiples(constructor):
    """Integer bounds that need not be multiples of q: Tune rounds them inwards."""

    def build(first, n, q, off):
        spare = int(off * q)
        return constructor(first * q - spare, (first + n) * q + spare, q)

    return build


RANDOM_CONTINUOUS = {
    "uniform": st.builds(lambda low, wide: tune.uniform(low, low + wide), bound, width),
    "loguniform": st.builds(lambda low, times: tune.loguniform(low, low * times), above_zero, ratio),
    "positive": st.builds(positive, bound, width),
    "real": st.builds(real, bound, width),
}
RANDOM_DISCRETE = {
    "randint": st.builds(lambda first, n: tune.randint(first, first + n), k, count),
    "lograndint": st.builds(lambda first, n: tune.lograndint(first, first + n), k_above_zero, count),
    "qrandint": st.builds(loose_multiples(tune.qrandint), k, count, st.integers(1, 50), off_grid),
    "qlograndint": st.builds(loose_multiples(tune.qlograndint), k_above_zero, count, st.integers(1, 50), off_grid),
    "quniform": st.builds(multiples(tune.quniform), k, count, step),
    "qloguniform": st.builds(multiples(tune.qloguniform), k_above_zero, count, step),
    "choice": st.builds(lambda rising, turn: tune.choice(rising[::turn]), numbers, st.sampled_from([1, -1])),
}


@pytest.mark.parametrize("kind", RANDOM_CONTINUOUS)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_continuous_domain(kind, data):
    domain = data.draw(RANDOM_CONTINUOUS[kind])
    us = data.draw(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=20))
    space = HyperSpace({"x": domain})
    assert HyperSpace.from_json(json.loads(json.dumps(space.to_json()))) == space
    u = torch.tensor(sorted(us), requires_grad=True)
    x = space.constrain(u[:, None])["x"]
    (grad,) = torch.autograd.grad(x.sum(), u)
    assert x.isfinite().all()
    assert grad.isfinite().all()
    assert all(a <= b for a, b in pairwise(x.tolist()))
    for value in x.tolist():
        assert space.check("x", value) == value
        assert domain.is_valid(value)
    for value in draw(domain, 5, seed=data.draw(st.integers(0, 99))):
        back = space.constrain(torch.tensor(space.unconstrain({"x": value}), dtype=torch.float64))["x"]
        assert back.item() == pytest.approx(value, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", RANDOM_DISCRETE)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_discrete_domain(kind, data):
    domain = data.draw(RANDOM_DISCRETE[kind])
    space = HyperSpace({"x": domain})
    transform = space.transform("x")
    assert HyperSpace.from_json(json.loads(json.dumps(space.to_json()))) == space
    values = list(transform.values())
    u = torch.tensor([transform.unconstrain(v) for v in values])
    assert all(a < b for a, b in pairwise(u.tolist()))
    assert [transform.native(x) for x in transform.constrain(u).tolist()] == values
    ends = transform.constrain(torch.tensor([-1e4, 1e4])).tolist()
    assert [transform.native(x) for x in ends] == [values[0], values[-1]]
    for value in draw(domain, 20, seed=data.draw(st.integers(0, 99))):
        near = space.check("x", value)
        assert near in values
        assert near == pytest.approx(value, rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(1, 7))
def test_any_small_qrandint_has_tunes_own_values_or_none(lower, upper, q):
    """Tune's grid, drawn exhaustively: the same set, an error where Tune draws nothing or one value."""
    domain = tune.qrandint(lower, upper, q)
    try:
        drawn = set(draw(domain, 2000))
    except ValueError:
        drawn = set()
    if len(drawn) > 1:
        assert set(transform_of(domain).values()) == drawn
    else:
        with pytest.raises(SpaceError, match=r"x: tune.qrandint\(.*(is empty|holds a single value): "):
            transform_of(domain)


# The space

SPACE = HyperSpace({"dropout": tune.uniform(0, 0.75), "cutout": tune.randint(0, 5), "decay": positive()})


def test_a_space_is_an_ordered_mapping_of_domains():
    domains = [("b", tune.uniform(0, 1)), ("a", tune.randint(0, 5))]
    space = HyperSpace(domains)
    assert space.names == ("b", "a") == tuple(space)
    assert len(space) == 2
    assert "a" in space
    assert "c" not in space
    assert space["a"] is space.domain("a") is domains[1][1]
    assert space == HyperSpace(dict(domains)) == HyperSpace(space)
    assert space != HyperSpace(domains[::-1])
    assert space != HyperSpace([domains[0], ("a", tune.randint(0, 6))])
    assert space != dict(domains)
    assert repr(space) == "HyperSpace({'b': tune.uniform(0, 1), 'a': tune.randint(0, 5)})"


def test_json_names_tunes_constructors():
    assert SPACE.to_json() == {
        "dropout": {"kind": "uniform", "lower": 0, "upper": 0.75},
        "cutout": {"kind": "randint", "lower": 0, "upper": 5},
        "decay": {"kind": "positive", "low": 0.0, "scale": 1.0},
    }
    written = {"q": tune.qlograndint(2, 8, 2), "c": tune.choice([1, 2]), "r": tune.randn(1, 2)}
    assert HyperSpace(written).to_json() == {
        "q": {"kind": "qlograndint", "lower": 2, "upper": 8, "q": 2},
        "c": {"kind": "choice", "categories": [1, 2]},
        "r": {"kind": "real", "loc": 1, "scale": 2},
    }


def test_constrain_splits_the_last_dimension_by_name():
    u = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
    constrained = SPACE.constrain(u)
    assert list(constrained) == ["dropout", "cutout", "decay"]
    for i, name in enumerate(SPACE.names):
        assert torch.equal(constrained[name], SPACE.transform(name).constrain(u[..., i]))


def test_unconstrain_is_in_the_spaces_own_order():
    u = SPACE.unconstrain({"decay": math.log(2), "cutout": 4, "dropout": 0.25})
    assert u == pytest.approx([math.log(0.5), math.log(9), 0])


def test_native_rounds_to_the_nearest_values_of_the_names_given():
    found = SPACE.native({"cutout": np.float32(3.2), "dropout": 2})
    assert found == {"cutout": 3, "dropout": 0.75}
    assert [type(x) for x in found.values()] == [int, float]


def test_positive_is_a_domain_that_tunes_random_search_can_sample():
    domain = positive(2, 0.5)
    drawn = np.array(draw(domain, 4000))
    assert isinstance(domain, sample.Float)
    assert drawn.min() > 2
    assert np.median(drawn) == pytest.approx(2.5, abs=0.05)
    assert np.log((drawn - 2) / 0.5).std() == pytest.approx(1, abs=0.05)
    ((_, config),) = generate_variants({"decay": pickle.loads(pickle.dumps(domain))}, random_state=1)
    assert type(config["decay"]) is float
    assert config["decay"] > 2


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (tune.uniform(0, 0.75), "tune.uniform(0, 0.75)"),
        (tune.loguniform(1e-4, 1.0), "tune.loguniform(0.0001, 1)"),
        (tune.quniform(np.float64(0.0), 1, 0.1), "tune.quniform(0, 1, 0.1)"),
        (tune.randint(0, 1_000_000), "tune.randint(0, 1000000)"),
        (tune.qrandint(0, 8, 2), "tune.qrandint(0, 8, 2)"),
        (positive(0, 2), "stn.positive(0, 2)"),
        (real(1, 2), "tune.randn(1, 2)"),
        (tune.qrandn(0, 1, 0.5), "tune.qrandn(0, 1, 0.5)"),
        (tune.choice(["a", "b"]), "tune.choice(['a', 'b'])"),
        (tune.choice(range(100)), "tune.choice([0, 1, 2, 3, 4, 5, ...])"),
        (tune.sample_from(len), "tune.sample_from(len)"),
        (tune.grid_search([1, 2]), "tune.grid_search([1, 2])"),
        (sample.Float(0, 1).normal(), "Float(0, 1) with _Normal"),
        (0.3, "0.3"),
    ],
)
def test_describe(domain, text):
    assert describe(domain) == text


# Errors

KINDS = "uniform, loguniform, quniform, qloguniform, randint, lograndint, qrandint, qlograndint, choice, positive, real"
NO_MAP = f"has no map from the reals: use one of {KINDS}"
NUMBERS = "in it: give finite numbers, at most 1e+30 in size"
UNORDERED = "has no order: give numbers that only rise or only fall"
SUCH = "use one such as tune.uniform(0, 1)"
MANY = "values, more than the 1048576 that float32 can tell apart"
FINE = "is too fine for float32:"


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (tune.uniform(0.9, 0.1), "tune.uniform(0.9, 0.1) is empty: lower must be below upper"),
        (tune.loguniform(0.9, 0.1), "tune.loguniform(0.9, 0.1) is empty: lower must be below upper"),
        (tune.quniform(1, 0, 0.1), "tune.quniform(1, 0, 0.1) is empty: lower must be below upper"),
        (tune.randint(5, 2), "tune.randint(5, 2) is empty: lower must be below upper"),
        (tune.randint(5, 5), "tune.randint(5, 5) is empty: lower must be below upper"),
        (tune.qrandint(1, 4, 5), "tune.qrandint(1, 4, 5) is empty: no multiple of 5 lies in it"),
        (tune.choice([]), "tune.choice([]) is empty: give at least two categories"),
        (tune.uniform(1, 1), "tune.uniform(1, 1) holds a single value: make it a constant"),
        (tune.randint(5, 6), "tune.randint(5, 6) holds a single value: make it a constant"),
        (tune.qrandint(1, 7, 5), "tune.qrandint(1, 7, 5) holds a single value: make it a constant"),
        (tune.choice([3]), "tune.choice([3]) holds a single value: make it a constant"),
        (sample.Float(0, NAN), f"tune.uniform(0, nan) has nan {NUMBERS}"),
        (sample.Float(None, 1), f"tune.uniform(-inf, 1) has -inf {NUMBERS}"),
        (tune.uniform(0, 1e31), f"tune.uniform(0, 1e+31) has 1e+31 {NUMBERS}"),
        (tune.randint(0, INF), f"tune.randint(0, inf) has inf {NUMBERS}"),
        (tune.randint("a", 3), f"tune.randint('a', 3) has 'a' {NUMBERS}"),
        (tune.randn(NAN, 1), f"tune.randn(nan, 1) has nan {NUMBERS}"),
        (tune.choice([1, INF]), f"tune.choice([1, inf]) has inf {NUMBERS}"),
        (tune.randint(0.5, 3), "tune.randint(0.5, 3) is over the integers: give whole numbers"),
        (tune.qrandint(0, 10, 2.5), "tune.qrandint(0, 10, 2.5) is over the integers: give whole numbers"),
        (tune.qrandint(0, 10, 0), "tune.qrandint(0, 10, 0) has no usable step: q must be at least 1e-30"),
        (tune.quniform(0, 1, -0.1), "tune.quniform(0, 1, -0.1) has no usable step: q must be at least 1e-30"),
        (tune.loguniform(1e-40, 1), "tune.loguniform(1e-40, 1) is too wide: lower must be at least 1e-30"),
        (
            tune.uniform(1, 1 + 1e-9),
            f"tune.uniform(1, 1.000000001) {FINE} the width 1e-09 must be at least 2.38419e-07",
        ),
        (tune.uniform(0, 1e-31), f"tune.uniform(0, 1e-31) {FINE} the width 1e-31 must be at least 1e-30"),
        (tune.randn(1e9, 1), f"tune.randn(1000000000, 1) {FINE} the scale 1 must be at least 238.419"),
        (
            tune.randint(10**9, 10**9 + 5),
            f"tune.randint(1000000000, 1000000005) {FINE} the step 1 must be at least 238.419",
        ),
        (
            tune.choice([1, 1.00000001]),
            f"tune.choice([1, 1.00000001]) {FINE} the gap 1e-08 must be at least 2.38419e-07",
        ),
        (
            tune.randint(0, 2**20 + 1),
            f"tune.randint(0, 1048577) has 1048577 {MANY}: use tune.uniform(0, 1048577)",
        ),
        (
            tune.qloguniform(0.1, 1e6, 0.1),
            f"tune.qloguniform(0.1, 1000000, 0.1) has 10000000 {MANY}: use tune.loguniform(0.1, 1000000)",
        ),
        (
            tune.choice(range(2**20 + 1)),
            f"tune.choice([0, 1, 2, 3, 4, 5, ...]) has 1048577 {MANY}: use tune.uniform(0, 1048576)",
        ),
        (tune.choice(["relu", "tanh"]), f"tune.choice(['relu', 'tanh']) {UNORDERED}"),
        (tune.choice([False, True]), f"tune.choice([False, True]) {UNORDERED}"),
        (tune.choice([1, "2"]), f"tune.choice([1, '2']) {UNORDERED}"),
        (tune.choice([1, 3, 2]), f"tune.choice([1, 3, 2]) {UNORDERED}"),
        (tune.choice([1, 1, 2]), f"tune.choice([1, 1, 2]) {UNORDERED}"),
        (tune.choice([1, NAN, 2]), f"tune.choice([1, nan, 2]) {UNORDERED}"),
        (tune.sample_from(len), f"tune.sample_from(len) is a function, not a domain: {SUCH}"),
        (
            tune.grid_search([1, 2]),
            "tune.grid_search([1, 2]) is a list of trials, not a domain: use tune.choice([1, 2])",
        ),
        (0.3, f"0.3 is a constant, not a domain: leave it out, or {SUCH}"),
        ("0.3", f"'0.3' is not a Tune domain: {SUCH}"),
        (None, f"None is not a Tune domain: {SUCH}"),
        ([1, 2], f"[1, 2] is not a Tune domain: {SUCH}"),
        (
            {"a": 1, "b": 2},
            "{'a': 1, 'b': 2} is a nested space: name its domains from here, as 'x/a', 'x/b'",
        ),
        (tune.qrandn(0, 1, 0.5), f"tune.qrandn(0, 1, 0.5) {NO_MAP}"),
        (sample.Float(0, 1).normal(), f"Float(0, 1) with _Normal {NO_MAP}"),
        (sample.Categorical([1, 2]).grid(), f"Categorical[1, 2] with Grid {NO_MAP}"),
        (positive().quantized(1), f"Positive(0.0, inf) with Quantized {NO_MAP}"),
        (tune.quniform(0, 8, 2).quantized(4), f"Float(0, 8) with Quantized {NO_MAP}"),
    ],
)
def test_domains_that_cannot_be_tuned(domain, message):
    with pytest.raises(SpaceError) as error:
        HyperSpace({"x": domain})
    assert str(error.value) == f"x: {message}"


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ({}, "the space is empty: give it at least one domain"),
        ([("x", real()), ("x", real())], "x: appears twice: names must be unique"),
        ({"": real()}, "'': a hyperparameter's name must be a string that is not empty"),
        ({3: real()}, "3: a hyperparameter's name must be a string that is not empty"),
    ],
)
def test_names_that_cannot_be_used(domains, message):
    with pytest.raises(SpaceError) as error:
        HyperSpace(domains)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dropout": 0.9}, "dropout: 0.9 is not in tune.uniform(0, 0.75): the nearest value is 0.75"),
        (
            {"dropout": 0.75000001},
            "dropout: 0.75000001 is not in tune.uniform(0, 0.75): the nearest value is 0.75",
        ),
        ({"dropout": 0.75}, "dropout: 0.75 is on the edge of tune.uniform(0, 0.75): start strictly inside"),
        ({"dropout": 0}, "dropout: 0.0 is on the edge of tune.uniform(0, 0.75): start strictly inside"),
        ({"dropout": NAN}, "dropout: nan is not a finite number: give one in tune.uniform(0, 0.75)"),
        ({"decay": INF}, "decay: inf is not a finite number: give one in stn.positive(0, 1)"),
        ({"decay": 0.0}, "decay: 0.0 is on the edge of stn.positive(0, 1): start strictly inside"),
        ({"decay": -1}, "decay: -1 is not in stn.positive(0, 1): the nearest value is 0.0"),
        ({"cutout": 5}, "cutout: 5 is not in tune.randint(0, 5): the nearest value is 4"),
        ({"cutout": 1.5}, "cutout: 1.5 is not in tune.randint(0, 5): the nearest value is 2"),
        ({"cutout": 10**400}, f"cutout: {10**400} is not in tune.randint(0, 5): the nearest value is 4"),
        ({"cutout": True}, "cutout: True is not a finite number: give one in tune.randint(0, 5)"),
        ({"cutout": "2"}, "cutout: '2' is not a finite number: give one in tune.randint(0, 5)"),
        ({"dropuot": 0.1}, "unknown hyperparameter 'dropuot'; known: dropout, cutout, decay; did you mean 'dropout'?"),
        ({"momentum": 0.1}, "unknown hyperparameter 'momentum'; known: dropout, cutout, decay"),
    ],
)
def test_values_that_cannot_be_initial(changed, message):
    with pytest.raises(SpaceError) as error:
        SPACE.unconstrain({"dropout": 0.1, "cutout": 1, "decay": 1.0, **changed})
    assert str(error.value) == message


def test_values_that_are_missing_or_unknown():
    with pytest.raises(SpaceError, match=r"^cutout: has no value: give one to each of dropout, cutout, decay$"):
        SPACE.unconstrain({"dropout": 0.1})
    with pytest.raises(
        SpaceError,
        match=r"^unknown hyperparameter 'dropuot'; .* did you mean 'dropout'[?]$",
    ):
        SPACE.transform("dropuot")
    for call in (
        SPACE.domain,
        SPACE.transform,
        lambda name: SPACE.check(name, 1),
        lambda name: SPACE.native({name: 1}),
    ):
        with pytest.raises(SpaceError, match=r"^unknown hyperparameter 'lr'; known: dropout, cutout, decay$"):
            call("lr")
    with pytest.raises(KeyError):
        SPACE["lr"]
    with pytest.raises(SpaceError, match=r"^dropout: nan is not a finite number"):
        SPACE.native({"dropout": NAN})


@pytest.mark.parametrize("shape", [(), (2,), (3, 4)])
def test_constrain_wants_one_column_for_each_name(shape):
    with pytest.raises(SpaceError, match=rf"^u: its shape {re.escape(str(shape))} must end in 3, one for each name$"):
        SPACE.constrain(torch.zeros(shape))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: positive(0, 0), "stn.positive(0, 0) is empty: scale must be above 0"),
        (lambda: positive(NAN), f"stn.positive(nan, 1) has nan {NUMBERS}"),
        (lambda: real(0, -1), "tune.randn(0, -1) is empty: scale must be above 0"),
        (lambda: real(scale=INF), f"tune.randn(0, inf) has inf {NUMBERS}"),
    ],
)
def test_positive_and_real_check_their_arguments_at_once(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "normal"}, f"{{'kind': 'normal'}} has no known kind: use one of {KINDS}"),
        ({"lower": 0, "upper": 1}, f"{{'lower': 0, 'upper': 1}} has no known kind: use one of {KINDS}"),
        (0.5, f"0.5 has no known kind: use one of {KINDS}"),
        ({"kind": ["uniform"]}, f"{{'kind': ['uniform']}} has no known kind: use one of {KINDS}"),
        ({"kind": "uniform", "upper": 1}, "the keys of uniform are kind, lower, upper, not kind, upper"),
        (
            {"kind": "randint", "lower": 0, "upper": 4, "q": 2},
            "the keys of randint are kind, lower, upper, not kind, lower, upper, q",
        ),
        (
            {"kind": "uniform", "lower": 0.9, "upper": 0.1},
            "tune.uniform(0.9, 0.1) is empty: lower must be below upper",
        ),
        ({"kind": "randint", "lower": "0", "upper": 4}, f"tune.randint('0', 4) has '0' {NUMBERS}"),
        ({"kind": "choice", "categories": ["a", "b"]}, f"tune.choice(['a', 'b']) {UNORDERED}"),
    ],
)
def test_json_that_cannot_be_read(spec, message):
    with pytest.raises(SpaceError) as error:
        HyperSpace.from_json({"x": spec})
    assert str(error.value) == f"x: {message}"


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "loguniform", "lower": 0, "upper": 1},
        {"kind": "quniform", "lower": 0, "upper": 1, "q": 0},
        {"kind": "quniform", "lower": 0, "upper": 1, "q": 0.3},
        {"kind": "uniform", "lower": "a", "upper": 1},
        {"kind": "choice", "categories": 3},
        {"kind": "real", "loc": 0, "scale": -1},
    ],
)
def test_json_that_tune_itself_refuses_is_named_too(spec):
    kind = "randn" if spec["kind"] == "real" else spec["kind"]
    with pytest.raises(SpaceError, match=rf"^x: tune\.{kind}\(.*\) is not a domain: ."):
        HyperSpace.from_json({"x": spec})
