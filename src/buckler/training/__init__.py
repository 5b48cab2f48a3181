"""Training data -> a classifier trained under noise, to be smoothed; or a denoiser to stand before a classifier.

- ``digits.train_digits(inputs, labels, sigma=, seed=)``: the small classifier of the demo; scikit-learn, no torch.
- ``train.train_classifier(config, images, out, resume=, progress=, max_seconds=)``: a network; writes weights and card.
- ``train.train_denoiser(config, images, classifier, out, ...)``: a denoiser before a classifier.
- ``recipe.TrainingConfig(sigma=, architecture=, ...)``: every choice that decides the weights.
- ``data.read_images(name, path)``: the images, from one file, a folder, or the bundled digits.

Behind both: ``tasks`` (noisy inputs and losses) and ``descent`` (the optimisation, its checkpoints, the moving average
of the weights). Networks and cards are read in ``sampling``.

Importing this room loads no torch; the modules that need it do. May import: the root modules and ``sampling``.
"""
