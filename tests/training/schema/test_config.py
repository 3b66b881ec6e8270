"""Errors about configurations name the key, the value and the allowed values."""

from pathlib import Path

import pytest
import yaml

from jaxlake.command_line.entry import main
from jaxlake.language.prompts import PROMPT_STYLES
from tests.paths import ROOT, SCRATCH
from training.errors import UserError
from training.run.directory import differing_keys
from training.schema import dump, load, read_yaml

SERVER = "sampling.engine=server; sampling.server"
INFEASIBLE_OVERRIDES = (
    "environment.num_agents=3; environment.bounds.max_hole_ratio=0.5; "
    "environment.initial.sizes.3.hole_ratio=0.5"
)
HOOKS = "tests.training.hooks"
MESH = "model.mesh.fsdp=4; grpo.micro_batch_size=32"
LEARNING = "engineer.kind=checkpoint; engineer.learning.updates=2; rehearsal.contexts=6"
STUDIES = (ROOT / "configs").glob("study_*")
CONFIGS = sorted(set((ROOT / "configs").glob("*.yaml")) - set(STUDIES))


CONFIG_CASES = [
    *((path, []) for path in CONFIGS),
    (SCRATCH, f"{SERVER}={{folder: /shared}}; model.lora={{rank: 4}}".split("; ")),
]


@pytest.mark.parametrize(("path", "overrides"), CONFIG_CASES)
def test_dump_and_load_round_trip(path: Path, overrides: list[str], tmp_path: Path):
    config = load(path, overrides)
    dump_file = tmp_path / "copy.yaml"
    dump_file.write_text(dump(config))
    assert load(dump_file) == config


@pytest.mark.parametrize(
    ("override", "message_parts"),
    [
        ("grpo.learning_rte=1", ["grpo.learning_rte", "unknown key", "learning_rate"]),
        ("grpo.learning_rate=fast", ["grpo.learning_rate", "'fast'"]),
        ("grpo.completions=1", ["grpo.completions", "got 1", "greater than or equal to 2"]),
        (
            "model.lora.targets=[q_proj, q_proj]",
            ["model.lora.targets", "must list each kernel once"],
        ),
        ("seed=!!timestamp 2001-99-99", ["--set", "not YAML"]),
        ("colour=blue", ["colour", "unknown key", "validation"]),
        ("engineer.kind=prophet", ["engineer.kind", "'prophet'", "learnability", "rule"]),
        ("engineer.kind=shuffled:seer", ["engineer.kind", "'shuffled:seer'", "shuffled:NAME"]),
        ("engineer.kind=foo:Rule", ["kind: the module of foo:Rule can't be imported", "rule"]),
        ("engineer.kind=shuffled:foo:Rule", ["engineer.kind: the module of foo:Rule"]),
        (f"engineer.kind={HOOKS}:NUMBER", ["engineer.kind: ", "NUMBER must be callable"]),
        (f"engineer.kind={HOOKS}:Keepr", ["has no attribute Keepr", "did you mean Keeper?"]),
        ("engineer.request={n: 2}", ["engineer.request: must not contain n: other"]),
        (
            "engineer.request={stop: .nan}",
            ["engineer.request: must be a JSON value, got {'stop': nan}"],
        ),
        ("reward.function=bonus", ["-> float, got 'bonus'", "(text, board, score)"]),
        (f"reward.function={HOOKS}:NUMBER", ["reward.function: ", "NUMBER must be callable"]),
        (f"prompt.template={HOOKS}:ask", ["prompt.template: ", "hooks has no attribute ask"]),
        ("prompt.template=nowhere.txt", ["got 'nowhere.txt', which can't be read (No"]),
        (
            "prompt.template='{board} {goal}'",
            ["template must have only the fields", "got {goal}", "{tasks}"],
        ),
        ("engineer.kind=endpoint", ["engineer", "needs a model"]),
        ("engineer.base_url=https://me:secret@host/v1", ["engineer.base_url", "user or password"]),
        ("engineer.api_key_env=sk-secret", ["engineer.api_key_env", "name of an environment"]),
        ("engineer.blocks=[gossip]", ["engineer.blocks", "gossip", "history"]),
        ("environment.initial.sizes.3.hole_ratio=0.9", ["hole_ratio", "0.9", "0.5"]),
        ("prompt.max_tokens=1024", ["prompt.max_tokens must be less than", "= 1024"]),
        ("engineer.max_tokens=1024", ["engineer.max_tokens must be less than", "= 1024"]),
        ("engineer.max_context_tokens=2000", ["= 992, got 2000"]),
        ("environment.bounds.sizes=[3, 4]", ["initial.sizes", "map sizes must be 3, 4, got 3"]),
        ("environment.initial.sizes.3.hole_ratio=0.12", ["initial", "multiple of 0.05, got 0.12"]),
        ("grpo.micro_batch_size=4", ["a multiple of", "= 8 * 1, got 4"]),
        (
            f"{MESH}; warm_start.batch_size=30",
            ["warm_start.batch_size must be", "fsdp = 4, got 30"],
        ),
        (
            f"{MESH}; warm_start.engineer_batch_size=6",
            ["engineer_batch_size must be", "fsdp = 4, got 6"],
        ),
        (f"{MESH}; rehearsal.contexts=2", ["rehearsal.contexts must be", "fsdp = 4, got 2"]),
        (f"{MESH}; {LEARNING}", ["rehearsal.contexts must be", "fsdp = 4, got 6"]),
        ("reward.valid=2", ["reward", "optimal > valid > parsed"]),
        ("reward.overlong_buffer=32", ["less than", "prompt.max_tokens = 32, got 32"]),
        ("grpo.kl_coefficient=.inf", ["grpo.kl_coefficient", "finite"]),
        ("grpo.resamples=1; stages.instances=40", ["resamples must be 0", "= 40", "= 64"]),
        ("grpo.prefetch=1; grpo.resamples=1", ["grpo.prefetch must be 0", "grpo.resamples = 1"]),
        ("warm_start=null", ["warm_start", "scratch"]),
        ("name.sub=1", ["--set", "not a mapping"]),
        ("engineer.²=1", ["engineer.²", "unknown key", "kind"]),
        ("environment.initial.sizes.٣.hole_ratio=0.1", ["environment.initial.sizes.٣"]),
        ("sampling.engine=serve", ["sampling.engine", "'serve'", "'server'"]),
        ("sampling.server={folder: shared}", ["server must not be set with engine vllm"]),
        (f"{SERVER}={{address: 'host:8000'}}", ["sampling.server.address", "host:8000"]),
        (f"{SERVER}={{address: 'http://a/'}}", ["sampling.server.address", "http://a/"]),
        ("environment.initial=rando", ["must be random or a mapping with sizes, got 'rando'"]),
        ("environment.initial=random; seed=-1", ["--set seed: got -1: "]),
        ("sampling.tensor_parallel_size=2; sampling.devices=[3]", ["different devices, got [3]"]),
        ("validation.top_p=0", ["validation.top_p", "got 0", "greater than 0"]),
        ("sampling.data_parallel_size=2", ["data_parallel_size must be 1", "only engine server"]),
        (
            "sampling.engine=server; sampling.server={address: 'http://a:1'}; "
            "sampling.data_parallel_size=2",
            ["data_parallel_size must be 1 with server.address"],
        ),
        (
            "engineer.reading=0; engineer.style=full; engineer.reasoning_tokens=500; "
            "engineer.max_context_tokens=600",
            ["= 492, got 600", "engineer.reasoning_tokens"],
        ),
        (INFEASIBLE_OVERRIDES, ["3x3 board with hole_ratio 0.5", "3 agents need 6"]),
    ],
)
def test_invalid_value_is_named(
    override: str, message_parts: list[str], capsys: pytest.CaptureFixture[str]
):
    overrides = override.split("; ")
    assert main(["run", str(SCRATCH), "--dry-run", "--set", *overrides]) == 2
    error = capsys.readouterr().err
    for part in message_parts:
        assert part in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("engineer.{}", "unknown key; the keys are kind"),
        ("environment.initial.sizes.{}.hole_ratio", "environment.initial.sizes.999"),
    ],
)
def test_long_key_is_named_and_cut(key: str, message: str, capsys: pytest.CaptureFixture[str]):
    override = f"{key.format('9' * 100_000)}=1"
    assert main(["run", str(SCRATCH), "--set", override, "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert max(map(len, error.splitlines())) < 500


def test_template_file_is_kept_as_text(tmp_path: Path):
    template_file, dump_file = tmp_path / "prompt.txt", tmp_path / "copy.yaml"
    text = "Solve  \n\n{board}\n\t{{braces}} \u2603 'quotes': #5\n"
    template_file.write_text(text, encoding="utf-8")
    config = load(SCRATCH, [f"prompt.template={template_file}"])
    template_file.unlink()
    assert config.prompt.template == text
    dump_file.write_text(dump(config))
    assert load(dump_file) == config


def test_binary_template_file_is_rejected(tmp_path: Path):
    template_file = tmp_path / "prompt.txt"
    template_file.write_bytes(b"{board}\xff")
    with pytest.raises(UserError, match=r"which can't be read .not UTF-8: byte 0xff at 7.$"):
        load(SCRATCH, [f"prompt.template={template_file}"])


def test_prompt_style_accepts_every_style():
    styles = [load(SCRATCH, [f"prompt.style={style}"]).prompt.style for style in PROMPT_STYLES]
    assert styles == list(PROMPT_STYLES)


def test_map_size_digits_are_normalised():
    config = load(SCRATCH, ["environment.initial.sizes.03.hole_ratio=0.05"])
    assert config.environment.initial.sizes[3].hole_ratio == 0.05


@pytest.mark.parametrize(
    "override",
    [
        "api_key_env=sk-s3cret",
        "base_url=https://me:s3cret@host/v1",
        "base_url=https://host/v1?api-version=2&api-key=s3cret",
        "base_url=https://host/v1?SIG=s3cret",
    ],
)
def test_misplaced_secret_is_not_printed(override: str, capsys: pytest.CaptureFixture[str]):
    assert main(["run", str(SCRATCH), "--dry-run", "--set", f"engineer.{override}"]) == 2
    assert "s3cret" not in "".join(capsys.readouterr())


def test_dry_run_rejects_invalid_engineers(capsys: pytest.CaptureFixture[str]):
    arguments = ["run", str(SCRATCH), "--dry-run", "--set", "engineer.kind=os:getcwd"]
    assert main(arguments) == 2
    assert "engineer.kind: os:getcwd() must return an engineer" in capsys.readouterr().err


def test_run_without_xgrammar_is_rejected_at_start(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings = ["sampling.engine=jax", "engineer.kind=checkpoint"]
    assert main(["run", str(SCRATCH), "--dry-run", "--set", *settings]) == 2
    assert "needs xgrammar with sampling.engine jax" in capsys.readouterr().err


def test_run_without_vllm_starts_nothing(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    arguments = ["run", str(SCRATCH), "--run-dir", str(tmp_path / "run")]
    assert main([*arguments, "--dry-run"]) == 0
    problem = "sampling.engine is vllm, which is not installed; install the extra vllm"
    assert problem in " ".join(capsys.readouterr().out.split())
    assert main(arguments) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("overrides", "memory_fraction"),
    [
        (["engineer.kind=checkpoint"], 0.4),
        (["engineer.kind=rule"], 0.4),
        (["engineer.kind=base"], 0.2),
        (["engineer.kind=shuffled:base"], 0.2),
        (["engineer.kind=base", "sampling.engine=jax"], 0.4),
        (["engineer.kind=base", "sampling.engine=server"], 0.2),
        (["engineer.kind=base", f"{SERVER}={{address: 'http://host:8000'}}"], 0.4),
    ],
)
def test_vllm_engines_divide_the_memory(overrides: list[str], memory_fraction: float):
    overrides = [part for override in overrides for part in override.split("; ")]
    config = load(SCRATCH, ["sampling.gpu_memory_utilization=0.4", *overrides])
    assert config.engine_sampling.gpu_memory_utilization == pytest.approx(memory_fraction)
    full_config = config.engine_sampling.model_copy(update={"gpu_memory_utilization": 0.4})
    assert full_config == config.sampling


@pytest.mark.parametrize(
    ("overrides", "tolerance"),
    [
        ([], 1e-3),
        (["model.dtype=bfloat16"], 0.5),
        (["sampling.dtype=bfloat16"], 0.5),
        (["model.dtype=bfloat16", "sampling.dtype=bfloat16"], 0.5),
        (["model.dtype=bfloat16", "sampling.gap_tolerance=1e-3"], 1e-3),
    ],
)
def test_gap_tolerance_follows_the_dtypes(overrides: list[str], tolerance: float, tmp_path: Path):
    path = tmp_path / "run.yaml"
    tree = read_yaml(SCRATCH)
    tree["sampling"].pop("gap_tolerance", None)
    path.write_text(yaml.safe_dump(tree))
    config = load(path, overrides)
    assert config.sampling.gap_tolerance == tolerance
    path.write_text(dump(config))
    assert load(path) == config


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "\x00", "grpo: 3", None])
def test_invalid_configuration_files_raise_one_error(text: str | None, tmp_path: Path):
    path = tmp_path / "bad.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=r"bad\.yaml" if text else r"bad\.yaml: can't be read"):
        load(path)


def test_paper_dry_run_prints_the_plan(capsys: pytest.CaptureFixture[str]):
    assert main(["run", str(ROOT / "configs/paper.yaml"), "--dry-run"]) == 0
    output = capsys.readouterr().out
    for word in ("stage 3: design", "125 updates", "4,022", "GiB", "trainer in all"):
        assert word in output


THINKING_OVERRIDES = (
    "prompt.thinking=true prompt.max_tokens=16384 reward.overlong_buffer=4096 "
    "sampling.max_model_len=17408 validation.temperature=0.6 validation.top_p=0.95 "
    "grpo.completions=8 grpo.micro_batch_size=64"
)


def test_paper_config_takes_its_thinking_option():
    config = load(ROOT / "configs/paper.yaml", THINKING_OVERRIDES.split())
    assert config.prompt.thinking
    text = " ".join((ROOT / "configs/paper.yaml").read_text().replace("\n  #", "").split())
    for override in THINKING_OVERRIDES.split():
        key, _, value = override.partition("=")
        assert f"{key.partition('.')[2]} {value}" in text


def test_smoke_config_differs_from_paper_only_in_scale():
    trees = [
        load(ROOT / f"configs/{name}.yaml").model_dump(mode="json")
        for name in ("paper", "paper_smoke")
    ]
    changed_keys = {key.partition(" ")[0] for key in differing_keys(*trees)}
    assert changed_keys == {
        *("name", "model.pretrained", "model.mesh.fsdp", "prompt.max_tokens"),
        *("sampling.data_parallel_size", "sampling.gpu_memory_utilization", "stages.instances"),
        *("grpo.prompts_per_update", "grpo.minibatches", "grpo.micro_batch_size"),
        *("reward.overlong_buffer", "validation.per_cell"),
    }


def test_dry_run_rejects_a_mesh_unfit_for_the_model(capsys: pytest.CaptureFixture[str]):
    arguments = [str(ROOT / "configs/paper.yaml"), "--dry-run", "--set", "model.mesh.tensor=3"]
    assert main(["run", *arguments]) == 2
    message = "model.mesh.tensor must divide 151936, the size of"
    assert message in capsys.readouterr().err


def test_random_initial_configuration_is_seeded_and_in_bounds(tmp_path: Path):
    configurations = []
    for seed in range(8):
        config = load(SCRATCH, ["environment.initial=random", f"seed={seed}"])
        dump_file = tmp_path / "again.yaml"
        dump_file.write_text(dump(config))
        assert load(dump_file) == config  # a run's file contains the drawn values
        configurations.append(config.environment.initial)
        assert config.environment.bounds.violation(configurations[-1]) is None
        assert config.environment.bounds.grid_violation(configurations[-1]) is None
    assert len({configuration.model_dump_json() for configuration in configurations}) == 8
    assert load(SCRATCH, ["environment.initial=random"]).environment.initial == configurations[0]


def test_duplicate_key_is_rejected_with_its_line(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text(SCRATCH.read_text() + "name: again\n")
    with pytest.raises(UserError, match=r"twice\.yaml: is not YAML: the key 'name' is repeated"):
        load(path)
    path.write_text("a: &a {b: 1, c: 2}\nd: &d {<<: *a, b: 3}\ne: {<<: *d, c: 4, '<': 5}\n")
    assert read_yaml(path)["e"] == {"b": 3, "c": 4, "<": 5}
