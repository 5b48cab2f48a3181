"""A denoiser on the digits: it learns, it resumes exactly, and its card and its file are told from a classifier's."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("sklearn")

from buckler.cli.app import run  # noqa: E402
from buckler.errors import InvalidInput  # noqa: E402
from buckler.files import checksum  # noqa: E402
from buckler.sampling import architectures  # noqa: E402
from buckler.sampling.architectures import DEVIATION, MEAN, UNet, build  # noqa: E402
from buckler.sampling.models import resolve_model  # noqa: E402
from buckler.sampling.weights import load_denoiser, load_network, save_network  # noqa: E402
from buckler.sampling.zoo import DenoiserCard, read_card  # noqa: E402
from buckler.training import train  # noqa: E402
from buckler.training.data import Images, read_images  # noqa: E402
from buckler.training.descent import TrainingProgress  # noqa: E402
from buckler.training.recipe import TrainingConfig  # noqa: E402
from buckler.training.tasks import Classify, Denoise, accuracy_under  # noqa: E402
from buckler.training.train import Trained, train_denoiser  # noqa: E402

torch.set_num_threads(1)

TINY = partial(UNet, (8, 8, 8), 1)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train and read a U-Net of ten thousand parameters, not of three million."""
    monkeypatch.setattr(train, "UNet", TINY)
    monkeypatch.setattr(architectures, "UNet", TINY)


@pytest.fixture(scope="module")
def few() -> Images:
    digits = read_images("digits")
    parts = {"x_train": 256, "y_train": 256, "x_test": 50, "y_test": 50}
    return dataclasses.replace(digits, **{name: getattr(digits, name)[:size] for name, size in parts.items()})


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("classifier") / "clean.safetensors"
    torch.manual_seed(0)
    save_network(path, build("small_conv", 10), architecture="small_conv", num_classes=10, sigma=0.0)
    return path


@pytest.fixture(scope="module")
def config(classifier: Path) -> TrainingConfig:
    return TrainingConfig(
        sigma=0.5, smallest_sigma=0.2, architecture="unet", classifier=checksum(classifier), recognition=0.1,
        epochs=2, batch_size=32, learning_rate=0.005, weight_decay=0.01, flip=False, device="cpu",
    )  # fmt: skip


@pytest.fixture
def trained(config: TrainingConfig, few: Images, classifier: Path, tmp_path: Path) -> Trained[DenoiserCard]:
    return train_denoiser(config, few, [classifier], tmp_path)


def relative_error(network: Any, images: Images) -> float:
    """Return the squared error on the test images, relative to that of the noise."""
    task, x = Denoise(0.2, 0.5), torch.from_numpy(images.x_test)
    with torch.no_grad():
        inputs = task.inputs(x, torch.Generator().manual_seed(1))
        return float(task.loss(network, inputs, x, torch.from_numpy(images.y_test)))


def test_learns(config: TrainingConfig, few: Images, classifier: Path, tmp_path: Path) -> None:
    longer = dataclasses.replace(config, epochs=5, batch_size=32)
    before = relative_error(TINY(), few)  # the best linear estimate for images of deviation 1/4
    after = relative_error(load_denoiser(train_denoiser(longer, few, [classifier], tmp_path).weights), few)
    assert after < 0.8 * before < 1.0


def test_card_tells_of_the_classifier_behind_it(
    trained: Trained[DenoiserCard], classifier: Path, tmp_path: Path
) -> None:
    card = read_card(trained.weights.with_suffix(".json"))
    assert isinstance(card, DenoiserCard)
    assert card == trained.card
    assert (card.kind, card.classifier, card.classifier_sha256) == ("denoiser", classifier.name, checksum(classifier))
    assert card.accuracy.keys() == {"0.25", "0.5"}  # 0.12 and 1 were never seen
    assert card.sha256 == checksum(trained.weights)
    assert f"--denoiser --smallest-sigma 0.2 --classifier {classifier.name} --recognition 0.1 " in card.command
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"digits-denoiser.{s}" for s in ("json", "safetensors")]


def test_resumed_run_has_the_weights_of_an_undisturbed_one(
    trained: Trained[DenoiserCard], config: TrainingConfig, few: Images, classifier: Path, tmp_path: Path
) -> None:
    def stop(at: TrainingProgress) -> None:
        if at.epoch > 1:
            raise KeyboardInterrupt

    parts = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        train_denoiser(config, few, [classifier], parts, progress=stop)
    with pytest.raises(InvalidInput, match=r"another run .*recognition 0.1 there and 0.0 here"):
        train_denoiser(dataclasses.replace(config, recognition=0.0), few, [classifier], parts, resume=True)
    seen: list[TrainingProgress] = []
    resumed = train_denoiser(config, few, [classifier], parts, resume=True, progress=seen.append)
    assert {at.epoch for at in seen} == {2}
    assert resumed.card.sha256 == trained.card.sha256
    assert resumed.card.accuracy == trained.card.accuracy


def test_the_classifier_judges(few: Images, classifier: Path) -> None:
    x, y = torch.from_numpy(few.x_test), torch.from_numpy(few.y_test)
    judge = load_network(classifier)
    inputs = Denoise(0.2, 0.5).inputs(x, torch.Generator().manual_seed(0))
    assert 0.2 <= float(inputs[1].min()) < float(inputs[1].max()) <= 0.5
    clean = x.permute(0, 3, 1, 2) / 255.0
    told = inputs[1][:, None, None, None]
    assert float(((inputs[0] - clean) / told).std()) == pytest.approx(1.0, abs=0.02)
    with torch.no_grad():
        alone, both = (Denoise(0.2, 0.5, [judge], w).loss(lambda x, _: x, inputs, x, y) for w in (0.0, 2.0))
        entropy = torch.nn.functional.cross_entropy(judge(inputs[0]), y)
    assert float(alone) == pytest.approx(1.0, abs=0.02)  # nothing was removed
    torch.testing.assert_close(both, alone + 2.0 * entropy)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("other") / "other.safetensors"
    torch.manual_seed(1)
    save_network(path, build("small_conv", 10), architecture="small_conv", num_classes=10, sigma=0.0)
    return path


def test_several_classifiers_judge_by_their_mean_loss(few: Images, classifier: Path, other: Path) -> None:
    x, y = torch.from_numpy(few.x_test), torch.from_numpy(few.y_test)
    judges = [load_network(classifier), load_network(other)]
    with torch.no_grad():
        judges[1].classify.weight.mul_(100.0)
    inputs = Denoise(0.2, 0.5).inputs(x, torch.Generator().manual_seed(0))

    def of(*behind: Any) -> tuple[float, Any]:
        moved = torch.zeros_like(inputs[0]).requires_grad_()
        found = Denoise(0.2, 0.5, behind, 2.0).loss(lambda x, _: x + moved, inputs, x, y)
        return float(found.detach()), torch.autograd.grad(found, moved)[0]

    (first, down), (second, steeper), (both, mean) = of(judges[0]), of(judges[1]), of(*judges)
    assert second > first + 1.0
    assert both == pytest.approx((first + second) / 2.0, rel=1e-5)
    assert not torch.allclose(mean, down)
    torch.testing.assert_close(mean, (down + steeper) / 2.0)


def test_two_draws_of_an_image_share_its_sigma_and_should_agree(few: Images, classifier: Path) -> None:
    x, y = torch.from_numpy(few.x_test), torch.from_numpy(few.y_test)
    judge = load_network(classifier)
    with torch.no_grad():
        judge.classify.weight.mul_(100.0)  # answers that differ from draw to draw
    task = Denoise(0.2, 0.5, [judge], 2.0, consistency=10.0)
    noisy, sigma = task.inputs(x, torch.Generator().manual_seed(0))
    assert len(noisy) == len(sigma) == 2 * len(x)
    torch.testing.assert_close(sigma[: len(x)], sigma[len(x) :], rtol=0.0, atol=0.0)
    clean = x.permute(0, 3, 1, 2) / 255.0
    noise = (noisy - torch.cat([clean, clean])) / sigma[:, None, None, None]
    assert float(noise.std()) == pytest.approx(1.0, abs=0.02)
    one, other = (part.flatten().numpy() for part in noise.chunk(2))
    assert abs(np.corrcoef(one, other)[0, 1]) < 5.0 / np.sqrt(one.size)  # two draws, not one twice
    with torch.no_grad():
        found = float(task.loss(lambda x, _: x, (noisy, sigma), x, y))
        p, q = judge(noisy).softmax(dim=1).double().chunk(2)
        entropy = torch.nn.functional.cross_entropy(judge(noisy), torch.cat([y, y]))
    mean = (p + q) / 2.0
    divergence = 0.5 * ((mean * (mean / p).log()).sum(dim=1) + (mean * (mean / q).log()).sum(dim=1))
    spread = -(mean * mean.log()).sum(dim=1)
    alone = float(noise.square().mean())
    assert float(divergence.mean()) > 0.01
    assert found == pytest.approx(alone + 2.0 * float(entropy + (10.0 * divergence + 0.5 * spread).mean()), rel=1e-4)


def test_consistency_is_on_the_card_and_in_the_weights(
    trained: Trained[DenoiserCard], config: TrainingConfig, few: Images, classifier: Path, tmp_path: Path
) -> None:
    steady = train_denoiser(dataclasses.replace(config, consistency=10.0), few, [classifier], tmp_path / "steady")
    assert steady.card.sha256 != trained.card.sha256
    assert " --recognition 0.1 --consistency 10 " in steady.card.command
    assert steady.card.recipe["consistency"] == 10.0
    assert "consistency" not in trained.card.recipe


def test_refuses(config: TrainingConfig, few: Images, classifier: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="architecture must be unet"):
        train_denoiser(TrainingConfig(sigma=0.25), few, [classifier], tmp_path / "a")
    with pytest.raises(InvalidInput, match="classifiers must be the files that the recipe names"):
        train_denoiser(dataclasses.replace(config, classifier="0" * 64), few, [classifier], tmp_path / "a")
    three = tmp_path / "three.safetensors"
    sha256 = save_network(three, build("small_conv", 3), architecture="small_conv", num_classes=3, sigma=0.0)
    with pytest.raises(InvalidInput, match="classifier must tell 10 classes; got 3"):
        train_denoiser(dataclasses.replace(config, classifier=sha256), few, [three], tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("read", "kind", "message"),
    [
        (load_network, "unet", "must hold a classifier; .* holds a denoiser"),
        (load_denoiser, "small_conv", "must hold a denoiser; .* holds a classifier, 'small_conv'"),
        (lambda path: resolve_model(f"resnet110:{path}"), "unet", "must be those of resnet110; the file says 'unet'"),
        (lambda path: resolve_model(f"resnet20:{path}"), "small_conv", "must be those of resnet20; the file says"),
    ],
)
def test_one_kind_is_not_taken_for_the_other(
    read: Callable[[Path], Any], kind: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "network.safetensors"
    network = TINY() if kind == "unet" else build(kind, 10)
    save_network(path, network, architecture=kind, num_classes=10, sigma=1.0)
    with pytest.raises(InvalidInput, match=message) as caught:
        read(path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_unet_returns_float32_images_of_the_same_shape(dtype: str) -> None:
    network = TINY().to(getattr(torch, dtype)).eval()
    x = torch.rand(3, 3, 16, 32, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    with torch.no_grad():
        one, each = network(x, 0.5), network(x, torch.tensor([0.1, 0.5, 1.0]))
    assert one.shape == each.shape == x.shape
    assert one.dtype == each.dtype == torch.float32
    torch.testing.assert_close(one[1], each[1])
    assert not torch.allclose(one[0], each[0])


def test_unet_starts_near_the_best_linear_estimate() -> None:
    network = TINY()
    torch.nn.init.zeros_(network.last[-1].bias)
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        estimate = MEAN + (x - MEAN) * DEVIATION**2 / (DEVIATION**2 + 0.25)
        torch.testing.assert_close(network(x, 0.5), estimate)


def test_command_trains_it(few: Images, classifier: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    images = {name: getattr(few, name)[:32] for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "few.npz", **images)
    line = ["train", "few", "--data", str(tmp_path / "few.npz"), "--out", str(tmp_path), "--device", "cpu"]
    line += ["--denoiser", "--sigma", "0.5", "--smallest-sigma", "0.2", "--classifier", str(classifier)]
    assert run([*line, "--epochs", "1"]) == 0
    card = read_card(tmp_path / "few-denoiser.json")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        start = TINY().first.weight
    learned = load_denoiser(tmp_path / "few-denoiser.safetensors").first.weight
    assert not torch.equal(learned, start.half().float())  # one step, too few for an average of the weights
    assert {"learning_rate": 0.002, "weight_decay": 0.01, "recognition": 0.1}.items() <= card.recipe.items()
    out, err = capfd.readouterr()
    assert out.strip() == str(tmp_path / "few-denoiser.safetensors")
    assert "accuracy of clean.safetensors behind it" in err


def test_command_trains_it_behind_several_classifiers(
    few: Images, classifier: Path, other: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    images = {name: getattr(few, name)[:32] for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "few.npz", **images)
    cards = {}
    for name, behind in {"first": [classifier], "second": [other], "both": [classifier, other]}.items():
        line = ["train", "few", "--data", str(tmp_path / "few.npz"), "--out", str(tmp_path / name), "--device", "cpu"]
        line += ["--denoiser", "--sigma", "0.5", "--smallest-sigma", "0.2", "--recognition", "1", "--epochs", "1"]
        line += ["--batch-size", "4"]  # the first step of AdamW tells signs of gradients alone
        assert run([*line, *(word for path in behind for word in ("--classifier", str(path)))]) == 0
        cards[name] = read_card(tmp_path / name / "few-denoiser.json")
    card = cards["both"]
    assert isinstance(card, DenoiserCard)
    assert card.sha256 not in {cards["first"].sha256, cards["second"].sha256}
    assert card.classifier == "clean.safetensors, other.safetensors"
    assert card.classifier_sha256 == card.recipe["classifier"] == f"{checksum(classifier)}, {checksum(other)}"
    assert " --classifier clean.safetensors --classifier other.safetensors --recognition 1 " in card.command
    denoiser = load_denoiser(tmp_path / "both" / "few-denoiser.safetensors").eval()
    shares = []
    for judge in map(load_network, (classifier, other)):
        answers = lambda x, judge=judge: judge(denoiser(x, 0.5))  # noqa: E731
        test = torch.from_numpy(images["x_test"]), torch.from_numpy(images["y_test"])
        shares.append(accuracy_under(Classify(0.5).inputs, answers, *test, seed=0, device=torch.device("cpu")))
    assert card.accuracy["0.5"] == pytest.approx(np.mean(shares))
    assert "mean accuracy of clean.safetensors, other.safetensors behind it" in capfd.readouterr().err
