"""Options that say where a drawing command does its work."""

from typing import Annotated

import typer

ExecutorOption = Annotated[str, typer.Option("--executor", help="process, or ray for the workers of a cluster.")]
AddressOption = Annotated[
    str | None,
    typer.Option(help="With ray: auto, HOST:PORT or ray://...", show_default="a cluster of its own, on loopback"),
]
WorkersOption = Annotated[
    int | None, typer.Option(help="With ray: workers.", show_default="as many as there is room for")
]
GpusOption = Annotated[
    float | None, typer.Option("--gpus-per-worker", help="With ray: GPUs of each, 0.5 say.", show_default="1 on cuda")
]
