"""``buckler sample``: noisy copies of many inputs through a model, votes and scores to a folder of evidence."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from buckler.cli import options
from buckler.cli.interrupts import interruptible
from buckler.runs import sample as runs
from buckler.runs.opening import Where, open_run, settings_from
from buckler.runs.spec import values
from buckler.runs.without_chance import with_draws
from buckler.sampling.environment import peak_memory
from buckler.waiting import bar

INTERRUPTED = 3
IN_SPEC = "that of --spec"


def sample(
    out: Annotated[
        Path, typer.Argument(help="Folder for the evidence; the same command again goes on where it ended.")
    ],
    spec: Annotated[
        Path | None, typer.Option(help="TOML file with these settings; options win over it.", show_default="none")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="module:factory, FILE.onnx, resnet110:WEIGHTS, hf:FOLDER or buckler:NAME.",
            show_default=IN_SPEC,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="digits, FILE.npy, FILE.npz, CIFAR-10 or image folder.", show_default=IN_SPEC),
    ] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise, in the units of the input.", show_default=IN_SPEC)] = None,
    law: options.LawOption = None,
    denoiser: options.Denoiser = None,
    n: Annotated[int | None, typer.Option(help="Estimation draws for each input.", show_default=IN_SPEC)] = None,
    n0: Annotated[int | None, typer.Option(help="Selection draws for each input.", show_default="100")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the noise.", show_default="0")] = None,
    fresh_seed: options.FreshSeed = False,
    num_classes: options.NumClasses = None,
    scores: Annotated[
        str | None, typer.Option(help="Scores to keep: none, logits, softmax or sparsemax.", show_default="none")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Temperature of softmax scores.", show_default="1")] = None,
    runner_ups: Annotated[
        int | None,
        typer.Option(help="Keep this many columns of runner-ups, and one for the rest.", show_default="all columns"),
    ] = None,
    score_draws: Annotated[
        int | None, typer.Option(help="Keep the scores of this many draws.", show_default="all")
    ] = None,
    score_dtype: Annotated[
        str | None, typer.Option(help="Keep scores as float32 or, rounded, float16.", show_default="float32")
    ] = None,
    batch_size: options.BatchSize = None,
    shard_inputs: Annotated[
        int | None, typer.Option(help="Inputs in a shard.", show_default="some seconds of work")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Torch device.", show_default="cpu")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Of a torch module: float32, bfloat16 or float16.", show_default="float32")
    ] = None,
    channels_last: Annotated[
        bool | None, typer.Option(help="Store images channels last, for a torch module.", show_default="no")
    ] = None,
    compile: Annotated[bool | None, typer.Option(help="Compile the torch module.", show_default="no")] = None,  # noqa: A002
    mean: Annotated[
        str | None,
        typer.Option(help="Mean of each channel, put inside the model: 0.49,0.48,0.45", show_default="none"),
    ] = None,
    std: Annotated[
        str | None,
        typer.Option(help="Standard deviation of each channel, put inside the model.", show_default="none"),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="An .npy file of labels, for arrays without.", show_default="none")
    ] = None,
    resize: Annotated[
        int | None, typer.Option(help="Scale the shorter side of each image of a folder.", show_default="as it is")
    ] = None,
    crop: Annotated[
        int | None, typer.Option(help="Cut the centre of each image of a folder.", show_default="whole")
    ] = None,
    value_range: Annotated[
        str | None, typer.Option(help="Declared range of arrays; bytes are spread over it.", show_default="0,1")
    ] = None,
    every: Annotated[int | None, typer.Option(help="Take every k-th input.", show_default="1")] = None,
    limit: Annotated[int | None, typer.Option(help="Take at most this many inputs.", show_default="all")] = None,
    ids: Annotated[str | None, typer.Option(help="Take these inputs: 7,20,35", show_default="all")] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Stop after this time; resumable.", show_default="no limit")
    ] = None,
    max_samples: Annotated[
        int | None, typer.Option(help="Stop before more draws than this; resumable.", show_default="no limit")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Draw damaged shards again.")] = False,
    any_environment: options.AnyEnvironment = False,
    another_model: options.AnotherModel = False,
    executor: options.Executor = "process",
    address: options.Address = None,
    workers: options.Workers = None,
    gpus_per_worker: options.Gpus = None,
    quiet: options.Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
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
            where = Where(executor, address, workers, gpus_per_worker, any_environment)
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
                    any_environment=any_environment,
                    another_model=another_model,
                )
        except runs.Interrupted as stop:
            _how_to_go_on("interrupted", out, stop.summary)
            raise typer.Exit(INTERRUPTED) from None
        except KeyboardInterrupt:
            _how_to_go_on("interrupted before anything was drawn", out, None)
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        told = {
            "complete": summary.complete, "inputs": summary.inputs, "inputs_done": summary.inputs_done,
            "shards": summary.shards, "samples": summary.samples, "lost": summary.lost,
            "seconds": round(summary.seconds, 3), "batch_rows": summary.rows,
            "largest_difference": summary.difference, "spec_hash": resolved.hash(), "device_memory": peak_memory(),
        }  # fmt: skip
        print(json.dumps(told))
    elif not quiet:
        rate = summary.samples / max(summary.seconds, 1e-9)
        done = f"{summary.inputs_done:,} of {summary.inputs:,} inputs in {out}"
        memory = peak_memory()
        used = "" if memory is None else f"; {memory / 2**30:.1f} GiB of the device's memory at most"
        print(f"{done}; {summary.samples:,} draws, {rate:,.0f} a second{used}")
    if summary.difference is not None and not quiet:
        print(
            f"buckler: logits differ by up to {summary.difference:.3g} from those that began the run", file=sys.stderr
        )
    if summary.rows < resolved.batch_size and not quiet:
        print(f"buckler: memory ran out; batches were cut to {summary.rows} rows", file=sys.stderr)
    if not summary.complete:
        _how_to_go_on("stopped at the limit", out, summary)
        raise typer.Exit(INTERRUPTED)


def _how_to_go_on(what: str, out: Path, summary: runs.Summary | None) -> None:
    kept = ""
    if summary is not None:
        lost = f", and {summary.lost:,} draws of unfinished shards are lost" if summary.lost else ""
        shards = "1 shard" if summary.shards == 1 else f"{summary.shards:,} shards"
        kept = f"; {out} keeps {summary.inputs_done:,} of {summary.inputs:,} inputs in {shards}{lost}"
    command = shlex.join(["buckler", *sys.argv[1:]])
    print(f"buckler: {what}{kept}. Go on with: {command}", file=sys.stderr)
