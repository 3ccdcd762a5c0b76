"""The study file's own rules: YAML, keys, types, ranges, and sentences that say what is wrong."""

import re
from pathlib import Path
from typing import Any

import pytest

from sim.config.load import parse_study, read_study
from sim.config.not_modelled import OTHER_NAMES
from sim.config.overrides import apply_overrides, parse_override
from sim.config.schema import EngineSection
from sim.config.yaml_source import parse_yaml
from sim.errors import StudyError

CHECKOUT = Path(__file__).resolve().parents[2]
SCHEDULER_README = (CHECKOUT / "sim" / "scheduler" / "README.md").read_text(encoding="utf-8")

LEAST: dict[str, Any] = {
    "trace": {"sample": True},
    "model": "llama-3.1-8b",
    "hardware": "h100-sxm-80gb",
}


def refusal(yaml_text: str, *settings: str) -> str:
    overrides = [parse_override(text, Path.cwd()) for text in settings]
    with pytest.raises(StudyError) as refused:
        parse_study({**LEAST, **parse_yaml(yaml_text, "s.yaml")}, "s.yaml", overrides)
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "engine: {max_num_sequences: 3}",
            "s.yaml: engine.max_num_sequences: unknown key; did you mean 'max_num_seqs'?",
        ),
        ("modle: x", "s.yaml: modle: unknown key; did you mean 'model'?"),
        ("sweep: {}", "s.yaml: sweep: unknown key; it is for headway sweep, curve"),
        ("max_num_seqs: 4", "max_num_seqs: unknown key; did you mean 'engine.max_num_seqs'?"),
        (
            "cost_model: {kind: linear, base: 1}",
            "cost_model.base: unknown key; did you mean 'base_s'?",
        ),
        (
            "trace: {generator: {rate: 1}}",
            "trace.generator.rate: unknown key; did you mean 'rate_per_s'?",
        ),
        ("engine: {max_num_seqs: many}", "engine.max_num_seqs: 'many' is not an integer"),
        ("engine: {max_num_seqs: '64'}", "engine.max_num_seqs: '64' is not an integer"),
        ("engine: {max_num_seqs: .nan}", "engine.max_num_seqs: nan is not an integer"),
        ("engine: {max_num_seqs: 64.0}", "engine.max_num_seqs: 64.0 is not an integer"),
        ("engine: {max_num_seqs: true}", "engine.max_num_seqs: true is not an integer"),
        ("engine: {max_num_seqs: 0}", "0 is out of range; it must be at least 1"),
        ("engine: {block_size: -16}", "-16 is out of range; it must be at least 1"),
        ("engine: {watermark: 1.0}", "1.0 is out of range; it must be less than 1"),
        ("engine: {watermark: -0.1}", "-0.1 is out of range; it must be at least 0"),
        ("engine: {gpu_memory_utilization: 1.1}", "out of range; it must be at most 1"),
        ("engine: {num_gpu_blocks: 1}", "1 is out of range; it must be at least 2"),
        ("engine: {enable_prefix_caching: yes}", "'yes' is not true or false"),
        ("engine: 3", "engine: 3 is not a mapping of keys"),
        ("trace: azure.csv", "trace: 'azure.csv' is not a mapping of keys"),
        ("cost_model: {kind: rooflin}", "kind 'rooflin' is unknown; did you mean 'roofline'?"),
        ("cost_model: {step_s: 1}", "cost_model: the key 'kind' is missing"),
        ("cost_model: {kind: constant}", "cost_model.step_s: missing; it has no default"),
        ("cost_model: {kind: constant, step_s: 0}", "0 is out of range; it must be more than 0"),
        ("load: {mode: closed}", "load.concurrency: missing; it has no default"),
        ("load: {mode: half}", "mode 'half' is unknown"),
        ("engine: {predicted_length_error: 1e308}", "out of range; it must be at most 1000"),
        ("trace: {sample: true, priority_map: {0: 99999999999999999999}}", "out of range"),
        ("trace: {sample: true, priority_weights: {99999999999999999999: 1}}", "out of range"),
        ("until_s: .inf", "until_s: inf is not a finite number"),
        ("until_s: soon", "until_s: 'soon' is not a number"),
        ("slo: {ttft_s: .nan}", "slo.ttft_s: nan is not a finite number"),
        ("name: ../elsewhere", "name: '../elsewhere' may hold only letters"),
        ("name: 7", "name: 7 is not text"),
        ("seed: null", "seed: null is not an integer"),
        ("model: ''", "model: it is empty text"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_is_right(text: str, message: str) -> None:
    assert message in refusal(text)


def options_that_are_errors() -> list[str]:
    """Those that the scheduler's README says are refused, a name in full and by itself."""
    rows = [row for row in SCHEDULER_README.splitlines() if "| not modelled: error" in row]
    cells = [row.split("|")[1] for row in rows]
    named = [name for cell in cells for name in re.findall(r"`([a-z_]+)`", cell)]
    return [name for name in named if name not in ("mtp", "num_nextn_predict_layers")]


def test_every_option_of_vllm_that_is_not_modelled_is_refused_as_such() -> None:
    """Not with a look-alike: tensor parallel is no pipeline parallel."""
    options = options_that_are_errors()
    assert {"pipeline_parallel_size", "data_parallel_size", "kv_offloading_size"} < {*options}
    for option in options:
        said = refusal(f"engine: {{{option}: 2}}")
        assert f"engine.{option}: vLLM's option, but not modelled: " in said
        assert "did you mean" not in said
    assert "not modelled" in refusal("pipeline_parallel_size: 2")


def test_an_option_of_another_name_is_told_it() -> None:
    said = refusal("engine: {num_gpu_blocks_override: 900}")
    assert said.endswith("vLLM's option; here it is 'num_gpu_blocks'")
    assert {*OTHER_NAMES.values()} <= {*EngineSection.model_fields}


def test_further_wrong_keys_are_listed() -> None:
    said = refusal("replicas: 0\nseed: -1\nx: 3")
    assert said.startswith("s.yaml: x: unknown key")
    assert said.endswith("(also wrong: seed, replicas)")


def test_a_misspelt_key_is_named_before_the_one_that_is_missing_for_it() -> None:
    with pytest.raises(StudyError, match=r"modle: unknown key; did you mean 'model'\?"):
        parse_study({"trace": {}, "modle": "m", "hardware": "h"}, "s.yaml")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(StudyError, match=r"s\.yaml: hardware: missing; it has no default"):
        parse_study({"trace": {"sample": True}, "model": "llama-3.1-8b"}, "s.yaml")


def test_the_one_who_gave_a_wrong_value_is_named() -> None:
    said = refusal("seed: 1", "engine.max_num_seqs=many")
    assert said.startswith("--set engine.max_num_seqs=many: engine.max_num_seqs: 'many' is not")
    assert refusal("seed: x", "engine.max_num_seqs=8").startswith("s.yaml: seed:")


@pytest.mark.parametrize("text", ["engine.max_num_seqs", "=3", "a..b=1", ".a=1", "engine.=1"])
def test_set_must_be_key_and_value(text: str) -> None:
    with pytest.raises(StudyError, match=r"it must be key=value, for instance engine\."):
        parse_override(text, Path.cwd())


def test_set_inside_a_plain_value_is_refused() -> None:
    assert "'model' holds 'llama-3.1-8b', which has no keys" in refusal("seed: 1", "model.name=x")


def test_a_later_override_wins_and_the_study_is_left_alone() -> None:
    study = {"engine": {"block_size": 16}}
    overrides = [parse_override(f"engine.block_size={n}", Path.cwd()) for n in (32, 64)]
    assert apply_overrides(study, overrides) == {"engine": {"block_size": 64}}
    assert study == {"engine": {"block_size": 16}}


def test_another_trace_source_takes_the_place_of_the_first() -> None:
    study = {"trace": {"sample": True, "limit": 5}}
    override = parse_override("trace.path=/x.csv", Path.cwd())
    assert apply_overrides(study, [override]) == {"trace": {"limit": 5, "path": "/x.csv"}}


@pytest.mark.parametrize("source", ["conversations", "servegen"])
def test_a_file_takes_the_place_of_every_source(source: str) -> None:
    study = {"trace": {source: {"path": "x"}, "limit": 5}}
    override = parse_override("trace.path=/x.csv", Path.cwd())
    assert apply_overrides(study, [override]) == {"trace": {"limit": 5, "path": "/x.csv"}}


def test_what_a_study_says_of_its_file_is_not_said_of_another() -> None:
    of_file = {"format": "vidur", "time_unit": "ms", "block_size": 16}
    study = {"trace": {"path": "/own.csv", "on_bad_row": "skip", **of_file}}
    unit, other = (
        parse_override(text, Path.cwd()) for text in ("trace.time_unit=us", "trace.path=/x.csv")
    )
    assert apply_overrides(study, [other]) == {"trace": {"path": "/x.csv", "on_bad_row": "skip"}}
    for order in ([unit, other], [other, unit]):
        assert apply_overrides(study, order)["trace"]["time_unit"] == "us"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("-2", -2),
        ("64", 64),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("2024-01-01", "2024-01-01"),
        ("true", True),
        ("null", None),
        ("", None),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    assert parse_yaml(text, "s") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nengine: [1", "s.yaml, line 2, column 11: not valid YAML"),
        ("name: x\nseed: 1\nname: y", "s.yaml, line 3, column 1: not valid YAML: the key 'name'"),
        ("name: x\n\tseed: 1", "s.yaml, line 2"),
        ("name: \x01", "s.yaml: not valid YAML"),
        ("a: !!python/object:os.system {}", "s.yaml, line 1"),
    ],
)
def test_a_yaml_fault_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(StudyError) as refused:
        parse_yaml(text, "s.yaml")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the study file is empty"),
        (b"# only a comment\n", "the study file is empty"),
        (b"- 1\n- 2\n", "a study file is a mapping of keys"),
        (b"just words", "a study file is a mapping of keys"),
        (b"\xff\xfe\x00", "not a text file in UTF-8"),
    ],
)
def test_a_file_that_is_no_study_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_bytes(content)
    with pytest.raises(StudyError, match=message):
        read_study(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="there is no such study file"):
        read_study(tmp_path / "s.yaml")
    with pytest.raises(StudyError, match="can't be read"):
        read_study(tmp_path)


def test_relative_paths_mean_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    file = tmp_path / "s.yaml"
    file.write_text(
        "trace: {path: t.csv}\nmodel: config.json\ncost_model: {kind: profile, path: p/h100.json}\n"
    )
    study = read_study(file)
    assert study["trace"]["path"] == str(tmp_path / "t.csv")
    assert study["model"] == str(tmp_path / "config.json")
    assert study["cost_model"]["path"] == str(tmp_path / "p" / "h100.json")


def test_a_model_name_is_no_path(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("model: meta-llama/Llama-3.1-8B\n")
    assert read_study(file)["model"] == "meta-llama/Llama-3.1-8B"
