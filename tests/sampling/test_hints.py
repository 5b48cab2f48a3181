"""What people trip over with a model and inputs, through ``buckler.Smoothed``: each is taken, warned of or named."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import buckler
from buckler.errors import BucklerWarning
from buckler.types import AnyArray

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from buckler.sampling.cpu import ROWS_RUN_ALONE  # noqa: E402

IMAGES = np.random.default_rng(0).random((4, 3, 8, 8), dtype=np.float32)
NET = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5))
GREY = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 5))
HELD = np.full((64, 6), 0.5, dtype=np.float32)


def smoothed(model: Any, **how: Any) -> buckler.Smoothed:
    return buckler.Smoothed(model, **({"sigma": 0.25, "num_classes": 5} | how))


def in_a_function(batch: Any) -> Any:
    return NET(batch)


def columns(batch: Any) -> Any:
    return batch[:, :5]


def channels_last(batch: AnyArray) -> AnyArray:
    if batch.shape[-1] != 3:
        raise ValueError("needs three channels")
    return np.asarray(batch.reshape(len(batch), -1)[:, :5])


@pytest.mark.parametrize(
    ("model", "x", "said"),
    [
        (NET, IMAGES.transpose(0, 2, 3, 1), r"channels first: pass np\.moveaxis\(x, -1, 1\)"),
        (channels_last, IMAGES, r"channels last: pass np\.moveaxis\(x, 1, -1\)"),
        (
            GREY,
            IMAGES,
            r"takes images of one channel; these have three, .* give grey images as an array, x in an \.npz",
        ),
        (in_a_function, IMAGES, "takes torch tensors: give the torch.nn.Module itself"),
        (
            lambda batch: (columns(batch), batch),
            HELD,
            r"a tuple of 2: \[0\] of shape \(20, 5\), \[1\] of shape \(20, 6\)",
        ),
        (lambda batch: {"logits": columns(batch)}, HELD, r"a dict of 1: \['logits'\] of shape \(20, 5\)"),
        (lambda batch: batch[:, 0], HELD, r"np\.stack\(\[-score, score\]"),
        (lambda batch: batch, HELD, "must return 5 classes; got 6: pass num_classes=6"),
    ],
)
def test_a_failure_on_the_first_batch_says_what_to_change(model: Any, x: AnyArray, said: str) -> None:
    with pytest.raises(buckler.BucklerError, match=rf"failed on input 0: .*{said}"):
        smoothed(model).certify(x[:1], n=20)


def test_a_failed_module_is_given_back_as_it_was() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(buckler.BucklerError, match=r"pass x\[None\]"):
        smoothed(net).certify(IMAGES[0], n=20)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_channels_are_not_blamed_for_a_wrong_number_of_classes() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))  # takes channels first and last alike
    with pytest.raises(buckler.BucklerError, match=r"must return 7 classes; got 5: pass num_classes=5$"):
        smoothed(flat, num_classes=7).certify(IMAGES[:1], n=20)


def test_of_a_module_with_several_outputs_one_must_be_taken() -> None:
    class Two(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[:, :5], x

    with pytest.raises(buckler.BucklerError, match=r"a tuple of 2: .* of shape \(20, 5\).*whose forward does that"):
        smoothed(Two()).certify(HELD[:1], n=20)


def test_errors_name_the_position_of_an_input() -> None:
    def picky(batch: AnyArray) -> AnyArray:
        return np.where(batch[:, :1] > 5, np.nan, columns(batch))

    x = HELD.copy()
    x[40] = 9.0
    with pytest.raises(buckler.BucklerError, match="NaN or infinite logit for input 40 "):
        smoothed(picky).certify(x, n=200)
    names = [f"photo {i}" for i in range(64)]
    with pytest.raises(buckler.BucklerError, match="NaN or infinite logit for input 'photo 40' "):
        smoothed(picky).certify(x, n=200, ids=names)


class Whole(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return len(HELD)

    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(HELD[i]), i % 5


@pytest.mark.parametrize("kind", ["loader", "generator", "dataset"])
def test_batches_are_data(kind: str) -> None:
    def batches() -> Iterator[Any]:
        yield HELD[:50]
        yield HELD[50:]

    given: dict[str, Any] = {"loader": DataLoader(Whole(), batch_size=10), "generator": batches(), "dataset": Whole()}
    assert smoothed(columns).certify(given[kind], n=20) == smoothed(columns).certify(HELD, n=20)


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ([{"pixel_values": HELD}], r"dicts with \['pixel_values'\]: pass \(batch\['pixel_values'\] for batch in x\)"),
        ([HELD, HELD[:, :3]], "batches of one shape"),
        ([], "at least one batch"),
    ],
)
def test_batches_that_are_no_data_are_named(batches: list[Any], said: str) -> None:
    with pytest.raises(buckler.InvalidInput, match=said):
        smoothed(columns).certify(iter(batches), n=20)


class OfCompanions(nn.Module):
    def forward(self, x: Any) -> Any:
        return columns(x - x.mean(dim=0))


class Random(nn.Module):
    def forward(self, x: Any) -> Any:
        return columns(x) + torch.randn(len(x), 1) * torch.arange(5)


def of_companions(batch: AnyArray) -> AnyArray:
    return np.asarray(columns(batch - batch.mean(axis=0)))


@pytest.mark.parametrize("model", [OfCompanions(), Random(), of_companions])
def test_a_model_whose_answer_is_not_its_inputs_alone_is_warned_of_once(model: Any) -> None:
    tried = smoothed(model)
    with pytest.warns(BucklerWarning, match="other logits when it was run on them again in another batch") as seen:
        tried.certify(HELD[:3], n=100)
    assert len(seen) == 1
    tried.certify(HELD[:3], n=100)  # not again


def test_rounding_is_not_warned_of() -> None:
    rng = np.random.default_rng(0)
    for scale, rounding in ((1.0, 1e-3), (1e-9, 1e-6)):  # logits that differ, and logits that are about one number
        tried = smoothed(lambda b, s=scale, r=rounding: 1 + s * columns(b) + r * rng.random((len(b), 5)))
        tried.certify(HELD[:1], n=20)


def test_infinite_logits_are_named_and_no_more() -> None:
    with pytest.raises(buckler.BucklerError, match="infinite logit for input 0 "):
        smoothed(lambda batch: np.full((len(batch), 5), np.inf)).certify(HELD[:2], n=20)


def test_few_rows_are_run_again() -> None:
    rows = []

    def counting(batch: AnyArray) -> AnyArray:
        rows.append(len(batch))
        return np.asarray(columns(batch))

    tried = smoothed(counting)
    tried.certify(HELD[:2], n=1000)
    assert sum(rows) == 2000 + ROWS_RUN_ALONE
    tried.certify(HELD[:2], n=1000)
    assert sum(rows) == 4000 + ROWS_RUN_ALONE


def test_probabilities_under_softmax_are_warned_of() -> None:
    soft = nn.Sequential(nn.Linear(6, 5), nn.Softmax(dim=1))
    with pytest.warns(BucklerWarning, match="look like probabilities") as seen:
        smoothed(soft, scores=buckler.Softmax()).certify(HELD[:3], n=2000)
    assert len(seen) == 1
    smoothed(soft).certify(HELD[:3], n=100)
    smoothed(nn.Linear(6, 5), scores=buckler.Softmax()).certify(HELD[:3], n=100)


def test_a_transformers_model_without_its_processor_is_warned_of() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, image_size=8, patch_size=4,
        num_labels=5,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config)
    with pytest.warns(BucklerWarning, match="hf:FOLDER.*buckler.Normalized"):
        smoothed(model)
    smoothed(buckler.Normalized(model, 0.5, 0.5)).certify(IMAGES[:1], n=20)
