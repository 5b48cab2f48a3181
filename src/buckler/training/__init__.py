"""Training data -> a classifier fit to be smoothed: noise is added to every training input; or a denoiser before one.

- ``digits.train_digits(inputs, labels, sigma=, seed=)``: the small classifier of the demo; scikit-learn, no torch.
- ``gaussian.train(config, images, out, resume=, progress=)``: a reference network; writes weights and their card.
- ``denoising.train_denoiser(config, images, classifier, out, ...)``: a denoiser before a classifier.
- ``recipe.TrainingConfig(sigma=, architecture=, ...)``: every choice that decides the weights.
- ``data.read_images(name, path)``: the images, from one file, a folder, or the bundled digits.

Behind both: ``tasks`` (what is to be learnt, from batches made on the device), ``descent`` (the run and its steps),
``outcome`` (what it leaves), ``averaging`` (the running average of the weights), ``checkpoints`` and ``devices``.
Networks and cards are read in ``sampling``.

Importing this room loads no torch; the modules that need it do. May import: the root modules and ``sampling``.
"""
