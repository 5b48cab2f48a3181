"""Training data -> a classifier fit to be smoothed: Gaussian noise is added to every training input.

- ``digits.train_digits(inputs, labels, sigma=, seed=)``: the small classifier of the demo.

May import: the root modules and ``sampling``.
"""
