"""Image processors: every setting of theirs is done inside of the model, or said not to be."""

import contextlib
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from PIL import Image  # noqa: E402
from torch import nn  # noqa: E402

from buckler.errors import BucklerWarning, InvalidInput  # noqa: E402
from buckler.sampling.diffusion import Diffusion, schedule  # noqa: E402
from buckler.sampling.folders import Prepared  # noqa: E402
from buckler.sampling.processors import SETTINGS, Processor, processor_from, read_processor  # noqa: E402

torch.set_num_threads(1)

VIT = {
    "do_resize": True, "size": {"height": 12, "width": 12}, "resample": 2, "do_rescale": True,
    "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2],
    "do_convert_rgb": None, "image_processor_type": "ViTImageProcessor",
}  # fmt: skip


class Seen(nn.Module):
    """Returns what it is given."""

    def forward(self, x: Any) -> Any:
        return x


def test_a_usual_processor_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = processor_from(VIT)
    assert made == Processor(size=(12, 12), mean=(0.5, 0.4, 0.3), std=(0.5, 0.25, 0.2))


@pytest.mark.parametrize("resample", [2, 3])
@pytest.mark.parametrize("side", [8, 12, 24])
def test_what_the_network_sees_is_what_the_processor_gives(resample: int, side: int) -> None:
    """Beside transformers' own, which rounds a resized picture to bytes."""
    transformers = pytest.importorskip("transformers")
    asked = {**VIT, "resample": resample}
    smooth = np.linspace(60, 190, side)
    bytes_ = np.stack([np.add.outer(smooth, k * smooth) / (1 + k) for k in range(3)], axis=-1).round().astype(np.uint8)
    theirs = (
        transformers.ViTImageProcessorPil
        if hasattr(transformers, "ViTImageProcessorPil")
        else transformers.ViTImageProcessor
    )
    told = {k: v for k, v in asked.items() if k != "image_processor_type"}
    expected = theirs(**told)(Image.fromarray(bytes_), return_tensors="pt")["pixel_values"]
    x = torch.from_numpy(bytes_.transpose(2, 0, 1)[None].astype(np.float32) / 255)
    found = Prepared(Seen(), processor_from(asked))(x)
    assert found.shape == expected.shape
    # one step of a byte, over the smallest std
    assert float((found - expected).abs().max()) <= 1.5 / 255 / 0.2


def test_crops_are_of_the_middle_and_said() -> None:
    asked = {**VIT, "size": {"shortest_edge": 8}, "do_center_crop": True, "crop_size": {"height": 6, "width": 6}}
    with pytest.warns(BucklerWarning, match="cuts out the middle, 6x6"):
        made = processor_from({**asked, "do_normalize": False})
    picture = torch.rand(1, 3, 8, 12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Prepared(Seen(), made)(picture), picture[:, :, 1:7, 3:9])
    ready = picture[:, :, :6, :6]
    assert torch.equal(Prepared(Seen(), made)(ready), ready)  # data that was cut beforehand is taken as it is
    assert Prepared(Seen(), made)(torch.rand(1, 3, 16, 20)).shape == (1, 3, 6, 6)
    with pytest.raises(InvalidInput, match="at least 6x6"):
        Prepared(Seen(), Processor(crop=(6, 6)))(torch.rand(1, 3, 4, 9))


def test_a_share_of_the_picture() -> None:
    with pytest.warns(BucklerWarning, match="8x8"):
        made = processor_from({"do_resize": True, "size": {"shortest_edge": 8}, "crop_pct": 0.8})
    assert (made.size, made.crop) == (10, (8, 8))


@pytest.mark.parametrize(
    ("asked", "named", "expected"),
    [
        ({"do_rescale": False}, "does not rescale", Processor()),
        ({"do_rescale": True, "rescale_factor": 1 / 127.5, "rescale_offset": True}, "by 0.00784", Processor(2.0, -1.0)),
        ({"do_pad": True}, "do_pad of the image processor is not done", Processor()),
        ({"do_resize": True, "size": 8, "resample": 1}, "resample 1", Processor(size=8, resampling="bicubic")),
    ],
)
def test_what_is_unusual_or_not_done_is_said(asked: dict[str, Any], named: str, expected: Processor) -> None:
    with pytest.warns(BucklerWarning, match=named):
        made = processor_from(asked)
    assert made.scale == pytest.approx(expected.scale)
    assert (made.shift, made.size, made.resampling) == (expected.shift, expected.size, expected.resampling)


def test_scale_channels_and_normalisation_come_in_order() -> None:
    steps = Processor(scale=2.0, shift=-1.0, reverse=True, mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 4.0))
    x = torch.tensor([0.25, 0.5, 1.0]).view(1, 3, 1, 1)
    found = Prepared(Seen(), steps)(x).flatten().tolist()
    assert found == pytest.approx([(1.0 - 0.1) / 1.0, (0.0 - 0.2) / 2.0, (-0.5 - 0.3) / 4.0])


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"do_normalize": True}, "image_mean must be a finite number; got None"),
        ({"do_normalize": True, "image_mean": [0.5], "image_std": [0.5, 0.5]}, "one number a channel"),
        ({"do_normalize": True, "image_mean": [0.5], "image_std": [0.0]}, "std above 0"),
        ({"do_resize": True, "size": {"longest_edge": 5}}, "size must be"),
        ({"do_resize": True, "size": 10**9}, "size must be a whole number from 1"),
        ({"do_rescale": True, "rescale_factor": "all"}, "rescale_factor must be"),
        ({"do_resize": True, "size": 8, "crop_pct": 2.0}, "crop_pct must be in"),
    ],
)
def test_settings_without_sense_are_refused(asked: dict[str, Any], named: str, tmp_path: Path) -> None:
    (tmp_path / SETTINGS).write_text(json.dumps(asked))
    with pytest.raises(InvalidInput, match=rf"{SETTINGS}: .*{named}"):
        read_processor(tmp_path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 600) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["height", "width", "shortest_edge"]), inner)
    ),
    max_leaves=4,
)
OF_PROCESSORS = [*VIT, "do_center_crop", "crop_size", "crop_pct", "rescale_offset", "do_pad", "do_flip_channel_order"]
OF_SCHEDULES = ["beta_schedule", "beta_start", "beta_end", "num_train_timesteps", "trained_betas", "prediction_type"]


@given(st.dictionaries(st.sampled_from(OF_PROCESSORS), VALUES), st.dictionaries(st.sampled_from(OF_SCHEDULES), VALUES))
@settings(max_examples=150, deadline=None)
def test_whatever_stands_in_the_files_is_read_or_refused(asked: dict[str, Any], planned: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BucklerWarning)
        with contextlib.suppress(InvalidInput):
            Prepared(Seen(), processor_from(asked))(torch.zeros(1, 3, 4, 4))
        with contextlib.suppress(InvalidInput):
            Diffusion(Seen(), schedule(planned), planned.get("prediction_type", "epsilon"))
