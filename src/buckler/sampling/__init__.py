"""Model + inputs -> evidence. The only room, beside training, that may import torch; and the only one for onnxruntime.

- ``classifiers``: what a classifier must be, a callable ``batch -> logits``; ``as_classifier(model)`` makes one of
  a torch module (``modules``), an ONNX file, a scikit-learn estimator or a callable. ``Normalized(model, mean, std)``.
- ``models.resolve_model(name, denoiser=, sigma=)``: what ``--model`` and ``--denoiser`` mean; ``weights``: the hashes
  of their files. ``zoo``: bundled networks by name, with their ``cards``. ``folders``: those of transformers and
  diffusers, with their image processors inside.
- ``denoised.Denoised(denoiser, classifier, sigma=)``, ``denoised.Averaged(models)``: models made of models;
  ``diffusion.Diffusion(network, abar)``: a diffusion model as a denoiser, in one step.
- ``architectures.build(name, num_classes)``, ``unet``: the reference networks; ``networks`` reads them from files.
- ``datasets.open_dataset(name)``: inputs with stable ids, from arrays (``arrays``), folders of ``images`` or digits.
- ``noise``: (seed, input id, stream, block) -> Gaussian noise, whatever the batch size or order.
- ``batches``: which draws share a batch. ``simplex``: logits -> hardmax, softmax, sparsemax.
- ``engine.Engine(classifier, sigma=, seed=)``: ``votes(x, ids, stream, n)`` and ``scores``, inside ``session()``. It
  drives a ``backend``: NumPy on the host, or a torch ``device``.
- ``adaptive.draw_until_decided(engine, x, ids, decider)``: round after round, until the decider has seen enough.
- ``probe.Probe(...).ask(classifier)``: what a classifier answers to a small fixed batch, by which it is known again.
- ``values``: what the numbers of an input mean; bytes are spread over a declared range, floats taken as they are.
- ``environment``: what the bytes depend on beside the specification.

May import: the root modules.
"""
