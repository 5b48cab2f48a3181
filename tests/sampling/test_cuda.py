"""The cuda backend: the same promises as on the host. Runs with ``python tests/sampling/test_cuda.py`` too."""

from typing import Any
from unittest import skipUnless

import numpy as np
import torch
from torch import nn

import buckler
from buckler.noise import Ablation, DerandomizedSplitting, GridGaussian, Splitting, Uniform
from buckler.sampling.architectures import UNet, build
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.denoised import Denoised
from buckler.sampling.engine import Engine
from buckler.sampling.streams import NOISE_BLOCK, Address
from buckler.types import AnyArray, IntArray, Noise

needs_cuda = skipUnless(torch.cuda.is_available(), "needs a cuda device")

X = np.random.default_rng(0).random((5, 3, 8, 8)).astype(np.float32)
IDS = [f"input-{i}" for i in range(5)]


class Rowwise(nn.Module):
    """Class by which of four pixels is largest: exact, and each row on its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :4]


def counts(rows: int, n: int = 1000, **options: Any) -> IntArray:
    engine = Engine(as_classifier(Rowwise(), num_classes=4, device="cuda"), sigma=0.5, batch_size=rows, **options)
    with engine.session():
        return engine.votes(X, IDS, "estimation", n)


@needs_cuda
def test_tensors_on_the_device_are_certified_as_arrays_are() -> None:
    smoothed = buckler.Smoothed(as_classifier(Rowwise(), num_classes=4, device="cuda"), sigma=0.5)
    x = torch.from_numpy(X).cuda().requires_grad_()
    assert smoothed.certify(x, n=200) == smoothed.certify(X, n=200)
    assert smoothed.certify(x[2:3], n=200, ids=IDS[2:3]) == smoothed.certify(X[2:3], n=200, ids=IDS[2:3])
    assert smoothed.predict(x[2:3], n=200) == smoothed.predict(X[2:3], n=200)


@needs_cuda
def test_noise_is_a_function_of_its_address() -> None:
    from buckler.sampling.device import CudaNoise

    def block(address: Address) -> AnyArray:
        out = torch.empty((NOISE_BLOCK, 3, 8, 8), device="cuda")
        CudaNoise("cuda").fill(out, address, 0)
        return out.cpu().numpy()

    here = Address(0, "a", "estimation", 5)
    whole = block(here)
    assert (whole == block(here)).all()
    noise = CudaNoise("cuda")
    for low, high in ((0, 7), (7, 64), (64, 128), (3, 5)):
        part = torch.empty((high - low, 3, 8, 8), device="cuda")
        noise.fill(part, here, low)
        assert (part.cpu().numpy() == whole[low:high]).all()
    others = [
        Address(1, "a", "estimation", 5), Address(0, "b", "estimation", 5), Address(0, "a", "selection", 5),
        Address(0, "a", "estimation", 4), Address(0, "a", "estimation", 6),
    ]  # fmt: skip
    for other in others:
        assert abs(np.corrcoef(whole.ravel(), block(other).ravel())[0, 1]) < 0.05
    assert abs(float(whole.mean())) < 5 / np.sqrt(whole.size)
    assert abs(float(whole.var()) - 1.0) < 5 * np.sqrt(2 / whole.size)


@needs_cuda
def test_counts_do_not_depend_on_the_batch_size() -> None:
    expected = counts(1000)
    assert (expected.sum(axis=1) == 1000).all()
    for rows in (7, 64, 128, 4096):
        assert (counts(rows) == expected).all()


@needs_cuda
def test_the_host_generator_gives_the_host_counts() -> None:
    engine = Engine(as_classifier(Rowwise(), num_classes=4), sigma=0.5, batch_size=64)
    with engine.session():
        host = engine.votes(X, IDS, "estimation", 1000)
    assert (counts(64, generator="philox") == host).all()
    assert np.abs(counts(64) - host).max() < 120  # other noise, same distribution: 5 standard deviations are 112


@needs_cuda
def test_lower_precision_compiled_and_channels_last() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(576, 4)).cuda()

    def votes(**options: Any) -> IntArray:
        engine = Engine(as_classifier(net, **options), sigma=0.5, batch_size=512)
        with engine.session():
            return engine.votes(X, IDS, "estimation", 700)

    plain = votes()
    fast = votes(dtype="bfloat16", channels_last=True, compile=True)
    assert (fast.sum(axis=1) == 700).all()
    assert np.abs(plain - fast).max() < 70
    assert (fast == votes(dtype="bfloat16", channels_last=True, compile=True)).all()
    assert net.training


@needs_cuda
def test_narrow_layers_agree_with_torch_and_with_themselves() -> None:
    from buckler.sampling.fusion import FusedConvolution

    torch.manual_seed(0)
    for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 32, 1)):
        conv = nn.Conv2d(inputs, outputs, 3, stride, 1).cuda()
        x = torch.randn(65, inputs, 13, 13, device="cuda").to(memory_format=torch.channels_last)
        layer = FusedConvolution(conv, relu=True)
        layer.lower(torch.float16)
        with torch.no_grad():  # as the engine does
            rest = torch.randn_like(conv(x))
            expected = torch.relu(conv(x) + rest)
            found, again = (layer(x.half(), rest.half()) for _ in range(2))
        assert float((found - expected).abs().max()) < 0.02
        assert torch.equal(found, again)


@needs_cuda
def test_a_fused_network_votes_as_the_plain_one() -> None:
    from buckler.sampling.architectures import build

    torch.manual_seed(0)
    net = build("resnet20", 4).cuda()
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.weight.data.uniform_(0.3, 0.8)
    options: dict[str, Any] = {"dtype": "bfloat16", "channels_last": True, "compile": True}
    x = torch.rand(2000, 3, 32, 32, device="cuda")
    plain, fused, again = (as_classifier(net, **how) for how in ({}, options, options))
    with plain.session():
        reference = plain(x)
    with fused.session(), again.session():
        close, twice = fused(x), again(x)
    assert "FusedConvolution" in str(fused._call)
    assert float((close - reference).abs().mean()) < 0.02 * float(reference.std())
    assert torch.equal(close, twice)


@needs_cuda
def test_a_pair_compiled_in_lower_precision_answers_as_the_plain_one() -> None:
    torch.manual_seed(0)
    pair = Denoised(UNet((16, 16, 16), 1), build("small_conv", 10), sigma=0.25).eval()
    x = torch.rand(64, 3, 32, 32, device="cuda")
    plain = as_classifier(pair, num_classes=10, device="cuda")
    fast = as_classifier(pair, num_classes=10, device="cuda", dtype="bfloat16", channels_last=True, compile=True)
    with plain.session(), fast.session():
        expected, found = plain(x), fast(x)
    assert float((found - expected).abs().max()) <= 0.1 * float(expected.abs().max())


@needs_cuda
def test_memory_that_runs_out_halves_the_batch() -> None:
    class Greedy(Rowwise):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 300:
                torch.empty(1 << 50, device=x.device)
            return super().forward(x)

    engine = Engine(as_classifier(Greedy(), num_classes=4, device="cuda"), sigma=0.5, batch_size=1024)
    with engine.session():
        drawn = engine.votes(X, IDS, "estimation", 1000)
    assert engine.rows == 256
    assert (drawn == counts(1024)).all()


@needs_cuda
def test_noises_from_words_draw_what_the_host_draws() -> None:
    """The same votes, whatever the batch size, on the host as on the device; and the same bits in other batches."""
    x = GridGaussian(0.5).values(np.random.default_rng(1).integers(0, 256, size=X.shape))

    def votes(noise: Noise, device: str, rows: int) -> IntArray:
        engine = Engine(as_classifier(Rowwise(), num_classes=4, device=device), noise=noise, batch_size=rows)
        with engine.session():
            found = engine.votes(x, IDS, "estimation", 250)
            assert engine.replayed()[1] == 0
            return found

    for noise in (
        GridGaussian(0.5),
        Uniform(0.5),
        Splitting(0.5),
        DerandomizedSplitting(0.5),
        Ablation(5, 64, channels=3),
    ):
        host = votes(noise, "cpu", 64)
        for rows in (64, 333, 2048):
            assert (votes(noise, "cuda", rows) == host).all(), noise


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("passed", name, flush=True)
