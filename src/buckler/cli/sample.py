"""``buckler sample``: noisy copies of many inputs through a model, votes and scores to a folder of evidence."""

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from buckler.cli import options
from buckler.cli.options import IN_SPEC, option
from buckler.cli.terminal import interruptible, stop
from buckler.progress import bar
from buckler.runs import sample as runs
from buckler.runs.open_run import Where, open_run, settings_from
from buckler.runs.spec import values, with_draws


def sample(
    out: Annotated[
        Path, typer.Argument(help="Folder for the evidence; the same command again goes on where it ended.")
    ],
    spec: Annotated[Path | None, option("TOML file with these settings; options win over it.", "none")] = None,
    model: Annotated[
        str | None, option("module:factory, FILE.onnx, resnet110:WEIGHTS, hf:FOLDER or buckler:NAME.", IN_SPEC)
    ] = None,
    data: Annotated[str | None, option("digits, FILE.npy, FILE.npz, CIFAR-10 or image folder.", IN_SPEC)] = None,
    sigma: Annotated[float | None, option("Noise, in the units of the input.", IN_SPEC)] = None,
    law: options.LawOption = None,
    denoiser: options.Denoiser = None,
    n: Annotated[int | None, option("Estimation draws for each input.", IN_SPEC)] = None,
    n0: Annotated[int | None, option("Selection draws for each input.", "100")] = None,
    seed: Annotated[int | None, option("Seed of the noise.", "0")] = None,
    fresh_seed: options.FreshSeed = False,
    num_classes: options.NumClasses = None,
    scores: Annotated[str | None, option("Scores to keep: none, logits, softmax or sparsemax.", "none")] = None,
    temperature: Annotated[float | None, option("Temperature of softmax scores.", "1")] = None,
    runner_ups: Annotated[
        int | None, option("Keep this many columns of runner-ups, and one for the rest.", "all columns")
    ] = None,
    score_draws: Annotated[int | None, option("Keep the scores of this many draws.", "all")] = None,
    score_dtype: Annotated[str | None, option("Keep scores as float32 or, rounded, float16.", "float32")] = None,
    batch_size: options.BatchSize = None,
    shard_inputs: Annotated[int | None, option("Inputs in a shard.", "some seconds of work")] = None,
    device: Annotated[str | None, option("Torch device.", "cpu")] = None,
    dtype: Annotated[str | None, option("Of a torch module: float32, bfloat16 or float16.", "float32")] = None,
    channels_last: Annotated[bool | None, option("Store images channels last, for a torch module.", "no")] = None,
    compile: Annotated[bool | None, option("Compile the torch module.", "no")] = None,  # noqa: A002
    mean: Annotated[str | None, option("Mean of each channel, put inside the model: 0.49,0.48,0.45", "none")] = None,
    std: Annotated[str | None, option("Standard deviation of each channel, put inside the model.", "none")] = None,
    labels: Annotated[str | None, option("An .npy file of labels, for arrays without.", "none")] = None,
    resize: Annotated[int | None, option("Scale the shorter side of each image of a folder.", "as it is")] = None,
    crop: Annotated[int | None, option("Cut the centre of each image of a folder.", "whole")] = None,
    value_range: Annotated[str | None, option("Declared range of arrays; bytes are spread over it.", "0,1")] = None,
    every: Annotated[int | None, option("Take every k-th input.", "1")] = None,
    limit: Annotated[int | None, option("Take at most this many inputs.", "all")] = None,
    ids: Annotated[str | None, option("Take these inputs: 7,20,35", "all")] = None,
    max_seconds: Annotated[float | None, option("Stop after this time; resumable.", "no limit")] = None,
    max_samples: Annotated[int | None, option("Stop before more draws than this; resumable.", "no limit")] = None,
    repair: Annotated[bool, option("Set damaged shards aside and draw them again.", name="--repair")] = False,
    allow_other_model: options.AllowOtherModel = False,
    executor: options.Executor = "process",
    address: options.Address = None,
    workers: options.Workers = None,
    gpus_per_worker: options.Gpus = None,
    quiet: options.Quiet = False,
    as_json: Annotated[bool, option("Print the summary as JSON.", name="--json")] = False,
) -> None:
    """Sample evidence: votes (and scores) of noisy copies of each input, kept on disk for `buckler certify`.

    Examples:

      buckler sample run/ --model mymodels:make --data cifar10.npz --sigma 0.5 --n 10000 --every 20

      buckler sample run/ --model resnet110:weights.safetensors --data cifar-10-batches-bin --sigma 0.25 --n 100000
      --device cuda --dtype bfloat16 --channels-last --compile

      buckler sample run/ --spec run.toml --executor ray --address auto
    """
    given = {
        "model": model, "data": data, "sigma": sigma, "law": law, "n": n, "n0": n0, "seed": seed,
        "fresh_seed": fresh_seed or None,
        "num_classes": num_classes, "scores": scores, "temperature": temperature, "runner_ups": runner_ups,
        "score_draws": score_draws, "score_dtype": score_dtype, "batch_size": batch_size,
        "shard_inputs": shard_inputs, "device": device, "dtype": dtype, "channels_last": channels_last,
        "compile": compile, "mean": values("mean", mean, float) or None,
        "std": values("std", std, float) or None, "labels": labels, "resize": resize, "crop": crop,
        "value_range": values("value_range", value_range, float) or None, "every": every, "limit": limit,
        "ids": values("ids", ids, str) or None, "denoiser": denoiser,
    }  # fmt: skip
    settings = with_draws(settings_from(spec, given))
    options.check_given(settings, "model", "data", "n")
    with interruptible():
        try:
            where = Where(executor, address, workers, gpus_per_worker)
            shown = bar("sampling", quiet=quiet or as_json, unit="draws", transient=False)
            with open_run(settings, where, out) as (resolved, classifier, dataset), shown as advance:
                summary = runs.sample(
                    resolved,
                    classifier,
                    dataset,
                    out,
                    progress=lambda state: advance(state.done, state.total, state.drawn),
                    max_seconds=max_seconds,
                    max_samples=max_samples,
                    repair=repair,
                    allow_other_model=allow_other_model,
                )
        except runs.Interrupted as interrupt:
            _stopped("interrupted", out, interrupt.summary)
        except KeyboardInterrupt:
            stop("interrupted before anything was drawn")
    if as_json:
        told = {
            "complete": summary.complete, "inputs": summary.inputs, "inputs_done": summary.inputs_done,
            "shards": summary.shards, "samples": summary.samples, "lost": summary.lost,
            "seconds": round(summary.seconds, 3), "batch_rows": summary.rows,
            "spec_hash": resolved.hash(),
        }  # fmt: skip
        print(json.dumps(told))
    elif not quiet:
        rate = summary.samples / max(summary.seconds, 1e-9)
        done = f"{summary.inputs_done:,} of {summary.inputs:,} inputs in {out}"
        print(f"{done}; {summary.samples:,} draws, {rate:,.0f} a second")
    if summary.rows < resolved.batch_size and not quiet:
        print(f"buckler: memory ran out; batches were cut to {summary.rows} rows", file=sys.stderr)
    if not summary.complete:
        _stopped("stopped at the limit", out, summary)


def _stopped(why: str, out: Path, summary: runs.Summary) -> NoReturn:
    lost = f", and {summary.lost:,} draws of unfinished shards are lost" if summary.lost else ""
    shards = "1 shard" if summary.shards == 1 else f"{summary.shards:,} shards"
    stop(f"{why}; {out} keeps {summary.inputs_done:,} of {summary.inputs:,} inputs in {shards}{lost}")
