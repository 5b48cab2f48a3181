"""The environment says whether float32 products keep all their bits."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from buckler.runs.identity import _coarse_products, environment
from buckler.sampling.classifiers import as_classifier


def test_coarse_products_are_recorded_and_exact_ones_left_out() -> None:
    classifier = as_classifier(torch.nn.Linear(2, 2))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert "float32 products" not in environment(classifier)
        torch.set_float32_matmul_precision("high")
        assert environment(classifier)["float32 products"] == "matmul high"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("matmul", "cudnn", "told"),
    [
        ("highest", True, "convolutions tf32"),
        ("medium", True, "matmul medium, convolutions tf32"),
        ("highest", False, ""),
        (None, False, "matmul tf32"),  # flags of single backends: torch has no one answer
    ],
)
def test_a_device_has_flags_of_its_own(matmul: str | None, cudnn: bool, told: str) -> None:
    def precision() -> str:
        if matmul is None:
            raise RuntimeError("a mix of the legacy and new APIs")
        return matmul

    cuda = SimpleNamespace(matmul=SimpleNamespace(fp32_precision="tf32"))
    backends = SimpleNamespace(cuda=cuda, cudnn=SimpleNamespace(allow_tf32=cudnn))
    stub: Any = SimpleNamespace(get_float32_matmul_precision=precision, backends=backends)
    assert _coarse_products(stub, cuda=True) == told
