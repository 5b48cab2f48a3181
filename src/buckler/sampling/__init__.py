"""Model + inputs -> evidence. The only room, beside training, that may import torch; and the only one for onnxruntime.

- ``classifiers``: what a classifier must be, a callable ``batch -> logits``, and adapters to it.
- ``datasets``: named data sets, each input with a stable id.
- ``simplex``: hardmax, softmax at a temperature, sparsemax; NumPy or torch.
- ``noise``: (seed, input id, stream, block) -> Gaussian noise, whatever the batch size or order.
- ``engine``: noisy copies through the classifier, votes counted.

May import: the root modules.
"""
