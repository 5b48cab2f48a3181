"""Model + inputs -> evidence. The only room, beside training, that may import torch; and the only one for onnxruntime.

- ``classifiers``: what a classifier must be, a callable ``batch -> logits``; ``as_classifier(model)`` makes one of
  a torch module (``modules``), an ONNX file, a scikit-learn estimator or a callable. ``Normalized(model, mean, std)``.
- ``models.resolve_model(name, denoiser=, sigma=)``: what ``--model`` and ``--denoiser`` mean, folders of transformers
  and diffusers among them; ``zoo``: bundled networks by name, with their cards; ``weights``: files of weights.
- ``denoised.Denoised(denoiser, classifier, sigma=)``, ``denoised.Diffusion(network, abar)``: a diffusion model as a
  denoiser, in one step. ``architectures.build(name, num_classes)``: the reference networks.
- ``datasets.open_dataset(name)``: inputs with stable ids. ``preprocess``: what the numbers of an input mean; bytes are
  spread over a declared range, floats taken as they are.
- ``streams``: (seed, input id, stream, block) -> noise, whatever the batch size or order; which draws share a batch.
- ``engine.Engine(classifier, sigma=, seed=)``: ``votes(x, ids, stream, n)`` and ``scores``, inside ``session()``;
  ``draw_until_decided(engine, x, ids, decider)``. It drives a backend: NumPy (``cpu``) or torch (``device``), with
  noise drawn on the device by ``cuda`` and ``kernels``, and layers fused by ``fusion``.
- ``gradients``: a torch module under noise, with gradients. ``simplex``: logits -> hardmax, softmax, sparsemax.

May import: the root modules and ``noise``.
"""
