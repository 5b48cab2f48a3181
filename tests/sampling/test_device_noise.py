"""Laws on a torch device make the copies that they make on the host, bit for bit."""

from typing import Any

import numpy as np
import pytest

from buckler.errors import BucklerError
from buckler.noise import Ablation, DerandomizedSplitting, Splitting, Uniform
from buckler.noise.grid import values_of
from buckler.sampling.streams import Piece
from tests.words import chosen_words

torch = pytest.importorskip("torch")

from buckler.sampling import cuda  # noqa: E402
from buckler.sampling.cuda import FORMS, DeviceWords  # noqa: E402

NOISES = [
    Uniform(0.5), Uniform(2.5 / 255), Uniform(1000.5, step=1.0), Uniform(0.375, step=0.25), Splitting(2.5),
    Splitting(0.5), Splitting(256 / 510), Splitting(0.1), Splitting(3 / 510),
    DerandomizedSplitting(2.5, template=3), Ablation(1, 12, channels=3), Ablation(5, 12, channels=3),
    Ablation(12, 12, channels=3), Ablation(5, 36),
]  # fmt: skip


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_a_form_is_the_law(noise: Any) -> None:
    steps = np.random.default_rng(0).integers(0, 256, size=(3, 3, 3, 4))
    x = values_of(steps, noise.grid if isinstance(noise, Uniform) else Splitting(1.0).grid)
    drawn: list[Any] = []
    host: list[Any] = []
    for i, one in enumerate(x):
        if isinstance(noise, DerandomizedSplitting):
            drawn.append((np.arange(7) + 7 * i)[:, None] * 63)
            host.append(noise.numbered(one, drawn[-1][:, 0]))
            continue
        first = np.random.default_rng(i).integers(0, 2**64, size=(7, noise.words(one.shape)), dtype=np.uint64)
        first[:3] = np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)[:, None]
        words = chosen_words(first, np.arange(first.size).reshape(first.shape))
        drawn.append(
            words.smallest(noise.keep) if isinstance(noise, Ablation) else words.below(noise.count).astype(np.int32)
        )
        host.append(noise.noisy(one, words))
    form = FORMS[noise.name](noise, "cpu")
    form.load(x)
    device = form.noisy(torch.arange(3).repeat_interleave(7), torch.from_numpy(np.concatenate(drawn)))
    assert device.dtype == torch.float32
    np.testing.assert_array_equal(device.numpy().reshape(21, *x.shape[1:]), np.concatenate(host))


def test_a_device_that_draws_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = values_of(np.arange(24).reshape(2, 3, 2, 2), Splitting(1.0).grid)
    for lam in (2.5, 1 / 510):  # with many copies, and with one
        DeviceWords(DerandomizedSplitting(lam), "cpu").load(x)
    right = cuda.DerandomizedForm.noisy

    def wrong(self: Any, inputs: Any, words: Any) -> Any:
        found = right(self, inputs, words)
        found[-1, -1] += 2.0**-20
        return found

    monkeypatch.setattr(cuda.DerandomizedForm, "noisy", wrong)
    with pytest.raises(BucklerError, match="cpu draws other noise than the host"):
        DeviceWords(DerandomizedSplitting(2.5), "cpu").load(x)


def test_numbered_copies_are_made_whatever_the_batch() -> None:
    noise = DerandomizedSplitting(2.5)
    x = values_of(np.arange(24).reshape(2, 3, 2, 2), Splitting(1.0).grid)
    part = (Piece(0, 1, 100, 128), Piece(1, 2, 0, 3))  # draws 228 to 255 of the first input, 256 to 258 of the second
    device = DeviceWords(noise, "cpu")
    device.load(x)
    out = torch.zeros((40, 3, 2, 2))
    device.write(out, part, [])
    for rows, which, numbers in ((slice(0, 28), 0, np.arange(228, 256)), (slice(28, 31), 1, np.arange(256, 259))):
        expected = noise.numbered(x[which], numbers)
        np.testing.assert_array_equal(out[rows].numpy(), expected)
    assert not out[31:].any()
