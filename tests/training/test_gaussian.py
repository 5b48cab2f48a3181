"""Training end to end on the digits: it learns, it resumes exactly, and the card tells the truth."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("sklearn")

from safetensors import safe_open  # noqa: E402

from buckler.errors import BucklerError, InvalidInput, MissingExtra  # noqa: E402
from buckler.sampling.architectures import build  # noqa: E402
from buckler.sampling.weights import load_network  # noqa: E402
from buckler.sampling.zoo import ClassifierCard, read_card  # noqa: E402
from buckler.training import train  # noqa: E402
from buckler.training.convolution import NarrowConvolution, use_kernels  # noqa: E402
from buckler.training.data import Images, read_images  # noqa: E402
from buckler.training.descent import TrainingProgress, checkpoint_path  # noqa: E402
from buckler.training.recipe import TrainingConfig  # noqa: E402
from buckler.training.tasks import Classify, accuracy_under, noisy  # noqa: E402
from buckler.training.train import Trained, train_classifier  # noqa: E402

torch.set_num_threads(1)

CONFIG = TrainingConfig(
    sigma=0.25, architecture="small_conv", epochs=12, batch_size=64, learning_rate=0.2, flip=False, device="cpu"
)
SHORT = dataclasses.replace(CONFIG, epochs=3)


@pytest.fixture(scope="module")
def digits() -> Images:
    return read_images("digits")


@pytest.fixture(scope="module")
def few(digits: Images) -> Images:
    return dataclasses.replace(
        digits,
        x_train=digits.x_train[:256],
        y_train=digits.y_train[:256],
        x_test=digits.x_test[:50],
        y_test=digits.y_test[:50],
    )


@pytest.fixture(scope="module")
def trained(digits: Images, tmp_path_factory: pytest.TempPathFactory) -> Trained[ClassifierCard]:
    return train_classifier(CONFIG, digits, tmp_path_factory.mktemp("models"))


def tensors(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def test_learns_under_noise(trained: Trained[ClassifierCard]) -> None:
    assert trained.card.accuracy > 0.85
    assert trained.card.parameters == 24_346


def test_weights_are_half_and_the_card_knows_them(trained: Trained[ClassifierCard], digits: Images) -> None:
    assert {str(t.dtype) for t in tensors(trained.weights).values()} == {"torch.float16", "torch.int64"}
    assert trained.card.sha256 == hashlib.sha256(trained.weights.read_bytes()).hexdigest()
    assert read_card(trained.weights.with_suffix(".json")) == trained.card
    assert trained.card.data_sha256 == digits.sha256
    assert trained.card.command.startswith("buckler train digits --sigma 0.25 --arch small_conv --epochs 12")
    assert sorted(p.suffix for p in trained.weights.parent.iterdir()) == [".json", ".safetensors"]


def test_accuracy_on_the_card_is_that_of_the_file(trained: Trained[ClassifierCard], digits: Images) -> None:
    network = load_network(trained.weights)
    test = torch.from_numpy(digits.x_test), torch.from_numpy(digits.y_test)
    for sigma, told in ((0.25, trained.card.accuracy), (0.0, trained.card.clean_accuracy)):
        found = accuracy_under(Classify(sigma).inputs, network, *test, seed=0, device=torch.device("cpu"))
        assert found == pytest.approx(told, abs=1 / len(digits.x_test))  # one image may sit on the fence


def test_learns_under_splitting_noise(digits: Images, tmp_path: Path) -> None:
    card = train_classifier(dataclasses.replace(CONFIG, sigma=0.0, lam=1.0, epochs=4), digits, tmp_path).card
    assert card.accuracy > 0.3  # three times what guessing gives
    assert card.lam == 1.0
    network = load_network(tmp_path / card.weights)
    test = torch.from_numpy(digits.x_test), torch.from_numpy(digits.y_test)
    found = accuracy_under(Classify(0.0, 1.0).inputs, network, *test, seed=0, device=torch.device("cpu"))
    assert found == pytest.approx(card.accuracy, abs=1 / len(digits.x_test))
    assert "--lam 1 " in card.command
    assert card.noise() == "splitting, lam 1"


def test_consistency_and_an_adversary_decide_the_weights(few: Images, tmp_path: Path) -> None:
    plain = train_classifier(SHORT, few, tmp_path / "plain").card
    steady = dataclasses.replace(SHORT, consistency=10.0)
    first = train_classifier(steady, few, tmp_path / "steady").card
    second = train_classifier(dataclasses.replace(steady, adversary=0.5, attack_steps=1), few, tmp_path / "both").card
    assert len({plain.sha256, first.sha256, second.sha256}) == 3
    assert (second.recipe["adversary"], second.recipe["attack_steps"]) == (0.5, 1)
    assert "adversary" not in first.recipe
    assert "consistency" not in plain.recipe


@pytest.mark.parametrize(
    "choice", [{"label_smoothing": 0.3}, {"momentum": 0.5}, {"weight_decay": 0.1}, {"warmup": 0.6}, {"flip": True}]
)
def test_every_choice_decides_the_weights(choice: dict[str, Any], few: Images, tmp_path: Path) -> None:
    short = dataclasses.replace(CONFIG, epochs=1)
    plain = train_classifier(short, few, tmp_path / "plain").card
    assert train_classifier(dataclasses.replace(short, **choice), few, tmp_path / "other").card.sha256 != plain.sha256


def test_consistency_makes_the_answers_to_two_draws_agree(
    trained: Trained[ClassifierCard], digits: Images, tmp_path: Path
) -> None:
    steady = train_classifier(dataclasses.replace(CONFIG, consistency=10.0), digits, tmp_path)
    x = torch.from_numpy(np.concatenate([digits.x_test] * 20))
    apart = []
    with torch.no_grad():
        for tried in (steady, trained):
            noise = torch.Generator().manual_seed(0)
            first, second = load_network(tried.weights)(noisy(x, 0.25, noise)).softmax(dim=1).chunk(2)
            apart.append(float((first - second).abs().sum(dim=1).mean()))
    assert steady.card.accuracy > 0.85
    assert apart[0] < 0.75 * apart[1]  # 0.54 to 0.62 for the seeds 0, 1 and 2


def test_a_run_in_pieces_has_the_weights_of_an_undisturbed_one(few: Images, tmp_path: Path) -> None:
    whole = train_classifier(SHORT, few, tmp_path / "whole")
    seen: list[TrainingProgress] = []

    def piece() -> Trained[ClassifierCard]:
        return train_classifier(SHORT, few, tmp_path / "parts", resume=True, progress=seen.append, max_seconds=1e-9)

    for done in (1, 2):
        with pytest.raises(TimeoutError, match=f"{done} of 3 epochs"):
            piece()
    assert piece().card.sha256 == whole.card.sha256
    assert [at.epoch for at in seen] == [1, 2, 3]


def test_deep_network_trains(few: Images, tmp_path: Path) -> None:
    seen: list[TrainingProgress] = []
    config = dataclasses.replace(
        CONFIG, architecture="resnet20", epochs=2, batch_size=128, learning_rate=0.05, flip=True
    )
    train_classifier(config, few, tmp_path, progress=seen.append)
    assert [(p.epoch, p.step, p.steps) for p in seen] == [(1, 2, 4), (2, 4, 4)]
    assert seen[-1].loss < seen[0].loss


def test_resnet50_trains_on_larger_images(few: Images, tmp_path: Path) -> None:
    large = dataclasses.replace(
        few,
        x_train=np.repeat(np.repeat(few.x_train[:8], 2, axis=1), 2, axis=2),
        y_train=few.y_train[:8],
        x_test=np.repeat(np.repeat(few.x_test[:4], 2, axis=1), 2, axis=2),
        y_test=few.y_test[:4],
    )
    config = dataclasses.replace(CONFIG, architecture="resnet50", epochs=1, batch_size=8)
    assert train_classifier(config, large, tmp_path).card.height == 64


def test_resumed_run_has_the_weights_of_an_undisturbed_one(few: Images, tmp_path: Path) -> None:
    def stop(at: TrainingProgress) -> None:
        if at.epoch > 1:
            raise KeyboardInterrupt

    whole = train_classifier(SHORT, few, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train_classifier(SHORT, few, tmp_path / "parts", progress=stop)
    seen: list[TrainingProgress] = []
    parts = train_classifier(SHORT, few, tmp_path / "parts", resume=True, progress=seen.append)
    assert {p.epoch for p in seen} == {2, 3}
    assert parts.card.sha256 == whole.card.sha256
    assert parts.card.accuracy == whole.card.accuracy


def test_same_seed_same_weights_other_seed_others(few: Images, tmp_path: Path) -> None:
    config = dataclasses.replace(SHORT, epochs=1)
    first = train_classifier(config, few, tmp_path / "1").card.sha256
    torch.manual_seed(99)
    assert train_classifier(config, few, tmp_path / "2").card.sha256 == first
    assert train_classifier(dataclasses.replace(config, seed=1), few, tmp_path / "3").card.sha256 != first


def test_unfinished_run_is_neither_lost_nor_mixed_up(few: Images, tmp_path: Path) -> None:
    def stop(at: TrainingProgress) -> None:
        if at.epoch > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_classifier(SHORT, few, tmp_path, progress=stop)
    with pytest.raises(InvalidInput, match="unfinished run"):
        train_classifier(SHORT, few, tmp_path)
    with pytest.raises(InvalidInput, match=r"another run .*learning_rate 0.2 there and 0.3 here"):
        train_classifier(dataclasses.replace(SHORT, learning_rate=0.3), few, tmp_path, resume=True)
    with pytest.raises(InvalidInput, match=r"another run .*data "):
        train_classifier(SHORT, dataclasses.replace(few, sha256="0" * 64), tmp_path, resume=True)
    checkpoint = checkpoint_path(SHORT, "digits", tmp_path)
    state = torch.load(checkpoint, weights_only=True)
    torch.save({name: value for name, value in state.items() if name != "updates"}, checkpoint)
    with pytest.raises(InvalidInput, match=r"not a checkpoint of this program \(KeyError\)"):
        train_classifier(SHORT, few, tmp_path, resume=True)
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(InvalidInput, match="not a checkpoint"):
        train_classifier(SHORT, few, tmp_path, resume=True)


def test_without_safetensors_the_checkpoint_is_exported_later(
    few: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> str:
        raise MissingExtra("safetensors", "torch")

    with monkeypatch.context() as patch:
        patch.setattr(train, "save_network", missing)
        with pytest.raises(MissingExtra):
            train_classifier(SHORT, few, tmp_path / "there")
    seen: list[TrainingProgress] = []
    later = train_classifier(SHORT, few, tmp_path / "there", resume=True, progress=seen.append)
    assert not seen
    assert later.card.sha256 == train_classifier(SHORT, few, tmp_path / "here").card.sha256


def test_divergence_is_told(few: Images, tmp_path: Path) -> None:
    with pytest.raises(BucklerError, match=r"diverged|does not fit float16"):
        train_classifier(dataclasses.replace(SHORT, learning_rate=1e6, warmup=0.0), few, tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens where there is no GPU")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "vgg"}, "architecture must be one of"),
        ({"device": "tpu9"}, "device must be 'auto'"),
        ({"device": "cuda"}, "device must be one of the 0 CUDA devices"),
        ({"compile": True}, "compile must be off on cpu"),
    ],
)
def test_refuses(few: Images, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        train_classifier(dataclasses.replace(SHORT, **change), few, tmp_path)
    assert not list(tmp_path.iterdir())


def test_weights_of_others_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(InvalidInput, match="must be an existing file"):
        load_network(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("no")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_network(tmp_path / "text.safetensors")
    save_file({"a": torch.zeros(2)}, tmp_path / "plain.safetensors")
    with pytest.raises(InvalidInput, match="must name an architecture"):
        load_network(tmp_path / "plain.safetensors")
    header = {"buckler": '{"architecture": "small_conv", "num_classes": 3}'}
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors", metadata=header)
    with pytest.raises(InvalidInput, match="do not fit the architecture small_conv"):
        load_network(tmp_path / "other.safetensors")


def test_narrow_convolutions_are_torchs_own_where_there_is_no_gpu() -> None:
    network = build("resnet20", 10)
    x = torch.rand(2, 3, 32, 32)
    before, names = network(x), list(network.state_dict())
    use_kernels(network)
    assert sum(type(part) is NarrowConvolution for part in network.modules()) == 6
    assert torch.equal(network(x), before)
    assert list(network.state_dict()) == names
