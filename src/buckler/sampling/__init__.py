"""Model + inputs -> evidence. The only room, beside training, that may import torch; and the only one for onnxruntime.

- ``classifiers.as_classifier(model)``: a ``Classifier``, called ``batch -> logits``, of an ONNX file, a scikit-learn
  estimator, a callable or a torch module (``modules``, with its gradients under noise); ``Normalized``.
- ``models.resolve_model(name, denoiser=, sigma=)``: what ``--model`` and ``--denoiser`` mean, folders of transformers
  and diffusers among them; ``zoo``: bundled networks by name, with their cards; ``weights``: files of weights.
- ``denoised.Denoised(denoiser, classifier, sigma=)``, ``denoised.Diffusion(network, abar)``: a diffusion model as a
  denoiser, in one step. ``architectures.build(name, num_classes)``: the reference networks.
- ``datasets.open_dataset(name)``: inputs with stable ids. ``preprocess``: what the numbers of an input mean; bytes are
  spread over a declared range, floats taken as they are.
- ``streams``: (seed, input id, stream, block) -> noise, whatever the batch size or order; which draws share a batch.
- ``engine.Engine(classifier, sigma=, seed=)``: ``votes(x, ids, stream, n)``, inside ``session()``;
  ``draw_until_decided(engine, x, ids, decider)``. It drives a backend: NumPy (``cpu``) or torch (``device``), with
  noise drawn on the device by ``kernels``, and layers fused by ``fusion``.
- ``simplex``: logits -> scores, by softmax or sparsemax.

May import: the root modules and ``noise``.
"""
