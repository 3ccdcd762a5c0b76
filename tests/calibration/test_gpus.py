"""GPUs against figures from their data sheets, written down here a second time."""

import pytest

from calibration import CalibrationError, gpu_names, load_gpu, serving_defaults

# BF16 and FP8 dense TFLOPS, GB, GB/s, link GB/s both ways, W.
DATA_SHEETS = {
    "a100-sxm-40gb": (312, None, 40, 1555, 600, 400),
    "a100-sxm-80gb": (312, None, 80, 2039, 600, 400),
    "h100-sxm-80gb": (1979 / 2, 3958 / 2, 80, 3350, 900, 700),
    "h200-sxm-141gb": (1979 / 2, 3958 / 2, 141, 4800, 900, 700),
    "b200-sxm-180gb": (4500 / 2, 9000 / 2, 180, 8000, 1800, 1000),
    "l40s": (362.05, 733, 48, 864, 64, 350),
    "l4": (242 / 2, 485 / 2, 24, 300, 64, 72),
    "rtx-4090": (165.2, 330.3, 24, 1008, 64, 450),
    "rtx-pro-6000": (503.8, 1007.6, 96, 1792, 128, 600),
}


def test_data_sheets() -> None:
    assert set(gpu_names()) == set(DATA_SHEETS)
    for name, (bf16, fp8, memory, bandwidth, link, power) in DATA_SHEETS.items():
        gpu = load_gpu(name)
        assert gpu.bf16_flops == pytest.approx(bf16 * 1e12)
        assert gpu.fp8_flops == (None if fp8 is None else pytest.approx(fp8 * 1e12))
        assert gpu.memory_bytes == memory * 2**30
        assert gpu.memory_bytes_per_s == bandwidth * 1e9
        assert gpu.link_bytes_per_s == link * 1e9 / 2
        # Firmware, page tables and, on GDDR6, ECC take up to a tenth.
        assert 0.9 * gpu.memory_bytes < gpu.usable_memory_bytes < gpu.memory_bytes
        assert gpu.board_watts == power
        assert "NVIDIA" in gpu.source


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("H100", "h100-sxm-80gb"),
        ("NVIDIA H100", "h100-sxm-80gb"),
        ("a100", "a100-sxm-80gb"),
        ("A100-40", "a100-sxm-40gb"),
        ("RTX 4090", "rtx-4090"),
        ("h100_sxm", "h100-sxm-80gb"),
        ("b200", "b200-sxm-180gb"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    assert load_gpu(alias).name == name


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("NVIDIA H200", "h200-sxm-141gb"),
        ("NVIDIA B200", "b200-sxm-180gb"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
    ],
)
def test_a_gpu_is_known_by_what_cuda_calls_it(reported: str, name: str) -> None:
    """Profiles that are measured here hold the device's own name, as the driver reports it."""
    assert load_gpu(reported).name == name


@pytest.mark.parametrize("other", ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100-PCIE-40GB"])
def test_a_gpu_with_another_memory_or_power_is_not_taken_for_one_that_is_known(other: str) -> None:
    with pytest.raises(CalibrationError, match="unknown GPU"):
        load_gpu(other)


def test_unknown_gpu_offers_the_nearest() -> None:
    with pytest.raises(CalibrationError, match="unknown GPU 'H1000'; did you mean 'h100-sxm-80gb'"):
        load_gpu("H1000")
    with pytest.raises(CalibrationError, match="known: a100-sxm-40gb, "):
        load_gpu("tpu")


def test_serving_defaults_are_those_of_vllm() -> None:
    defaults = {name: serving_defaults(load_gpu(name)) for name in gpu_names()}
    assert defaults == {
        "a100-sxm-40gb": (2048, 256),
        "a100-sxm-80gb": (2048, 256),
        "h100-sxm-80gb": (8192, 1024),
        "h200-sxm-141gb": (8192, 1024),
        "b200-sxm-180gb": (16384, 1024),
        "l40s": (2048, 256),
        "l4": (2048, 256),
        "rtx-4090": (2048, 256),
        "rtx-pro-6000": (8192, 1024),
    }
