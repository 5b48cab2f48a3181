"""Evidence and certificates as the first format had them: ``python evidence.py FOLDER``.

Run once, with the sources of commit c5a2955, to write what lies beside this file in ``evidence_1``. Later versions
read it; they do not write it again.
"""

import json
import sys
from pathlib import Path

import numpy as np

from buckler.runs.certify import certify_evidence
from buckler.runs.sample import sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.certificates import write_certificates
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from buckler.types import AnyArray

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3) % 5 / 4


def linear(batch: AnyArray) -> AnyArray:
    """A linear classifier of four numbers."""
    return batch.reshape(len(batch), -1) @ WEIGHTS


def main(home: Path) -> None:
    """Write a run of three inputs in two shards, its certificates, and what both hold as plain JSON."""
    spec = RunSpec(
        model="golden:linear", data="golden", sigma=0.5, num_classes=3, n=20, n0=5, scores="softmax", shard_inputs=2
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4) / np.float32(12)
    sample(spec, as_classifier(linear, num_classes=3), from_arrays(x, np.array([0, 1, 2])), home / "run")
    evidence = open_evidence(home / "run")
    counts, selection, labels = evidence.counts()
    assert selection is not None
    assert labels is not None
    scores = [made.values[0].tolist() for made, _, _ in evidence.scores()]
    certificates, _ = certify_evidence(evidence, alpha=0.05)
    write_certificates(home / "certificates.parquet", certificates, {"run": "golden"})
    held = {
        "ids": list(counts.ids),
        "counts": counts.values.tolist(),
        "selection": selection.values.tolist(),
        "labels": labels.tolist(),
        "scores": scores,
        "radii": [c.radius for c in certificates],
        "predicted": [c.predicted for c in certificates],
    }
    (home / "held.json").write_text(json.dumps(held) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
