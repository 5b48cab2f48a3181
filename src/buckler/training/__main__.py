"""``python -m buckler.training``: the command ``buckler train`` for a machine with torch and NumPy alone.

    python -m buckler.training cifar10 --data cifar10.npz --sigma 0.25 --out models

Options and exit codes are those of ``buckler train``. Where safetensors is missing too, the run ends with its
checkpoint kept: copy that file to where it is installed and give the same command with ``--resume``.
"""

import argparse
import sys
from pathlib import Path

from buckler.errors import BucklerError
from buckler.training.data import read_images
from buckler.training.recipe import TrainingConfig


def main(arguments: list[str] | None = None) -> int:
    """Train by the command line and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        from buckler.training.descent import Progress
        from buckler.training.gaussian import train
    except ImportError as error:
        if error.name != "torch":
            raise
        print("torch is needed here; install it with: pip install 'buckler[torch]'", file=sys.stderr)
        return 2

    def show(at: Progress) -> None:
        print(
            f"epoch {at.epoch}/{at.epochs}  step {at.step}/{at.steps}  loss {at.loss:.4f}  rate {at.rate:.4f}  "
            f"{at.seconds_left:.0f} s left",
            flush=True,
        )

    try:
        config = TrainingConfig(
            sigma=options.sigma,
            architecture=options.arch,
            epochs=options.epochs,
            batch_size=options.batch_size,
            learning_rate=options.lr,
            weight_decay=options.weight_decay,
            label_smoothing=options.label_smoothing,
            flip=options.data_set != "digits" if options.flip is None else options.flip,
            seed=options.seed,
            device=options.device,
            compile=options.compile,
        )
        images = read_images(options.data_set, options.data)
        trained = train(config, images, options.out, resume=options.resume, progress=show)
    except BucklerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command with --resume goes on from the last finished epoch", file=sys.stderr)
        return 3
    card = trained.card
    print(f"{trained.weights}: accuracy {card.accuracy:.2%} at sigma {card.sigma:g}, {card.clean_accuracy:.2%} without")
    return 0


def _parser() -> argparse.ArgumentParser:
    default = TrainingConfig(sigma=0.0)
    parser = argparse.ArgumentParser("python -m buckler.training", description="Train a network under Gaussian noise.")
    parser.add_argument("data_set", help="name of the data set; 'digits' needs no --data")
    parser.add_argument(
        "--data", type=Path, help=".npz file, or folder of .npy files: x_train, y_train, x_test, y_test"
    )
    parser.add_argument("--sigma", type=float, required=True, help="standard deviation of the noise")
    parser.add_argument("--out", type=Path, default=Path("models"), help="folder for weights, card and checkpoint")
    parser.add_argument("--arch", default=default.architecture)
    parser.add_argument("--epochs", type=int, default=default.epochs)
    parser.add_argument("--batch-size", type=int, default=default.batch_size)
    parser.add_argument("--lr", type=float, default=default.learning_rate, help="highest learning rate of the cycle")
    parser.add_argument("--weight-decay", type=float, default=default.weight_decay)
    parser.add_argument("--label-smoothing", type=float, default=default.label_smoothing)
    parser.add_argument("--flip", action=argparse.BooleanOptionalAction, help="mirror half of the images")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--device", default=default.device, help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="compile the network (CUDA only)")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out, if there is one")
    return parser


if __name__ == "__main__":
    sys.exit(main())
