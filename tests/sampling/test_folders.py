"""Folders of transformers and diffusers, made on the spot: they load offline, certify, and a run goes on with them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers")

from buckler.cli.app import run  # noqa: E402
from buckler.errors import InvalidInput  # noqa: E402
from buckler.files import checksum  # noqa: E402
from buckler.runs.store.evidence import open_evidence  # noqa: E402
from buckler.sampling.models import resolve_denoiser, resolve_model  # noqa: E402

torch.set_num_threads(1)
SIZE, CLASSES = 8, 5


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a classifier, a denoiser and data, all of random numbers."""
    home: Path = tmp_path_factory.mktemp("home")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=16, patch_size=8, num_channels=3, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=CLASSES,
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(home / "vit")
    transformers.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(home / "vit")
    unet(home / "ddpm")
    (home / "ddpm" / "scheduler").mkdir()
    diffusers.DDPMScheduler(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction").save_pretrained(
        home / "ddpm" / "scheduler"
    )
    x = np.random.default_rng(0).random((6, 3, SIZE, SIZE)).astype(np.float32)
    np.savez(home / "data.npz", x=x, y=np.arange(6) % CLASSES)
    return home


def unet(folder: Path, **changes: Any) -> None:
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    diffusers.UNet2DModel(
        **{"sample_size": SIZE, "layers_per_block": 1, "block_out_channels": (8, 8), "norm_num_groups": 4,
           "add_attention": False, **blocks, **changes}
    ).save_pretrained(folder)  # fmt: skip


def names(home: Path) -> list[str]:
    return ["--model", f"hf:{home / 'vit'}", "--denoiser", f"diffusers:{home / 'ddpm'}"]


def test_the_pair_is_that_of_the_two_libraries(home: Path) -> None:
    """Step by step with their own classes: schedule, one-step estimate, processor, classifier."""
    pair = resolve_model(f"hf:{home / 'vit'}", denoiser=f"diffusers:{home / 'ddpm'}", sigma=0.25)
    noisy = torch.rand(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1)) * 1.5 - 0.25
    with pair.session():
        found = pair(noisy)
    scheduler = diffusers.DDPMScheduler.from_pretrained(home / "ddpm" / "scheduler")
    levels = ((1 - scheduler.alphas_cumprod) / scheduler.alphas_cumprod).sqrt()
    t = int((levels - 0.5).abs().argmin())
    z = scheduler.alphas_cumprod[t].sqrt() * (2 * noisy - 1)
    with torch.no_grad():
        velocity = diffusers.UNet2DModel.from_pretrained(home / "ddpm", low_cpu_mem_usage=False).eval()(z, t).sample
        clean = (scheduler.step(velocity, t, z).pred_original_sample.clamp(-1, 1) + 1) / 2
        sized = torch.nn.functional.interpolate(clean, (16, 16), mode="bilinear", antialias=True)
        vit = transformers.ViTForImageClassification.from_pretrained(home / "vit").eval()
        expected = vit((sized - 0.5) / 0.5).logits
    assert torch.allclose(found, expected, atol=1e-4)
    assert pair.num_classes == CLASSES


def with_processor(home: Path, folder: Path, **settings: Any) -> str:
    """Copy the classifier and write its processor's settings."""
    shutil.copytree(home / "vit", folder, dirs_exist_ok=True)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return f"hf:{folder}"


def logits(model: str, x: Any, **options: Any) -> Any:
    made = resolve_model(model, **options)
    with made.session():
        return made(x)


@pytest.mark.parametrize(("resample", "mode"), [(2, "bilinear"), (3, "bicubic")])
def test_size_and_normalisation_of_the_processor_are_inside(
    home: Path, tmp_path: Path, resample: int, mode: str
) -> None:
    mean, std = [0.5, 0.4, 0.3], [0.5, 0.25, 0.2]
    model = with_processor(home, tmp_path / "vit", resample=resample, image_mean=mean, image_std=std)
    x = 2.0 * torch.rand(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1)) - 0.5  # noise leaves [0, 1]
    sized = torch.nn.functional.interpolate(x, (16, 16), mode=mode, antialias=True)
    vit = transformers.ViTForImageClassification.from_pretrained(home / "vit").eval()
    shape = (1, 3, 1, 1)
    with torch.no_grad():
        expected = vit((sized - torch.tensor(mean).view(shape)) / torch.tensor(std).view(shape)).logits
    assert torch.allclose(logits(model, x), expected, atol=1e-5)
    assert torch.allclose(logits(model, sized), expected, atol=1e-5)  # of its size already
    assert torch.allclose(logits(model, sized, mean=mean, std=std), expected, atol=1e-5)  # one's own replace them


def test_images_that_a_processor_would_cut_must_be_cut_before(home: Path, tmp_path: Path) -> None:
    size = {"do_center_crop": True, "crop_size": {"height": 16, "width": 16}, "size": {"shortest_edge": 20}}
    model = with_processor(home, tmp_path / "vit", **size)
    with pytest.raises(InvalidInput, match=r"16x16.*got 20x20.*--resize and --crop 16"):
        logits(model, torch.rand(1, 3, 20, 20))
    assert logits(model, torch.rand(1, 3, 16, 16)).shape == (1, CLASSES)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"do_pad": True}, "do_pad"),
        ({"do_rescale": False}, "do_rescale"),
        ({"rescale_factor": 1 / 127.5}, "rescale_factor"),
        ({"size": {"height": 0, "width": 16}}, "size|cannot be loaded"),
        ({"size": {"height": 10**9, "width": 10**9}}, "size"),
        ({"image_mean": [0.5], "image_std": [0.0]}, "std above 0"),
        ({"image_mean": "none"}, "mean"),
        ({"size": "large"}, "preprocessor_config|cannot be loaded"),
    ],
)
def test_processors_that_do_more_or_make_no_sense_are_refused(
    home: Path, tmp_path: Path, settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        resolve_model(with_processor(home, tmp_path / "vit", **settings))
    (tmp_path / "vit" / "preprocessor_config.json").write_text("{")
    for folder, file in (("vit", "preprocessor_config"), ("nowhere", "config")):
        with pytest.raises(InvalidInput, match=rf"{file}\.json cannot be read"):
            resolve_model(f"hf:{tmp_path / folder}")


def test_a_run_with_both_certifies_resumes_and_knows_them(home: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    drawing = [*names(home), "--data", str(home / "data.npz"), "--sigma", "0.25", "--n", "40", "--n0", "10"]
    command = ["sample", str(out), *drawing, "--shard-inputs", "2", "--batch-size", "60", "--quiet"]
    assert run([*command, "--max-samples", "150"]) == 3  # two of three shards are missing
    begun = open_evidence(out)
    assert 0 < begun.inputs_done < 6
    assert run(command) == 0
    whole = tmp_path / "whole"
    assert run(["sample", str(whole), *command[2:]]) == 0
    assert open_evidence(out).digest() == open_evidence(whole).digest()
    assert run(["certify", str(out), "--method", "top_class", "--quiet"]) == 0
    files = begun.seals[0]["drawn_by"]["weights"]
    weights = "diffusion_pytorch_model.safetensors"
    assert files[f"denoiser/{weights}"] == checksum(home / "ddpm" / weights)
    assert files["denoiser/scheduler_config.json"] == checksum(home / "ddpm" / "scheduler" / "scheduler_config.json")
    assert files["model.safetensors"] == checksum(home / "vit" / "model.safetensors")
    assert {"config.json", "preprocessor_config.json", "denoiser/config.json"} <= files.keys()

    # The same denoiser elsewhere is the same model; another, or none, is another.
    elsewhere = [part.replace("ddpm", "moved") for part in command]
    shutil.copytree(home / "ddpm", home / "moved")
    assert run(elsewhere) == 0
    other = tmp_path / "ddpm"
    torch.manual_seed(7)
    unet(other)
    (other / "scheduler_config.json").write_bytes((home / "ddpm" / "scheduler" / "scheduler_config.json").read_bytes())
    changed = ["diffusers:" + str(other) if "diffusers:" in part else part for part in command]
    capsys.readouterr()
    assert run(changed) == 2
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1
    assert "another model" in told
    assert "denoiser/diffusion_pytorch_model.safetensors" in told
    assert run([part for part in command if "diffusers:" not in part and part != "--denoiser"]) == 2
    assert "another model" in capsys.readouterr().err


def test_folders_that_are_not_denoisers_are_refused(home: Path, tmp_path: Path) -> None:
    def refused(folder: Path, named: str) -> None:
        with pytest.raises(InvalidInput, match=named):
            resolve_denoiser(f"diffusers:{folder}")

    schedule = (home / "ddpm" / "scheduler" / "scheduler_config.json").read_text()
    unet(tmp_path / "channels", out_channels=1)
    unet(tmp_path / "bare")
    refused(tmp_path / "channels", "as many channels as it takes")
    refused(home / "vit", "must hold a UNet2DModel; got None")
    refused(tmp_path / "nowhere", r"config\.json cannot be read")
    refused(tmp_path / "bare", r"scheduler_config\.json cannot be read")
    (tmp_path / "bare" / "scheduler_config.json").write_text("[1]")
    refused(tmp_path / "bare", "must hold a JSON object")
    (tmp_path / "bare" / "scheduler_config.json").write_text(schedule)
    for weights in (tmp_path / "bare").glob("*.safetensors"):
        weights.write_bytes(b"nothing")
    refused(tmp_path / "bare", "cannot be loaded")
