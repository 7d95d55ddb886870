"""Models of the library count as published, and other descriptions are read."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from ppsim.errors import InputError
from ppsim.questions.plans.model import model as ask_model
from ppsim.workload.hardware.hardware import gpus, machines, read_gpu, read_machine
from ppsim.workload.model.activations import layer_activations
from ppsim.workload.model.contents import message_bytes
from ppsim.workload.model.model import (
    Layer,
    Model,
    attended_tokens,
    attention_parameters,
    count_parameters,
    flops_per_token,
    kinds_of,
    layer_parameters,
    library,
    mixer_parameters,
    mixing_flops,
    mtp_parameters,
    read_model,
)
from ppsim.workload.model.operators import layer_operators
from ppsim.workload.model.parallel import Parallel
from tests.commands import invoke

# Billions as their authors give them: all, and those that a token visits.
PUBLISHED = {
    "gpt3-175b": (174.6, 174.6),  # arXiv 2104.04473, table 2
    "megatron-1.7b": (1.7, 1.7),  # arXiv 2104.04473, table 1
    "nemotron-3-nano": (31.6, 3.6),  # NVIDIA's model cards
    "nemotron-3-super": (120.6, 12.7),
    "qwen3-next-80b-a3b": (79.7, 3.9),  # without its layer of multi-token prediction
    "kimi-linear-48b-a3b": (49.1, 3.5),
    "deepseek-v3.2": (671.9, 38.4),
    # 284 and 13 of the model's card, whose active ones leave out a table
    "deepseek-v4-flash": (284.3, 13.8),
    "megatron-39.1b": (39.1, 39.1),
    "megatron-145.6b": (145.6, 145.6),
    "megatron-529.6b": (529.6, 529.6),
    "megatron-1t": (1008.0, 1008.0),
    "nemotron4-340b": (341.0, 341.0),  # 9.4 of embedding and 331.6 of others: arXiv 2406.11704
    "llama3-8b": (8.03, 8.03),
    "llama3-70b": (70.6, 70.6),
    "llama3-405b": (405.9, 405.9),
    "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (140.6, 39.1),
    "deepseek-v2": (236.0, 21.0),
    "deepseek-v3": (671.0, 37.5),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235.0, 22.0),
    "gpt-oss-120b": (116.8, 5.7),
    "kimi-k2": (1026.0, 32.9),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name):
    model, (total, active) = read_model(name), PUBLISHED[name]
    assert count_parameters(model) / 1e9 == pytest.approx(total, rel=0.004, abs=0.06)
    assert count_parameters(model, active=True) / 1e9 == pytest.approx(active, rel=0.025, abs=0.06)


@pytest.mark.parametrize("name", [name for name in library() if name.startswith("megatron")])
def test_parameters_and_flops_follow_megatrons_equations(name):
    """Equations 2 and 3 of arXiv 2104.04473; the latter counts attention whole, and all layers
    twice forward.
    """
    model = read_model(name)
    l, h, s, V = model.layers, model.hidden, model.seq, model.vocab  # noqa: E741
    parameters = 12 * l * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * l * h))
    assert count_parameters(model) == pytest.approx(parameters, rel=1e-4)
    # Without recomputation 72 instead of 96; with attention's causal half, s / 12 instead of s / 6.
    flops = 72 * l * h**2 * (1 + s / (12 * h) + V / (12 * l * h))
    assert flops_per_token(model) == pytest.approx(flops, rel=1e-3)


def test_everything_in_the_library_can_be_read_and_names_its_source():
    assert [
        name for name in library() if read_model(name).name != name or not read_model(name).source
    ] == []
    assert [
        name for name in gpus() if read_gpu(name).name != name or not read_gpu(name).source
    ] == []
    assert {read_machine(name).gpu.name for name in machines()} <= set(gpus())
    assert [name for name in gpus() if read_machine(f"{name}x8,nvlink4").gpu.name != name] == []


def test_a_hugging_face_config_is_read(tmp_path):
    """The config.json of a mixture of experts with latent attention gives the library's model."""
    config = {
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "max_position_embeddings": 4096,
        "vocab_size": 129280,
        "intermediate_size": 18432,
        "num_key_value_heads": 128,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "num_nextn_predict_layers": 1,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "rope_scaling": None,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    found, known = read_model(str(path)), read_model("deepseek-v3")
    assert count_parameters(found) == count_parameters(known)
    assert flops_per_token(found) == flops_per_token(known)


def test_a_window_of_every_second_layer_is_read(tmp_path):
    """Gpt-oss-120b's attention: half of the layers see 128 tokens."""
    config = {
        "hidden_size": 2880,
        "num_attention_heads": 64,
        "num_hidden_layers": 36,
        "max_position_embeddings": 4096,
        "vocab_size": 201088,
        "intermediate_size": 2880,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "hidden_act": "silu",
        "layer_types": ["sliding_attention", "full_attention"] * 18,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert flops_per_token(read_model(str(path))) == flops_per_token(read_model("gpt-oss-120b"))


@pytest.mark.parametrize(
    ("kind", "other", "window"),
    [
        ("mistral", {}, (4096, ("window",))),
        ("gemma2", {}, (4096, ("window", "attention"))),
        ("qwen2", {"use_sliding_window": False}, (0, ())),
        ("gemma3_text", {"sliding_window_pattern": 6}, (4096, ("window",) * 5 + ("attention",))),
    ],
)
def test_windows_are_those_of_the_kind_where_no_list_of_layers_says_more(
    tmp_path, kind, other, window
):
    config = {
        "model_type": kind,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "max_position_embeddings": 32768,
        "vocab_size": 32000,
        "sliding_window": 4096,
        **other,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = read_model(str(tmp_path))  # a folder with a config.json
    assert (found.window, found.mixers) == window


@pytest.mark.parametrize(
    ("mixer", "seq", "tokens"), [("chunk", 4096, 512), ("chunk", 512, 256), ("window", 512, 256)]
)
def test_a_token_attends_to_half_of_what_it_may_see(mixer, seq, tokens):
    """A chunk of 1024 or the sequence, whichever is shorter; so does a window that is longer than
    the sequence.
    """
    assert attended_tokens(Model(64, 4, 2, seq, 100, window=1024, mixers=(mixer,)), mixer) == tokens


def test_the_gallerys_model_has_seven_billion_parameters():
    assert count_parameters(read_model("gallery/model-7b.toml")) == pytest.approx(6.7e9, rel=0.02)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "m.toml",
            'schema = "ppsim.model/2"\nhidden = 8\nheads = 4\nlayers = 1\nseq = 1\nvocab = '
            "1\nkv_heads = 3",
            "line 7: 'kv_heads' must divide heads = 4, got 3",
        ),
        (
            "m.toml",
            'schema = "ppsim.model/2"\nhidden = 8\nheads = 2\nlayers = 1\nseq = 1\nvocab = '
            "1\nexperts = 4",
            "'top_k' must be 1 to 4 experts, got 0",
        ),
        (
            "m.toml",
            'schema = "ppsim.model/2"\nhidden = 8\nheads = 0\nlayers = 1\nseq = 1\nvocab = 1',
            "line 3: 'heads' must be 1 or more",
        ),
        (
            "m.toml",
            'schema = "ppsim.model/2"\nhidden = 8\nheads = 3\nlayers = 1\nseq = 1\nvocab = 1',
            "line 3: 'heads' must divide hidden = 8 where head_dim is not given",
        ),
        ("c.json", '{"vision_config": {"depth": 32}}', "has an encoder, vision_config"),
        ("c.json", '{"architectures": ["BertForMaskedLM"]}', "is of a model with an encoder"),
        ("c.json", '{"is_encoder_decoder": true}', "is of a model with an encoder"),
        ("c.json", "{", "is not whole or not JSON"),
        ("c.json", "[]", "c.json': expected an object"),
        ("c.json", '{"hidden_size": 8}', "has no num_attention_heads"),
        (
            "c.json",
            '{"hidden_sizes": 8, "model_type": "odd"}',
            "no hidden_size; 'hidden_sizes' is an unknown key",
        ),
        ("c.json", '{"width": 8, "model_type": "odd"}', "c.json' of type 'odd' has no hidden_size"),
        ("c.json", '{"mlp_only_layers": 5}', "c.json': mlp_only_layers: expected a list"),
        (
            "c.json",
            '{"text_config": {"hidden_size": "8"}}',
            "c.json': text_config: hidden_size: expected a whole",
        ),
        (
            "c.json",
            '{"num_key_value_heads": 0}',
            "c.json': num_key_value_heads: expected a whole number >= 1",
        ),
        (
            "c.json",
            '{"linear_attn_config": {"num_heads": 8}}',
            "linear_attn_config.head_dim is missing",
        ),
        ("c.json", '{"hidden_size": NaN}', "is not whole or not JSON"),
        ("c.json", '{"hidden_size": "wide"}', "c.json': hidden_size: expected a whole number"),
    ],
)
def test_a_description_that_is_none_is_refused_with_the_reason(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        read_model(str(tmp_path / name))


def test_an_unknown_name_is_answered_with_the_closest():
    with pytest.raises(InputError, match="Did you mean 'llama3-70b'"):
        read_model("lama3-70b")
    with pytest.raises(InputError, match="Did you mean 'dgx-h100'"):
        read_machine("dgx-h10")


DATA = Path(__file__).parents[2] / "data"
KEYS_OF_POSITIONS = {"max_position_embeddings", "n_positions", "seq_length", "max_seq_len"}
GEMMA = {
    "model_type": "gemma2",
    "hidden_size": 2304,
    "num_attention_heads": 8,
    "num_hidden_layers": 26,
    "head_dim": 256,
    "num_key_value_heads": 4,
    "intermediate_size": 9216,
    "vocab_size": 256000,
    "max_position_embeddings": 8192,
    "hidden_act": "gelu_pytorch_tanh",
}
NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 6144,
    "num_attention_heads": 64,
    "num_hidden_layers": 44,
    "intermediate_size": 24576,
    "vocab_size": 50432,
    "max_position_embeddings": 2048,
    "hidden_act": "gelu_fast",
}


OPT = {
    "model_type": "opt",
    "activation_function": "relu",
    "hidden_size": 4096,
    "ffn_dim": 16384,
    "vocab_size": 50272,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "max_position_embeddings": 2048,
}
BLOOM = {
    "model_type": "bloom",
    "n_embed": 14336,
    "n_layer": 70,
    "num_attention_heads": 112,
    "seq_length": 2048,
    "vocab_size": 250880,
}
FALCON = {
    "model_type": "falcon",
    "hidden_size": 4544,
    "num_attention_heads": 71,
    "num_hidden_layers": 32,
    "multi_query": True,
    "vocab_size": 65024,
    "max_position_embeddings": 2048,
    "bias": False,
}
MAVERICK = {
    "model_type": "llama4_text",
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "interleave_moe_layer_step": 2,
    "max_position_embeddings": 8192,
    "num_attention_heads": 40,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "num_experts_per_tok": 1,
    "num_local_experts": 128,
    "num_hidden_layers": 48,
    "vocab_size": 202048,
}


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (GEMMA, 2_614_341_888),
        (NEOX, 20_554_567_680),
        (OPT, 6_658_473_984),
        (BLOOM, 176_247_271_424),
        (FALCON, 6_921_720_704),
        (MAVERICK, count_parameters(read_model("llama4-maverick"))),
    ],
)
def test_families_whose_config_leaves_gates_ties_or_biases_out_have_their_published_parameters(
    tmp_path, config, published
):
    """Gemma-2 2B, GPT-NeoX 20B, OPT 6.7B, BLOOM, Falcon 7B; norms of their own are less than a
    ten-thousandth.
    """
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert count_parameters(read_model(str(path))) == pytest.approx(published, rel=1e-4)


@pytest.mark.parametrize(
    "changes",
    [{"num_hidden_layers": 2_000_000_000}, {"hidden_size": "4096"}, {"num_attention_heads": 0}],
)
def test_a_config_with_impossible_sizes_is_refused_with_a_hint(tmp_path, changes):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**NEOX, **changes}))
    with pytest.raises(InputError) as refused:
        read_model(str(path))
    assert refused.value.hint == "the config.json of a language model"


def test_experts_whose_visits_have_an_unknown_key_are_refused_with_it(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**NEOX, "num_experts": 256, "num_experts_per_tokens": 8}))
    with pytest.raises(
        InputError,
        match="has num_experts and no num_experts_per_tok; 'num_experts_per_tokens' is an",
    ):
        read_model(str(path))


def test_the_length_of_sequences_may_come_from_outside(tmp_path):
    """A config.json without one is a model all the same where --seq says it; with none and no --seq
    it says so.
    """
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**NEOX, "max_position_embeddings": None}))
    assert read_model(str(path), 4096).seq == read_model("llama3-8b", 4096).seq == 4096
    with pytest.raises(InputError, match="no max_position_embeddings") as refused:
        read_model(str(path))
    assert refused.value.hint == "--seq 4096"
    for seq in (0, -1, 1 << 31):
        with pytest.raises(InputError, match="--seq must be 1 or more and 2147483647 at most"):
            read_model("llama3-8b", seq)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "config", [GEMMA, NEOX, OPT, BLOOM, FALCON, MAVERICK], ids=lambda config: config["model_type"]
)
@pytest.mark.parametrize("value", ["x", -1, 1.5, [], {}, True, None, 10**30, "drop"])
def test_a_config_with_any_key_changed_is_a_model_or_refused_by_name(tmp_path, config, value):
    """Each key of each family missing, null, or of another type: never an error of ours."""
    for key in config:
        changed = {name: given for name, given in config.items() if name != key}
        changed |= {} if value == "drop" else {key: value}
        path = tmp_path / "config.json"
        path.write_text(json.dumps(changed))
        refused = None
        try:
            count_parameters(read_model(str(path)))
        except InputError as error:
            refused = str(error)
        assert refused is None or refused.startswith(f"'{path}'"), (key, refused)


CONFIGS = json.loads((DATA / "configs.json").read_text())


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_has_its_parameters_or_is_refused_by_its_keys(tmp_path, name):
    """With the keys of the public files, those without any cost left out: billions of parameters,
    or what is named.
    """
    expected, config = CONFIGS[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    seq = None if KEYS_OF_POSITIONS & config.keys() else 2048
    if isinstance(expected, str):
        with pytest.raises(InputError, match=re.escape(expected)):
            read_model(str(path), seq)
    else:
        assert count_parameters(read_model(str(path), seq)) / 1e9 == pytest.approx(
            expected, rel=0.01
        )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama4-scout", {"moe_layers": [1, 3]}),
        ("glm-5", {"qk_head_dim": 128}),
        ("granite-4-h-small", {"mamba_expand": 3}),
        ("olmoe-1b-7b", {"moe_layer_freq": 2}),
        ("qwen3-30b-a3b", {"parallel_attn_mlp_res": True}),
        ("hunyuan-a13b", {"moe_topk": [8] * 31 + [4]}),
    ],
)
def test_a_key_that_disagrees_with_the_rest_is_refused_by_name(tmp_path, name, changes):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS[name][1] | changes))
    with pytest.raises(InputError, match=next(iter(changes))):
        read_model(str(path))


def test_layers_of_published_configs_mix_tokens_as_their_files_say(tmp_path):
    """Llama 4 in chunks but for every fourth layer, Qwen3.5's gates, Nemotron-H's MLPs without a
    gate.
    """

    def read(name):
        (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name][1]))
        return read_model(str(tmp_path / "config.json"), 4096)

    assert read("llama4-scout").mixers == ("chunk", "chunk", "chunk", "attention")
    assert read("qwen35-moe-full").attention_gate
    assert not read("nemotron-nano-9b-v2").gated
    assert read("mamba2-2.7b").mlps == ("none",)
    assert read("cohere-r").tied
    assert not read("gptj-6b").learned_positions


PLAIN = {
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_hidden_layers": 6,
    "max_position_embeddings": 4096,
    "vocab_size": 32000,
    "intermediate_size": 2816,
}


EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2}
WIDE, NARROW = "full_attention", "sliding_attention"


def read_changed(tmp_path, **changes):
    config = {key: value for key, value in {**PLAIN, **changes}.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return read_model(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (
            {},
            {
                "gated": True,
                "tied": False,
                "biases": False,
                "learned_positions": False,
                "shared_ffn": 0,
                "experts": 0,
            },
        ),
        ({"hidden_act": "gelu"}, {"gated": False}),
        ({"activation_function": "relu", "hidden_act": None}, {"gated": False}),
        ({"tie_word_embeddings": True}, {"tied": True}),
        ({"model_type": "gemma2", "hidden_act": "gelu"}, {"gated": True, "tied": True}),
        ({"model_type": "gemma2", "tie_word_embeddings": False}, {"tied": False}),
        (
            {"model_type": "phi"},
            {"gated": False, "biases": True, "learned_positions": False, "tied": False},
        ),
        (
            {"model_type": "opt"},
            {"gated": False, "biases": True, "learned_positions": True, "tied": True},
        ),
        (
            {"n_embd": 768, "hidden_size": None},
            {
                "hidden": 768,
                "gated": False,
                "biases": True,
                "learned_positions": True,
                "tied": True,
            },
        ),
        ({"model_type": "gpt_oss"}, {"clamped": True}),
        ({"model_type": "llama"}, {"clamped": False}),
        ({"multi_query": True}, {"kv_heads": 1}),
        (
            {"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 4},
            {"kv_heads": 4},
        ),
        ({"multi_query": False}, {"kv_heads": 16}),
        (
            {**EXPERTS, "n_shared_experts": 3, "moe_intermediate_size": 512},
            {"shared_ffn": 1536, "expert_ffn": 512},
        ),
        ({**EXPERTS, "n_shared_experts": 3}, {"shared_ffn": 3 * 2816, "expert_ffn": 2816}),
        (
            {**EXPERTS, "shared_expert_intermediate_size": 700, "n_shared_experts": 3},
            {"shared_ffn": 700},
        ),
        (
            {**EXPERTS, "mlp_only_layers": [0, 1], "moe_intermediate_size": 8},
            {"dense_layers": 2, "expert_ffn": 8},
        ),
        (
            {"head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 96},
            {"head_dim": 128, "rope_dim": 0, "v_dim": 128},
        ),
        (
            {
                "kv_lora_rank": 64,
                "qk_nope_head_dim": 32,
                "qk_rope_head_dim": 16,
                "v_head_dim": 24,
                "head_dim": 99,
            },
            {"head_dim": 32, "rope_dim": 16, "v_dim": 24},
        ),
        (
            {"sliding_window": 512, "layer_types": [NARROW] * 6},
            {"window": 512, "mixers": ("window",)},
        ),
        (
            {"sliding_window": 512, "layer_types": [NARROW, WIDE] * 3},
            {"window": 512, "mixers": ("window", "attention")},
        ),
        (
            {"sliding_window": 512, "layer_types": [NARROW, WIDE, WIDE] * 2},
            {"mixers": ("window", "attention", "attention")},
        ),
        ({"sliding_window": 512, "layer_types": [WIDE] * 6}, {"mixers": ("attention",)}),
        ({"sliding_window": 512, "model_type": "llama"}, {"mixers": ()}),
        (
            {"sliding_window": 512, "use_sliding_window": False, "layer_types": [NARROW, WIDE] * 3},
            {"window": 0, "mixers": ("attention",)},
        ),
        ({"text_config": PLAIN, "vocab_size": 7}, {"vocab": 32000}),
        ({"_name_or_path": "org/thing"}, {"name": "org/thing"}),
    ],
)
def test_a_config_says_what_its_family_leaves_out(tmp_path, changes, fields):
    found = read_changed(tmp_path, **changes)
    assert {name: getattr(found, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_lora_rank": 64}, "kv_lora_rank and no qk_nope_head_dim"),
        (
            {"mlp_only_layers": [1, 2], "num_experts": 8, "num_experts_per_tok": 2},
            "not the first layers",
        ),
        ({"hidden_size": True}, "hidden_size: expected a whole number"),
        ({"vocab_size": None}, "has no vocab_size"),
        ({"model_type": "mamba"}, "with a state (mamba), but does not list them"),
        ({"ssm_state_size": 16}, "with a state (ssm_state_size), but does not list them"),
        ({"hybrid_override_pattern": "M-X*"}, "hybrid_override_pattern has 'X'"),
        ({"hybrid_override_pattern": "M-M*"}, "state_heads is needed by layers of kind mamba"),
        (
            {"layer_types": ["full_attention", "linear_attention"]},
            "layers of an unknown type: 'linear_attention'",
        ),
        (
            {"layer_types": [NARROW, WIDE], "sliding_window": 512},
            "layer_types are 2 for 6 layers",
        ),
        (
            {"layer_types": ["attention", "recurrent"]},
            "layers of an unknown type: 'recurrent'",
        ),
        (
            {"num_latent_banks": 4},
            "unknown keys that may change the cost of a step: num_latent_banks",
        ),
        ({"index_topk": 64}, "index_heads is needed by layers of kind sparse"),
        ({"num_experts": 8}, "num_experts and no num_experts_per_tok"),
        ({"num_experts": 2, "num_experts_per_tok": 3}, "top_k must be 1 to 2 experts, got 3"),
        (
            {
                "first_k_dense_replace": 7,
                "num_experts": 8,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 8,
            },
            "dense_layers must be 6 layers at most",
        ),
        ({"intermediate_size": 0}, "intermediate_size: expected a whole number >= 1"),
        (
            {"n_routed_experts": 8, "num_experts_per_tok": 2},
            "has experts and no moe_intermediate_size",
        ),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
            "has experts and no moe_intermediate_size",
        ),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 2},
            "has experts and no moe_intermediate_size",
        ),
        (
            {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 0},
            "has experts and no moe_intermediate_size",
        ),
        ({"moe_layer_freq": 0}, "not a number of layers: moe_layer_freq = 0"),
        ({"num_hidden_layers": 16385}, "layers must be 1 or more and 16384 at most"),
        ({"num_key_value_heads": 5}, "kv_heads must divide heads = 16, got 5"),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_changed(tmp_path, **changes)


def test_limits_themselves_are_allowed(tmp_path):
    assert read_changed(tmp_path, num_hidden_layers=16384).layers == 16384
    assert (
        read_changed(
            tmp_path,
            num_experts=2,
            num_experts_per_tok=2,
            first_k_dense_replace=6,
            moe_intermediate_size=8,
        ).moe_layers
        == 0
    )


def test_parameters_of_a_small_model_by_hand():
    """Two of three layers have experts: four of 2 x 8 x 6 with a gate, a shared one of 10, a
    router, two norms.
    """
    model = Model(
        8,
        2,
        3,
        5,
        7,
        kv_heads=1,
        ffn=20,
        gated=True,
        experts=4,
        top_k=2,
        expert_ffn=6,
        shared_ffn=10,
        dense_layers=1,
    )
    attention = 8 + 8 * (2 + 2) * 4 + 8 * 8
    dense, mixed = 8 + 3 * 8 * 20, 8 + 3 * 8 * (4 * 6 + 10) + 8 * 4
    ends = 2 * 7 * 8 + 8
    assert count_parameters(model) == 3 * attention + dense + 2 * mixed + ends
    assert (
        count_parameters(model, active=True)
        == 3 * attention + dense + 2 * (8 + 3 * 8 * (2 * 6 + 10) + 8 * 4) + ends
    )
    assert mtp_parameters(replace(model, mtp=2)) == 2 * (attention + mixed + 2 * 8 * 8 + 3 * 8)
    gpt = Model(8, 2, 1, 5, 7, biases=True, learned_positions=True, tied=True)
    assert count_parameters(gpt) == 12 * 64 + 13 * 8 + (7 + 5) * 8 + 2 * 8  # 12 h^2 + 13 h a layer
    gated = replace(gpt, gated=True, ffn=20)
    assert count_parameters(gated) - count_parameters(gpt) == 8 * (3 * 20 - 2 * 32) + 2 * 20 - 32
    latent = Model(8, 2, 1, 5, 0, head_dim=4, v_dim=3, q_lora=5, kv_lora=6, rope_dim=2)
    keys = 8 * (6 + 2) + 6 + 6 * 2 * (4 + 3) + 2 * 3 * 8
    assert attention_parameters(latent) == 8 + 8 * 5 + 5 + 5 * 2 * 6 + keys
    assert attention_parameters(replace(latent, q_lora=0)) == 8 + 8 * 2 * 6 + keys


def test_python_gets_what_the_command_says_of_a_model():
    words = [
        "model",
        "llama3-8b",
        "--pp",
        "4",
        "--mb",
        "8",
        "--seq",
        "4096",
        "--cluster",
        "dgx-h100",
    ]
    found = ask_model("llama3-8b", pp=4, mb=8, seq=4096, cluster="dgx-h100")
    assert json.loads(invoke(*words, "--json").stdout) == json.loads(json.dumps(found.to_json()))
    assert [row["device"] for row in found.table] == [0, 1, 2, 3]
    assert {row["model"] for row in ask_model().table} == set(library())
    with pytest.raises(InputError, match="the model is missing"):
        ask_model(pp=4)


def test_flops_of_sparse_attention_are_maxtexts():
    """4 x 4,096 tokens of DeepSeek-V3.2, no multi-token prediction: 4,162.71 TFLOP, 4,103.37
    without the indexer.
    """
    sparse, full = (replace(read_model(name), mtp=0) for name in ("deepseek-v3.2", "deepseek-v3"))
    assert flops_per_token(sparse) * 16384 / 1e12 == pytest.approx(4162.71, abs=0.02)
    assert flops_per_token(full) * 16384 / 1e12 == pytest.approx(4103.37, abs=0.02)


def test_flops_of_a_hybrid_are_those_that_its_runs_were_published_with():
    """Nemotron 3 Super on 64 GB200: 600 TFLOP/s a GPU at 7,040 tokens/s, by Megatron-Bridge's own
    count.
    """
    assert flops_per_token(read_model("nemotron-3-super")) == pytest.approx(600e12 / 7040, rel=0.01)


QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_hidden_layers": 48,
    "max_position_embeddings": 262144,
    "vocab_size": 151936,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "intermediate_size": 5120,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "decoder_sparse_step": 1,
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "partial_rotary_factor": 0.25,
    "rope_theta": 10000000,
    "router_aux_loss_coef": 0.001,
}


def test_every_fourth_layer_of_qwen3_next_is_full_attention(tmp_path):
    """By full_attention_interval alone, as its first files have it; its newer ones list the
    layers.
    """
    for changes in ({}, {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12}):
        (tmp_path / "config.json").write_text(json.dumps(QWEN3_NEXT | changes))
        found = read_model(str(tmp_path / "config.json"), 4096)
        assert replace(found, name="", source="") == replace(
            read_model("qwen3-next-80b-a3b"), name="", source=""
        )


@pytest.mark.parametrize(("groups", "limit"), [(8, 4), (1, 0)])
def test_one_group_of_experts_limits_no_token(tmp_path, groups, limit):
    """DeepSeek-V3 takes experts of 4 of 8 groups; Kimi-K2's file says 1 of 1."""
    says = {
        **QWEN3_NEXT,
        "model_type": "deepseek_v3",
        "n_group": groups,
        "topk_group": min(groups, 4),
    }
    (tmp_path / "config.json").write_text(json.dumps(says))
    assert read_model(str(tmp_path / "config.json"), 4096).top_groups == limit


def test_kimi_and_nemotron_say_their_layers_in_their_own_ways(tmp_path):
    """A list of layers counted from 1, and a pattern of letters."""
    kimi = {
        "model_type": "kimi_linear",
        "hidden_size": 2304,
        "num_attention_heads": 32,
        "num_hidden_layers": 27,
        "model_max_length": 1048576,
        "max_position_embeddings": 4096,
        "vocab_size": 163840,
        "intermediate_size": 9216,
        "num_experts": 256,
        "num_experts_per_token": 8,
        "moe_intermediate_size": 1024,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "num_expert_group": 1,
        "linear_attn_config": {
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
            "head_dim": 128,
            "num_heads": 32,
            "kda_layers": [1, 2, 3],
            "short_conv_kernel_size": 4,
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(kimi))
    found = read_model(str(tmp_path / "config.json"))
    assert replace(found, name="", source="") == replace(
        read_model("kimi-linear-48b-a3b"), name="", source=""
    )
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    nano = {
        "model_type": "nemotron_h",
        "hidden_size": 2688,
        "num_attention_heads": 32,
        "num_hidden_layers": 52,
        "max_position_embeddings": 8192,
        "vocab_size": 131072,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "intermediate_size": 1856,
        "mlp_hidden_act": "relu2",
        "hidden_act": "relu2",
        "n_routed_experts": 128,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1856,
        "n_shared_experts": 1,
        "n_groups": 8,
        "moe_shared_expert_intermediate_size": 3712,
        "mamba_num_heads": 64,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "conv_kernel": 4,
        "hybrid_override_pattern": pattern,
        "chunk_size": 128,
        "expand": 2,
        "n_group": 1,
    }
    (tmp_path / "config.json").write_text(json.dumps(nano))
    found = read_model(str(tmp_path / "config.json"))
    assert replace(found, name="", source="") == replace(
        read_model("nemotron-3-nano"), name="", source=""
    )


def test_a_gated_delta_net_has_the_parameters_of_its_modules():
    """Those of Qwen3NextGatedDeltaNet: in_proj_qkvz and in_proj_ba, conv1d, dt_bias and A_log,
    norm, out_proj.
    """
    keys, values = 16 * 128, 32 * 128
    projections = 2048 * (2 * keys + 2 * values) + 2048 * (32 + 32) + values * 2048
    beside = 4 * (2 * keys + values) + 32 + 32 + 128
    layer_norm = 2048
    assert (
        mixer_parameters(read_model("qwen3-next-80b-a3b"), "delta")
        == projections + beside + layer_norm
    )


def test_a_mamba_layer_multiplies_by_its_two_projections_alone():
    """Not by what convolves, scales and shifts: Mamba-2 of Nemotron-H, 64 heads of 64, 8 groups, a
    state of 128.
    """
    model = read_model("nemotron-3-nano")
    more = replace(model, layers=53, mixers=(*model.mixers, "mamba"), mlps=(*model.mlps, "none"))
    values, keys, heads = 64 * 64, 2 * 8 * 128, 64
    matrices = 2688 * (values + (values + keys) + heads) + values * 2688
    found = flops_per_token(more) - flops_per_token(model)
    assert found == pytest.approx(6 * matrices + 3 * mixing_flops(model, "mamba"), rel=1e-9)


def test_a_state_takes_seven_operations_a_number_and_five_without_a_gate():
    """Of heads x dim x size: 64 heads of 64 with a state of 128."""
    model = read_model("nemotron-3-nano")
    found = {
        mixer: mixing_flops(model, mixer) / (64 * 64 * 128)
        for mixer in ("mamba", "delta", "kda", "linear")
    }
    assert found == {"mamba": 7.0, "delta": 7.0, "kda": 7.0, "linear": 5.0}


@pytest.mark.parametrize(("last", "known"), [(5, True), (4, False), (7, False)])
def test_experts_to_the_last_layer_are_what_is_known(tmp_path, last, known):
    """Of six layers; a config whose experts end before its layers do is refused, as one that goes
    on behind them.
    """
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_layer_end_index": last}
    with (
        nullcontext()
        if known
        else pytest.raises(InputError, match="may change the cost of a step: moe_layer_end_index")
    ):
        assert read_changed(tmp_path, **experts).moe_layers == 6


def test_a_tower_costs_its_layers_beside_the_embedding_and_no_backward_where_it_is_frozen(tmp_path):
    text = (
        library()["llama3-8b"].read_text()
        + "[encoder]\nhidden = 1280\nheads = 16\nlayers = 32\nffn = 3420\n"
    )
    path = tmp_path / "seeing.toml"
    plain = read_model("llama3-8b")
    path.write_text(text + "tokens = 2048\ngated = true\n")
    seeing = read_model(str(path))
    assert seeing.encoder
    frozen = replace(seeing, encoder=replace(seeing.encoder, frozen=True))
    tower = 32 * (4 * 1280**2 + 3 * 1280 * 3420)
    assert count_parameters(seeing) - count_parameters(plain) == pytest.approx(tower, rel=0.001)
    extra = [flops_per_token(model) - flops_per_token(plain) for model in (seeing, frozen)]
    assert extra[0] == pytest.approx(
        (6 * tower + 3 * 32 * 4 * 2048 * 1280) * 2048 / 8192, rel=0.001
    )
    assert extra[0] == pytest.approx(3 * extra[1])
    path.write_text(text + "tokens = 0\n")
    with pytest.raises(InputError, match="must be 1 or more"):
        read_model(str(path))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schedule", ["1f1b", "1f1b-overlap", "dualpipe", "zb-1p"])
@pytest.mark.parametrize(
    "options", [{}, {"overlap_tp": False}, {"dispatch": "deepep", "dispatch_bytes": 1}]
)
def test_a_models_pipeline_is_drawn_by_the_run_that_it_prints(schedule, options):
    """Pairs as long as their segments make them, for any model and GPU: the makespan is that of the
    step's pipeline.
    """
    sizes = {"ep": 4, "dp": 4, "pp": 4, "mb": 12, "schedule": schedule, "overlap_a2a": True}
    found = ask_model("deepseek-v2-lite", cluster="dgx-h100", **sizes, **options).to_json()
    assert ("--tfb" in found["run"]) == (schedule != "zb-1p")
    ran = json.loads(invoke(*shlex.split(found["run"])[1:], "--json").stdout)
    assert ran["makespan"] / 1e3 == pytest.approx(found["step"]["pipeline"], rel=2e-5)


@pytest.mark.parametrize(
    ("types", "said"), [("dsss", None), ("ddss", "mlp_layer_types"), ("dsds", "mlp_layer_types")]
)
def test_a_list_of_layers_that_says_what_sizes_say_is_known(tmp_path, types, said):
    """One dense layer and then sparse ones: of any other list the config is refused."""
    words = [{"d": "dense", "s": "sparse"}[letter] for letter in types] + ["sparse"] * 2
    changes = {**EXPERTS, "first_k_dense_replace": 1, "mlp_layer_types": words}
    changes |= {"moe_intermediate_size": 8}
    if said:
        with pytest.raises(InputError, match=said):
            read_changed(tmp_path, **changes)
    else:
        assert read_changed(tmp_path, **changes).dense_layers == 1


V4 = json.loads((DATA / "configs.json").read_text())["deepseek-v4-pro"][1]


def test_deepseek_v4_has_the_parameters_and_the_flops_that_torchtitan_counts(tmp_path):
    """torchtitan's test of the whole model with one layer of multi-token prediction, 4,096 tokens:
    290,942,278,866 parameters and 92,762,352,876 FLOPs a token. Those count whole windows and all
    chosen keys, the causal part here.
    """
    flash = read_model("deepseek-v4-flash")
    assert count_parameters(flash) + mtp_parameters(flash) == pytest.approx(
        290_942_278_866, rel=1e-5
    )
    counted = flops_per_token(flash)
    csa, hca = flash.mixers.count("csa"), flash.mixers.count("hca")
    products = 6 * flash.heads * 2 * flash.head_dim * (csa * 128 + hca * 16 + 44 * (128 - 126))
    indexer = 3 * csa * flash.seq / 4 * flash.index_heads * (flash.index_dim + 1)
    # of the four hidden states that its layer of prediction projects
    streams = 6 * 3 * flash.hidden**2
    assert counted + products + indexer + streams == pytest.approx(92_762_352_876, rel=1e-3)
    pro = read_changed(tmp_path, **V4)
    assert pro.mixers[:4] == ("hca", "hca", "csa", "hca")
    assert (pro.csa, pro.hca, pro.streams, pro.o_groups) == (4, 128, 4, 16)


@pytest.mark.parametrize("mixer", ["window", "csa", "hca"])
def test_operators_of_compressed_attention_compute_what_is_counted(mixer):
    """Forward products of a layer and its streams, beside the router's and the experts' of a
    token.
    """
    model, layer = read_model("deepseek-v4-flash", 8192), Layer(mixer, "experts")
    found = layer_operators(model, Parallel(flash=True), layer)
    visited = layer_parameters(model, layer, active=True)
    products = 2 * visited + mixing_flops(model, mixer)
    assert found.flops[0].sum() / model.seq == pytest.approx(products, rel=1e-3)
    wide = layer_activations(model, Parallel(), layer, "none")
    assert wide > layer_activations(replace(model, streams=1), Parallel(), layer, "none")
    assert message_bytes(model, Parallel()) == 4 * message_bytes(
        replace(model, streams=1), Parallel()
    )


def test_a_ratio_for_each_layer_of_deepseek_v4_and_no_more_is_enough(tmp_path):
    layers = V4["num_hidden_layers"]
    model = read_changed(tmp_path, **V4 | {"compress_ratios": ([0, 4, 128] * layers)[:layers]})
    assert [layer.mixer for layer in kinds_of(model)] == (["window", "csa", "hca"] * layers)[
        :layers
    ]


@pytest.mark.parametrize("ratios", [[], [4] * 61, [4, 128] * 10, [4, 16, 128] * 21])
def test_ratios_of_deepseek_v4_that_no_layers_have_are_refused(tmp_path, ratios):
    with pytest.raises(InputError, match="compress_ratios"):
        read_changed(tmp_path, **V4 | {"compress_ratios": ratios})
