"""``buckler sample``: draw noisy copies of inputs through a model, and keep votes and scores in a folder."""

import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from buckler.cli import options
from buckler.cli.options import option
from buckler.cli.terminal import interruptible, say, stop
from buckler.progress import bar
from buckler.runs import sample as runs
from buckler.runs.executor import Interrupted
from buckler.runs.open_run import ExecutorOptions, open_run, settings_from
from buckler.runs.plan import measure_rate, time_to_sample
from buckler.runs.spec import values, with_draws


def sample_command(
    out: Annotated[Path, typer.Argument(help="Folder for the run. The same command again goes on with it.")],
    model: options.Model = None,
    data: options.Data = None,
    spec: options.Spec = None,
    denoiser: options.Denoiser = None,
    num_classes: options.NumClasses = None,
    mean: Annotated[
        str | None,
        option("Mean of each channel, subtracted inside of the model: 0.49,0.48,0.45.", group=options.MODEL_GROUP),
    ] = None,
    std: Annotated[
        str | None, option("Standard deviation of each channel, likewise.", group=options.MODEL_GROUP)
    ] = None,
    labels: Annotated[
        str | None, option("An .npy file of labels, for data without.", group=options.MODEL_GROUP)
    ] = None,
    resize: Annotated[
        int | None, option("For a folder of images: scale the shorter side.", "as it is", group=options.MODEL_GROUP)
    ] = None,
    crop: Annotated[
        int | None, option("For a folder of images: cut out the centre.", "whole", group=options.MODEL_GROUP)
    ] = None,
    value_range: Annotated[
        str | None,
        option("For arrays: the range of the values; bytes are spread over it.", "0,1", group=options.MODEL_GROUP),
    ] = None,
    sigma: options.Sigma = None,
    noise: options.NoiseOption = None,
    seed: options.Seed = None,
    fresh_seed: options.FreshSeed = False,
    n: Annotated[int | None, option("Draws for each input.", group=options.DRAWS_GROUP)] = None,
    n0: options.SelectionDraws = None,
    every: options.Every = None,
    limit: options.LimitOption = None,
    ids: Annotated[str | None, option("Take these inputs: 7,20,35.", "all", group=options.INPUTS_GROUP)] = None,
    scores: Annotated[
        str | None, option("Keep scores too: none, logits, softmax or sparsemax.", group=options.SCORES_GROUP)
    ] = None,
    temperature: Annotated[float | None, option("Temperature of softmax.", "1", group=options.SCORES_GROUP)] = None,
    runner_ups: Annotated[
        int | None,
        option("Keep this many runner-up classes, and one column for the others.", "all", group=options.SCORES_GROUP),
    ] = None,
    score_draws: Annotated[
        int | None, option("Keep the scores of this many draws.", "all", group=options.SCORES_GROUP)
    ] = None,
    score_dtype: Annotated[
        str | None, option("Keep scores as float32 or, rounded, float16.", "float32", group=options.SCORES_GROUP)
    ] = None,
    device: options.Device = None,
    dtype: Annotated[
        str | None, option("Of a torch model: float32, bfloat16 or float16.", "float32", group=options.DEVICE_GROUP)
    ] = None,
    channels_last: Annotated[
        bool | None, option("Store images channels last, for a torch model.", "no", group=options.DEVICE_GROUP)
    ] = None,
    compile: Annotated[  # noqa: A002
        bool | None, option("Compile a torch model.", "no", group=options.DEVICE_GROUP)
    ] = None,
    batch_size: options.BatchSize = None,
    shard_inputs: Annotated[
        int | None, option("Inputs in a file of the run.", "some seconds of work", group=options.RESUME_GROUP)
    ] = None,
    max_seconds: Annotated[
        float | None, option("Stop after this time; the same command goes on.", "no limit", group=options.RESUME_GROUP)
    ] = None,
    max_samples: Annotated[
        int | None, option("Stop before more draws than this; likewise.", "no limit", group=options.RESUME_GROUP)
    ] = None,
    repair: Annotated[
        bool, option("Set damaged files aside and draw them again.", name="--repair", group=options.RESUME_GROUP)
    ] = False,
    allow_other_model: options.AllowOtherModel = False,
    executor: options.ExecutorOption = "process",
    address: options.AddressOption = None,
    workers: options.Workers = None,
    gpus_per_worker: options.Gpus = None,
    quiet: options.Quiet = False,
    as_json: Annotated[bool, options.as_json_option("Print the summary as JSON.")] = False,
) -> None:
    """Draw noisy copies through a model and keep the votes on disk.

    This is the expensive step, done once: buckler certify, sweep and report read the folder, without the model.

    Examples:

      buckler sample run/ --model mymodels:make --data cifar10.npz --sigma 0.5
        --n 10000 --every 20
      buckler sample run/ --model resnet110:weights.safetensors --sigma 0.25
        --data cifar-10-batches-bin --n 100000 --device cuda --dtype bfloat16
        --channels-last --compile
      buckler sample run/ --spec run.toml --executor ray --address auto
    """
    given = {
        "model": model, "data": data, "sigma": sigma, "noise": noise, "n": n, "n0": n0, "seed": seed,
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
            where = ExecutorOptions(executor, address, workers, gpus_per_worker)
            shown = bar("sampling", quiet=quiet or as_json, unit="draws", transient=False)
            with open_run(settings, where, out) as run, shown as advance:
                resolved = run.spec
                if not (quiet or as_json):
                    rate = run.rate or measure_rate(resolved, run.executor, run.dataset)
                    if expected := time_to_sample(resolved, len(run.dataset), rate):
                        say(f"buckler: {expected}", error=True)
                summary = runs.sample(
                    resolved,
                    run.executor,
                    run.dataset,
                    out,
                    progress=lambda state: advance(state.done, state.total, state.drawn),
                    max_seconds=max_seconds,
                    max_samples=max_samples,
                    repair=repair,
                    allow_other_model=allow_other_model,
                )
        except Interrupted as interrupt:
            _stopped("interrupted", out, interrupt.done)
        except KeyboardInterrupt:
            stop("interrupted before anything was drawn")
    if as_json:
        fields = {
            "complete": summary.complete, "inputs": summary.inputs, "inputs_done": summary.inputs_done,
            "shards": summary.shards, "under_way": summary.under_way, "samples": summary.samples, "lost": summary.lost,
            "seconds": round(summary.seconds, 3), "batch_rows": summary.rows,
            "spec_hash": resolved.hash(),
        }  # fmt: skip
        say(json.dumps(fields))
    elif not quiet:
        rate = summary.samples / max(summary.seconds, 1e-9)
        done = f"{summary.inputs_done:,} of {summary.inputs:,} inputs in {out}"
        say(f"{done}; {summary.samples:,} draws, {rate:,.0f} a second")
    if summary.rows < resolved.batch_size and not quiet:
        say(f"buckler: memory ran out; batches were cut to {summary.rows} rows", error=True)
    if not summary.complete:
        _stopped("stopped at the limit", out, summary)


def _stopped(why: str, out: Path, summary: runs.Summary) -> NoReturn:
    shards = "1 shard" if summary.shards == 1 else f"{summary.shards:,} shards"
    begun = f" and {summary.under_way:,} draws of the input under way" if summary.under_way else ""
    lost = f"; {summary.lost:,} draws are lost" if summary.lost else ""
    stop(f"{why}; {out} keeps {summary.inputs_done:,} of {summary.inputs:,} inputs in {shards}{begun}{lost}")
