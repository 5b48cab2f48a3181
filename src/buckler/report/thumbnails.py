"""Put small pictures of inputs on one contact sheet, a tenth of the bytes of as many files."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import ceil, sqrt
from typing import Any

import numpy as np

from buckler.errors import InvalidInput, MissingExtra
from buckler.types import AnyArray

SIDE = 48
"""Pixels of a tile; a multiple of 16, so that no block of the compressed sheet crosses two pictures."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A picture of tiles, row by row, as a data URI."""

    uri: str
    columns: int


def tiles(inputs: Iterable[AnyArray], low: float, high: float, most: int | None = None) -> list[AnyArray]:
    """Return inputs in [low, high], shaped ``[height, width]`` or with 1 or 3 channels first or last, as small RGB.

    All inputs are read, since reading may check them, and at most ``most`` become pictures.
    """
    image = _pillow()
    made: list[AnyArray] = []
    for x in inputs:
        if most is not None and len(made) >= most:
            continue
        pixels = np.asarray(x)
        if pixels.ndim == 3 and pixels.shape[0] in {1, 3}:
            pixels = np.moveaxis(pixels, 0, -1)
        if pixels.ndim == 2:
            pixels = pixels[..., None]
        if pixels.ndim != 3 or pixels.shape[-1] not in {1, 3}:
            raise InvalidInput(f"data must hold images, [height, width] with 1 or 3 channels; got shape {np.shape(x)}")
        levels = np.clip((pixels - low) / (high - low) * 255.0 + 0.5, 0.0, 255.0).astype(np.uint8)
        picture = image.fromarray(np.repeat(levels, 3, axis=-1) if levels.shape[-1] == 1 else levels)
        scale = SIDE / max(picture.size)
        size = tuple(max(1, round(side * scale)) for side in picture.size)
        small = picture.resize(size, image.Resampling.NEAREST if scale > 1 else image.Resampling.LANCZOS)
        tile = image.new("RGB", (SIDE, SIDE), "white")
        tile.paste(small, ((SIDE - size[0]) // 2, (SIDE - size[1]) // 2))
        made.append(np.asarray(tile))
    return made


def contact_sheet(pictures: Sequence[AnyArray], quality: int) -> Sheet:
    """Return the tiles on one sheet, as WebP of the given quality (0 to 100)."""
    columns = ceil(sqrt(len(pictures)))
    rows = ceil(len(pictures) / columns)
    sheet = np.full((rows * SIDE, columns * SIDE, 3), 255, dtype=np.uint8)
    for i, picture in enumerate(pictures):
        top, left = (i // columns) * SIDE, (i % columns) * SIDE
        sheet[top : top + SIDE, left : left + SIDE] = picture
    out = BytesIO()
    _pillow().fromarray(sheet).save(out, "WEBP", quality=quality)
    return Sheet("data:image/webp;base64," + b64encode(out.getvalue()).decode("ascii"), columns)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "report") from None
    return Image
