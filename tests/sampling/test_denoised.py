"""A classifier behind a denoiser is the composition that is written down, and averages are averages."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import buckler  # noqa: E402
from buckler.errors import BucklerWarning, InvalidInput  # noqa: E402
from buckler.sampling.classifiers import as_classifier  # noqa: E402
from buckler.sampling.denoised import Denoised, Diffusion, schedule  # noqa: E402
from buckler.sampling.models import resolve_model  # noqa: E402

torch.set_num_threads(1)
MODELS = Path(__file__).parents[2] / "models"


class EchoesSigma(nn.Module):
    """Answers with what it was told, so that it can be read off."""

    def forward(self, x: Any, sigma: float) -> Any:
        return x * 0.5 + sigma


class Blind(nn.Module):
    def forward(self, x: Any, features: bool = False) -> Any:
        assert features is False
        return x * 0.5


class Optional(nn.Module):
    def forward(self, x: Any, sigma: float = 9.0) -> Any:
        return x * 0.5 + sigma


class Head(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.stack([x.mean(dim=(1, 2, 3)), 1.0 - x.mean(dim=(1, 2, 3))], dim=1)


X = torch.full((2, 3, 4, 4), 0.6)


@pytest.mark.parametrize(
    ("denoiser", "to_denoiser", "expected"),
    [
        (EchoesSigma(), None, 0.3 + 0.25),
        (Blind(), None, 0.3),
        (Optional(), None, 0.3 + 0.25),
        # seen 2 x - 1 = 0.2, told 0.5: 0.1 + 0.5 = 0.6, and back (0.6 + 1) / 2
        (EchoesSigma(), (2.0, -1.0), 0.8),
        (Blind(), (2.0, -1.0), 0.55),
    ],
)
def test_the_pair_is_the_composition(denoiser: nn.Module, to_denoiser: Any, expected: float) -> None:
    pair = Denoised(denoiser, Head(), sigma=0.25, to_denoiser=to_denoiser, to_classifier=lambda x: 2.0 * x)
    assert pair(X)[:, 0].tolist() == pytest.approx([2.0 * expected] * 2, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Denoised(EchoesSigma(), Head(), sigma=0.0), "sigma must be above 0"),
        (lambda: Denoised(lambda x: x, Head(), sigma=0.25), "denoiser must be a torch module"),  # type: ignore[arg-type]
        (lambda: Denoised(EchoesSigma(), "a.onnx", sigma=0.25), "classifier must be a torch module"),  # type: ignore[arg-type]
        (lambda: Denoised(EchoesSigma(), Head(), sigma=1.0, to_denoiser=(0.0, 1.0)), "scale of to_denoiser"),
        (lambda: Denoised(EchoesSigma(), Head(), sigma=1.0, to_classifier=3), "to_classifier must be a callable"),  # type: ignore[arg-type]
        (lambda: Denoised(nn.Flatten(), Head(), sigma=1.0)(X), r"images of the shape \(2, 3, 4, 4\); got \(2, 48\)"),
        (lambda: Diffusion(EchoesSigma(), [0.5, 0.9]), "abar must fall"),
        (lambda: Diffusion(EchoesSigma(), [1.5, 0.9]), "abar must fall"),
        (lambda: schedule({"rescale_betas_zero_snr": True}), "rescale_betas_zero_snr"),
        (lambda: schedule({"beta_schedule": "sigmoid"}), "beta_schedule must be one of"),
        (lambda: schedule({"trained_betas": [0.5, 1.0]}), "between 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        make()


def test_sigma_is_one_that_the_denoiser_was_made_for() -> None:
    name = f"resnet20x3:{MODELS / 'cifar10-resnet20x3-clean.safetensors'}"
    with pytest.raises(InvalidInput, match=r"sigma must be from 0\.1 to 1 .* got 0\.05"):
        resolve_model(name, denoiser=f"buckler:{MODELS / 'cifar10-denoiser'}", sigma=0.05)
    with pytest.raises(InvalidInput, match="sigma must be given with a denoiser"):
        resolve_model(name, denoiser=f"buckler:{MODELS / 'cifar10-denoiser'}")
    pair = resolve_model(name, denoiser=f"unet:{MODELS / 'cifar10-denoiser.safetensors'}", sigma=0.05)
    assert pair.num_classes == 10
    assert list(pair.files) == ["cifar10-resnet20x3-clean.safetensors", "denoiser/cifar10-denoiser.safetensors"]
    with pytest.raises(InvalidInput, match="denoiser must be buckler:NAME"):
        resolve_model(name, denoiser="somewhere", sigma=0.25)


def test_a_denoiser_warns_of_another_classifier_than_its_own() -> None:
    denoiser = f"buckler:{MODELS / 'cifar10-denoiser'}"
    own = resolve_model(f"buckler:{MODELS / 'cifar10-resnet20x3-clean'}", denoiser=denoiser, sigma=0.25)
    assert own.num_classes == 10  # without a warning, which would be an error here
    with pytest.warns(BucklerWarning, match="was trained through a classifier of its own, and behind it"):
        resolve_model(f"buckler:{MODELS / 'cifar10-resnet110-sigma0.12'}", denoiser=denoiser, sigma=0.25)


def test_normalisation_lies_between_denoiser_and_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pair_here.py").write_text(
        "from tests.sampling.test_denoised import EchoesSigma as echoes, Head\nhead = Head\n"
    )
    monkeypatch.chdir(tmp_path)
    pair = resolve_model(
        "pair_here:head", denoiser="pair_here:echoes", sigma=0.25, mean=[0.5], std=[0.1], num_classes=2
    )
    assert pair(X)[:, 0].tolist() == pytest.approx([(0.55 - 0.5) / 0.1] * 2, abs=1e-5)


def test_another_sigma_than_the_denoiser_is_told_is_refused() -> None:
    pair = nn.Sequential(nn.Identity(), Denoised(EchoesSigma(), Head(), sigma=0.25))
    x = np.full((3, 4, 4), 0.5, dtype=np.float32)
    for noise in ({"sigma": 0.5}, {"noise": buckler.noise.GridGaussian(0.5)}):
        with pytest.raises(InvalidInput, match=r"sigma must be 0\.25, which the denoiser is told; got Gaussian noise"):
            buckler.Smoothed(pair, num_classes=2, **noise).certify(x[None], n=10)
    assert buckler.Smoothed(pair, sigma=0.25, num_classes=2).certify(x[None], n=20)[0].n == 20


class Knows(nn.Module):
    """A diffusion model that knows the image: whatever it is asked to predict, it is right."""

    def __init__(self, abar: Any, clean: Any, predicts: str) -> None:
        super().__init__()
        self.abar, self.clean, self.predicts = abar, 2.0 * clean - 1.0, predicts
        self.seen: list[tuple[Any, int]] = []

    def forward(self, z: Any, t: int) -> Any:
        self.seen.append((z, t))
        image, noise = self.abar[t] ** 0.5, (1.0 - self.abar[t]) ** 0.5
        epsilon = (z - image * self.clean) / noise
        answer = {"epsilon": epsilon, "sample": self.clean, "v_prediction": image * epsilon - noise * self.clean}
        return torch.cat([answer[self.predicts], torch.zeros_like(z)], dim=1)  # a learned variance behind it


@pytest.mark.parametrize("predicts", ["epsilon", "sample", "v_prediction"])
@pytest.mark.parametrize("sigma", [0.1, 0.25, 1.0])
def test_one_step_of_diffusion(predicts: Any, sigma: float) -> None:
    abar = schedule({})
    generator = torch.Generator().manual_seed(0)
    clean = torch.rand(2, 3, 4, 4, generator=generator)
    network = Knows(abar, clean, predicts)
    diffusion = Diffusion(network, abar, predicts)
    noisy = clean + sigma * torch.randn(clean.shape, generator=generator)
    assert torch.allclose(diffusion(noisy, sigma), clean, atol=1e-4)
    ((z, t),) = network.seen
    levels = np.sqrt((1.0 - abar) / abar)
    assert abs(levels[t] - 2.0 * sigma) <= abs(levels[[t - 1, t + 1]] - 2.0 * sigma).min()
    assert torch.allclose(z, float(abar[t] ** 0.5) * (2.0 * noisy - 1.0), atol=1e-5)
    # At that step the model sees noise of the size that it was trained with, to the width of a step.
    assert float(abar[t] ** 0.5) * 2.0 * sigma == pytest.approx(float((1.0 - abar[t]) ** 0.5), rel=0.02)


def test_schedules_are_those_of_diffusers() -> None:
    diffusers = pytest.importorskip("diffusers")
    for settings in (
        {"beta_schedule": "linear", "beta_start": 1e-4, "beta_end": 0.02, "num_train_timesteps": 1000},
        {"beta_schedule": "scaled_linear", "beta_start": 8.5e-4, "beta_end": 0.012, "num_train_timesteps": 100},
        {"beta_schedule": "squaredcos_cap_v2", "num_train_timesteps": 500},
        {"trained_betas": [0.1, 0.2, 0.3], "num_train_timesteps": 3},
    ):
        theirs = diffusers.DDPMScheduler(**settings).alphas_cumprod.numpy()
        assert schedule(settings) == pytest.approx(theirs, rel=2e-4)


def test_sigma_outside_of_the_schedule_is_refused() -> None:
    diffusion = Diffusion(EchoesSigma(), schedule({}))
    assert diffusion.sigmas == pytest.approx((0.005, 78.7), rel=0.01)
    with pytest.raises(InvalidInput, match=r"sigma must be from 0\.005"):
        Denoised(diffusion, Head(), sigma=0.004)
    # In the units of the input, as the sigma that was given: images in [0, 10] have ten times the noise.
    with pytest.raises(InvalidInput, match=r"sigma must be from 0\.05.* got 0\.04$"):
        Denoised(diffusion, Head(), sigma=0.04, to_denoiser=(0.1, 0.0))


# torch says so of every traced module under Python 3.13.0 itself.
@pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")
def test_the_pair_traces_for_a_compiler() -> None:
    pair = Denoised(Diffusion(EchoesSigma(), schedule({})), Head(), sigma=0.25)
    traced = torch.compile(pair, backend="eager", fullgraph=True)
    assert torch.equal(traced(X), pair(X))


def test_a_pair_is_certified_like_any_classifier() -> None:
    """A constant denoiser: every vote is for class 1, and the certificate is that of so many votes."""

    class Constant(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.zeros_like(x)

    pair = buckler.Denoised(Constant(), Head(), sigma=0.5)
    x = np.full((3, 4, 4), 0.5, dtype=np.float32)
    certificate = buckler.Smoothed(pair, sigma=0.5, num_classes=2).certify(x[None], n=200)[0]
    votes = buckler.certify_votes([[0, 200]], sigma=0.5)[0]
    assert (certificate.predicted, certificate.radius) == (1, votes.radius)
    assert as_classifier(pair, num_classes=2).num_classes == 2
