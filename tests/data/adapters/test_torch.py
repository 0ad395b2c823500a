"""torch distributions, flows and modules: autograd scores in the model's own precision, and the model left alone."""

import numpy as np
import pytest
from refusals import refused
from slopes import slopes

from relfit.data.adapters import adapt
from relfit.data.load import load
from relfit.data.models import Density, scores_of

torch = pytest.importorskip("torch", reason="torch is not installed")
D = torch.distributions


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


class Energy(torch.nn.Module):
    """An unnormalised log density: −½‖x‖² plus a small network with dropout and batch normalisation."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        layers = torch.nn.Linear(2, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Dropout(0.5)
        self.net = torch.nn.Sequential(*layers, torch.nn.Linear(16, 1)).to(dtype)

    def log_prob(self, x):
        return self.net(x).squeeze(-1) - 0.5 * (x**2).sum(-1)


@pytest.fixture
def x(rng):
    return rng.normal(size=(100, 2))


def eager(function, dtype=torch.float64):
    return lambda rows: function(torch.tensor(rows, dtype=dtype)).detach().numpy()


@pytest.mark.parametrize(
    "distribution",
    [
        D.MultivariateNormal(numbers(1, 2), torch.tensor([[1.0, 0.3], [0.3, 2.0]], dtype=torch.float64)),
        D.Independent(D.StudentT(numbers(3, 4)), 1),
        D.MixtureSameFamily(
            D.Categorical(numbers(0.3, 0.7)), D.Independent(D.Normal(torch.zeros(2, 2).double(), 1.5), 1)
        ),
        D.TransformedDistribution(D.Independent(D.Normal(numbers(0, 0), 1.0), 1), D.AffineTransform(1.0, 2.0)),
    ],
    ids=lambda distribution: type(distribution).__name__,
)
def test_distributions(distribution, x):
    expected = slopes(eager(distribution.log_prob), x)
    np.testing.assert_allclose(adapt(distribution, 2).scores(x), expected, rtol=1e-8, atol=1e-8)


def test_distributions_that_are_no_density_here_are_refused():
    for validate in (True, False):
        density = adapt(D.Exponential(numbers(2.0), validate_args=validate), 1)
        assert density.log_probs(np.array([[-1.0], [1.0]]))[0] == -np.inf
        np.testing.assert_allclose(density.log_probs(np.array([[-1.0], [1.0]]))[1], np.log(2.0) - 2.0)
        refused(lambda: scores_of("e", density, np.array([[-1.0], [1.0]])), "model 'e'", "1 of 2 rows", "log_prob")  # noqa: B023
    refused(lambda: adapt(D.Poisson(3.0), 1), "Poisson: expected a continuous distribution, got a discrete one")
    several = D.Normal(torch.zeros(2), 1.0)
    refused(lambda: adapt(several, 2), "batch shape (2,)", "Independent(distribution, 1)")
    assert adapt(D.Independent(several, 1), 2).dim == 2
    refused(lambda: adapt(D.Normal(0.0, 1.0), 2), "expected one distribution of 2 columns")
    # Beside a density it was sampled, and the note spoke of samples that nobody had given.
    whole = D.MultivariateNormal(torch.zeros(2), torch.eye(2))
    (note,) = load(np.eye(2).repeat(30, 0), {"a": several, "b": whole}).warnings[:1]
    assert note.startswith("drew 60 rows from 'a', 'b'")
    assert "no density of 'a' is used (Normal: " in note
    assert "wrap it as torch.distributions.Independent(distribution, 1)" in note
    score_only = {"a": several, "b": Density(score=lambda x: -x)}
    refused(lambda: load(np.eye(2).repeat(30, 0), score_only), "no density of 'a' is used", "wrap it as")
    refused(lambda: adapt(D.MultivariateNormal(torch.zeros(3), torch.eye(3)), 2), "2 columns", "event shape (3,)")


# --- modules


def test_an_energy_model_in_its_own_precision(x):
    model = Energy().eval()
    np.testing.assert_allclose(adapt(model, 2).scores(x), slopes(eager(model.log_prob), x), rtol=1e-8, atol=1e-8)
    model = Energy(torch.float32).eval()
    density = adapt(model, 2)
    assert density.raw_scores(x).dtype == np.float32
    assert density.scores(x).dtype == np.float64
    assert density.notes(x) == ("scores computed in float32, to about 6 digits",)
    np.testing.assert_allclose(density.scores(x), slopes(eager(model.double().log_prob), x), atol=1e-5)


def test_the_model_is_left_as_it_was_and_a_module_says_what_it_returns(x):
    model = Energy().train()
    model.net[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    density = adapt(model, 2)
    first, second = density.scores(x), density.scores(x)
    density.log_probs(x)
    np.testing.assert_array_equal(first, second)  # dropout is off
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.is_grad_enabled()
    net = torch.nn.Linear(2, 2)
    refused(lambda: adapt(net, 2), "Linear: expected a torch module with log_prob(x)", "Density(score=module)")
    weight, bias = net.weight.detach().numpy(), net.bias.detach().numpy()
    np.testing.assert_allclose(Density(score=net).scores(x), x @ weight.T + bias, atol=1e-6)


def test_functions_of_tensors(x):
    """The dtype is that of the tensors a function closes over, or float64."""
    scale32, scale64 = torch.tensor(2.0), torch.tensor(2.0, dtype=torch.float64)
    for scale, dtype in ((scale32, np.float32), (scale64, np.float64)):
        density = Density(log_prob=lambda x, s=scale: -s * (x**2).sum(-1), autodiff="torch")
        assert density.raw_scores(x).dtype == np.float64  # a default argument is no closure
        closed = Density(log_prob=lambda x: -scale * (x**2).sum(-1), autodiff="torch")  # noqa: B023
        assert closed.raw_scores(x).dtype == dtype
        np.testing.assert_allclose(closed.scores(x), -4.0 * x, rtol=1e-6)


@pytest.mark.parametrize(
    ("log_prob", "parts"),
    [
        (lambda x: -(x**2), ("expected a tensor of shape (30,) for 30 rows, got shape (30, 2)",)),
        (lambda x: -(x**2).sum(-1, keepdim=True), ("got shape (30, 1)",)),
        (lambda x: -(x**2).sum(), ("got shape ()",)),
        (lambda x: (x.detach() ** 2).sum(-1), ("without a gradient", "no_grad")),
        (lambda x: (x.detach() ** 2).sum(-1) * torch.ones(1, requires_grad=True), ("without a gradient",)),
        (lambda x: torch.zeros(len(x)), ("without a gradient", "constant")),
        (lambda x: np.zeros(len(x)), ("got a ndarray",)),
        (lambda x: x @ torch.ones(3, dtype=x.dtype), ("failed on 30 rows",)),
        (lambda x: (x * float("nan")).sum(-1), ("30 of 30 rows", "NaN")),
        (lambda x: (x.sum(-1) - 3.0).log(), ("log_prob: expected finite values, got nan at", "of 30 rows")),
    ],
)
def test_bad_log_densities_are_one_line_that_names_the_model(rng, log_prob, parts):
    """The last has a finite gradient where it has no value, 1/(x₁ + x₂ − 3)."""
    models = {"a": Density(score=lambda x: -x), "b": Density(log_prob=log_prob, autodiff="torch")}
    refused(lambda: load(rng.normal(size=(30, 2)), models), "model 'b': ", *parts)


@pytest.mark.parametrize(
    ("score", "parts"),
    [
        (lambda x: -torch.tensor(x, requires_grad=True), ("got a Tensor", "requires grad")),
        (lambda x: -torch.tensor(x, device="meta"), ("got a Tensor",)),
        (lambda x: -torch.tensor(x, dtype=torch.bfloat16), ("got a Tensor", "BFloat16")),
        (lambda x: -torch.tensor(x[:, 0]), ("expected shape (30, 2), got (30,)",)),
    ],
    ids=["needs a gradient", "on another device", "dtype without a NumPy equal", "shape"],
)
def test_scores_on_the_wrong_device_or_dtype(rng, score, parts):
    x = rng.normal(size=(30, 2))
    refused(lambda: scores_of("b", Density(score=score), x), "model 'b': score: expected", *parts)


# --- flows


@pytest.mark.parametrize("flow", ["MAF", "NSF", "NICE", "NAF", "GF"])
def test_zuko_flows(x, flow):
    """Rows within the five-point rule's reach of a kink of the flow's network are left out."""
    zuko = pytest.importorskip("zuko", reason="zuko is not installed")
    torch.manual_seed(1)
    model = getattr(zuko.flows, flow)(2, transforms=2).double()
    fine, coarse = (slopes(eager(lambda rows: model().log_prob(rows)), x, h) for h in (1e-4, 2e-4))
    smooth = np.abs(fine - coarse).max(axis=1) < 1e-6
    assert smooth.mean() > 0.8
    np.testing.assert_allclose(adapt(model, 2).scores(x)[smooth], fine[smooth], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(adapt(model(), 2).scores(x), adapt(model, 2).scores(x))


def test_a_flow_that_needs_a_context_is_refused_until_it_has_one(x):
    zuko = pytest.importorskip("zuko", reason="zuko is not installed")
    flow = zuko.flows.MAF(2, 3, transforms=2)
    refused(lambda: adapt(flow, 2), "MAF: expected a flow without context", "give flow(c)")
    assert adapt(flow(torch.zeros(3)), 2).scores(x).shape == x.shape
    refused(lambda: adapt(flow(torch.zeros(3)), 3), "expected one distribution of 3 columns")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_scores_are_taken_on_the_models_device(x):
    model = Energy()
    here = adapt(model, 2).scores(x)
    np.testing.assert_allclose(adapt(model.cuda(), 2).scores(x), here, rtol=1e-9, atol=1e-12)
    shift = numbers(1.0, 2.0).cuda()
    density = Density(log_prob=lambda rows: -0.5 * ((rows - shift) ** 2).sum(-1), autodiff="torch")
    np.testing.assert_allclose(density.scores(x), [1.0, 2.0] - x, rtol=1e-12)
    refused(lambda: scores_of("b", Density(score=lambda x: -torch.tensor(x).cuda()), x), "model 'b'", "cuda")
