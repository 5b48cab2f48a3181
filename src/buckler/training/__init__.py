"""Training data -> a classifier fit to be smoothed: Gaussian noise is added to every training input.

- ``digits.train_digits(inputs, labels, sigma=, seed=)``: the small classifier of the demo; scikit-learn, no torch.
- ``gaussian.train(config, images, out, resume=, progress=)``: a reference network; writes weights and their card.
- ``recipe.TrainingConfig(sigma=, architecture=, ...)``: every choice that decides the weights.
- ``data.read_images(name, path)``: the images, from one file, a folder, or the bundled digits.
- ``weights.load_network(path)``: the network in a weights file, ready to be smoothed.

Behind ``train``: ``descent`` (the steps), ``augmentation`` (batches made on the device), ``averaging`` (the running
average of the weights), ``checkpoints``, ``devices``, ``accuracy``, ``cards``.

Importing this room loads no torch; the modules that need it do. May import: the root modules and ``sampling``.
"""
