"""Sizes of language models, read from their Hugging Face config.json."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ppsim.base.source import name_of, read_text
from ppsim.base.text import quote, shorten
from ppsim.base.typed_json import check_type, decode
from ppsim.errors import InputError

KEYS = {
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "seq": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "n_ctx"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "ffn": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "kv_heads": ("num_key_value_heads", "multi_query_group_num", "num_kv_heads", "kv_n_heads"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    "top_k": (
        "num_experts_per_tok",
        "experts_per_token",
        "num_experts_per_token",
        "moe_k",
        "moe_top_k",
        "moe_topk",
    ),
    "expert_ffn": ("moe_intermediate_size",),
    "expert_hidden": ("moe_latent_size",),
    "dense_layers": ("first_k_dense_replace", "moe_layer_start_index"),
    "moe_every": ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_interval"),
    "q_lora": ("q_lora_rank",),
    "kv_lora": ("kv_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
    "v_dim": ("v_head_dim",),
    "mtp": ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
    "o_lora": ("o_lora_rank",),
    "o_groups": ("o_groups",),
    "streams": ("hc_mult",),
    "index_heads": ("index_n_heads",),
    "index_dim": ("index_head_dim",),
    "index_top_k": ("index_topk",),
    "state_heads": ("linear_num_value_heads", "mamba_num_heads", "mamba_n_heads"),
    "state_dim": ("linear_value_head_dim", "mamba_head_dim", "mamba_d_head"),
    "state_groups": ("linear_num_key_heads", "n_groups", "mamba_n_groups"),
    "state_size": ("linear_key_head_dim", "ssm_state_size", "mamba_d_state"),
    "conv": ("linear_conv_kernel_dim", "conv_kernel", "mamba_d_conv"),
}
LARGEST_CONFIG = 4 << 20
MOST_LISTED = 1 << 14  # longest list of layers that is compared with the one a key implies
CONFIG = "the config.json of a language model"
ACTIVATIONS = (
    "hidden_act",
    "hidden_activation",
    "activation_function",
    "activation",
    "mlp_hidden_act",
)
PLAIN_MLPS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "gelu_fast", "xielu")
# Types of models whose files leave out their defaults: MLPs without a gate, a tied output, biases,
# windows in all layers.
PLAIN = ("bloom", "falcon", "gpt_bigcode", "gpt_neox", "mpt", "opt", "phi", "starcoder2")
TIED = ("bloom", "cohere", "cohere2", "falcon", "minicpm", "minicpm3", "mpt", "opt")
BIASED = ("bloom", "gpt_neox", "opt", "phi")
WINDOWED = ("mistral", "mixtral", "phi3", "starcoder2")
# The repeating pattern of layers of models whose files do not list them.
PERIODS = {
    "gemma2": ("window", "attention"),
    "gpt_oss": ("window", "attention"),
    "llama4": (*("chunk",) * 3, "attention"),
    "mamba2": ("mamba",),
}
KINDS = {
    "full_attention": "attention",
    "attention": "attention",
    "sliding_attention": "window",
    "chunked_attention": "chunk",
    "mamba": "mamba",
    "compressed_sparse_attention": "csa",
    "heavily_compressed_attention": "hca",
}
LINEAR = dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe"), "delta") | {"kimi_linear": "kda"}
LINEAR |= dict.fromkeys(("minimax", "minimax_m1", "minimax_text_01"), "linear")
# Unusual keys, some of them duplicates of another, and their usual names.
SAME = {
    "attention_head_dim": "head_dim",
    "sliding_window_size": "sliding_window",
    "num_expert_group": "n_group",
    "moe_num_shared_experts": "n_shared_experts",
    "num_shared_expert": "n_shared_experts",
}
MAMBA2 = {
    "num_heads": "mamba_num_heads",
    "head_dim": "mamba_head_dim",
    "state_size": "ssm_state_size",
}
NESTED = ("attn_config", "ffn_config")  # keys of DBRX and MPT whose tables hold further keys
LETTERS = {
    "M": ("mamba", "none"),
    "*": ("attention", "none"),
    "-": ("none", "dense"),
    "E": ("none", "experts"),
}
# Names of keys that may state a size, and those among them that do not change a cost.
COSTLY = re.compile(
    r"layer|attn|attention|head|dim|size|expert|moe|mlp|ffn|intermediate|hidden|window|index|top_?k"
    r"|lora|rank|kernel|conv"
    r"|state|ssm|mamba|linear|hybrid|pattern|freq|interval|stride|compress|sparse|block|chunk|num_"
    r"|^n_|vision|audio"
    r"|encoder|engram|hc_|mhc|gate|shared|cross|per_"
)
HARMLESS = re.compile(
    r"dropout|dropped|_eps|epsilon|rope|rotary|init|_std|_bias$|_act$|token|aux_loss|router|scor"
    r"|norm|scal|softcap|cache"
    r"|dtype|version|pretraining_tp|quant|loss|coef|temperature|fp8|_type$|clip|^n_group$"
    r"|topk_(group|method)|grouped_topk|ep_size"
    r"|max_window_layers|tie_|chunk_size|beam|label|return|_ids?$|embd_pdrop|resid_pdrop"
    r"|implementation|decoder$"
    r"|position|max_seq|seq_len|^top_k$|_to_keep|alibi|attention_method|checkpoint|^layer_types$"
    r"|num_hash|sinkhorn|attn_type_list|multiplier|moe_mode|time_step|softmax"
    r"|parallel_(attn$|block|embedding)|kernels|use_nope|query_attention$|gated_act|sharing"
    r"|attn_(impl|value)$|^order_of|model_base$|learned_pos"
)
NEEDED = ("hidden", "heads", "layers", "seq", "vocab")
AT_LEAST_ONE = (*NEEDED, "kv_heads", "ffn")
PERIOD = re.compile(r"freq|interval|period")  # keys of which 0 means nothing
SHARED = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)
OTHER_COUNTS = (
    "head_dim",
    "qk_nope_head_dim",
    *SHARED,
    "n_shared_experts",
    "num_shared_experts",
    "sliding_window",
    "attention_chunk_size",
    "full_attention_interval",
    "sliding_window_pattern",
    "max_window_layers",
    "intermediate_size_mlp",
    "n_group",
    "topk_group",
)
COUNTS = {*OTHER_COUNTS, *(key for keys in KEYS.values() for key in keys)}
_POSITIVE, _COUNT = (
    Annotated[int, msgspec.Meta(ge=1)] | None,
    Annotated[int, msgspec.Meta(ge=0)] | None,
)


class Delta(msgspec.Struct):
    """Kimi-Linear's table of layers with a state; its lists count layers from 1."""

    num_heads: Annotated[int, msgspec.Meta(ge=1)]
    head_dim: Annotated[int, msgspec.Meta(ge=1)]
    short_conv_kernel_size: Annotated[int, msgspec.Meta(ge=0)]
    kda_layers: list[int]
    full_attn_layers: list[int]


# The keys that are read, with their types; null counts as missing.
Config = msgspec.defstruct(
    "Config",
    [
        *((key, _POSITIVE, None) for name in AT_LEAST_ONE for key in KEYS[name]),
        *((key, _COUNT, None) for name in KEYS.keys() - {*AT_LEAST_ONE} for key in KEYS[name]),
        *((key, _COUNT, None) for key in OTHER_COUNTS),
        *(
            (key, str | None, None)
            for key in (*ACTIVATIONS, "model_type", "_name_or_path", "hybrid_override_pattern")
        ),
        ("linear_attn_config", Delta | None, None),
        *(
            (key, list[int] | None, None)
            for key in ("attn_type_list", "no_rope_layers", "compress_ratios")
        ),
        ("compress_rates", dict[str, int] | None, None),
        *((key, list[str] | None, None) for key in ("layer_types", "architectures")),
        *(
            (key, bool | None, None)
            for key in ("tie_word_embeddings", "is_encoder_decoder", "use_sliding_window")
        ),
        *(
            (key, bool | None, None)
            for key in ("multi_query", "new_decoder_architecture", "attn_output_gate")
        ),
        ("mlp_only_layers", list[int] | None, None),
    ],
)


def read_config(path: str, *, any_length: bool = False) -> dict[str, Any]:
    """Read a config.json into the fields of a :class:`ppsim.workload.model.model.Model`.

    Args:
        path: the file.
        any_length: sets the length of sequences to one token, whether the file states it or not.

    Raises:
        InputError: the file is not a config.json, or ppsim does not know the type of model.
    """
    data = _read_object(path)
    given = _sizes(data if not any_length else {**data, KEYS["seq"][0]: 1}, path)
    _refuse_unknown_keys(data, path)
    has_latents = "kv_lora" in given
    head_dim = data.get("qk_nope_head_dim" if has_latents else "head_dim")
    if not has_latents:
        given.pop("rope_dim", None)
        given.pop("v_dim", None)
    elif not head_dim:
        raise InputError(f"'{path}' has kv_lora_rank and no qk_nope_head_dim", CONFIG)
    shared = next((data[key] for key in SHARED if data.get(key) is not None), None)
    if shared is None and (count := data.get("n_shared_experts") or data.get("num_shared_experts")):
        shared = count * given.get("expert_ffn", given.get("ffn", 0))
    _require_expert_width(data, given, path)
    gpt, kind = "n_embd" in data, str(data.get("model_type") or "").removesuffix("_text")
    if kind == "llama4" and (dense := data.get("intermediate_size_mlp")):
        shared = given["expert_ffn"] = given.get("ffn", 0)
        given["ffn"] = dense
    gemma = kind.startswith("gemma")
    usual = "gelu" if gpt or kind in PLAIN else "silu"
    activation = next((data[key] for key in ACTIVATIONS if data.get(key)), usual)
    return {
        **given,
        **_layer_kinds(data, kind, given["layers"], path),
        "head_dim": head_dim or 0,
        "shared_ffn": shared or 0,
        "top_groups": (data.get("topk_group") or 0) if (data.get("n_group") or 1) > 1 else 0,
        "attention_gate": LINEAR.get(kind) == "delta" or data.get("attn_output_gate") is True,
        "gated": gemma or activation not in PLAIN_MLPS,
        "tied": bool(data.get("tie_word_embeddings", gpt or gemma or kind in TIED)),
        "learned_positions": (gpt and not data.get("rotary_dim")) or kind == "opt",
        "biases": gpt or kind in BIASED,
        "clamped": kind == "gpt_oss",
        "name": str(data.get("_name_or_path") or Path(path).parent.name or Path(path).stem),
        "source": name_of(path),
    }


def _read_object(path: str) -> Mapping[str, Any]:
    """Read the text model's keys of a config.json, under their usual names and checked by type."""
    text, source = read_text(path, CONFIG, largest=LARGEST_CONFIG), f"'{name_of(path)}'"
    data = decode(text, dict[str, Any], source, CONFIG, None)
    _refuse_encoders(data, source)
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(data.get(key), dict):
            data, source = data[key], f"{source}: {key}"
            _refuse_encoders(data, source)
            break
    data = _usual_config(data)
    check_type(data, Config, source, CONFIG)
    return data


def _usual_config(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a file under their usual names.

    Keys that follow from other keys are left out. A list of equal numbers becomes one number.
    """
    data = dict(data)
    for key in NESTED:
        if isinstance(data.get(key), dict):
            data |= data.pop(key)
    pure = data.get("model_type") == "mamba2"
    for key, usual in (MAMBA2 if pure else SAME).items():
        if key in data:
            value = data.pop(key)
            data[usual] = value if data.get(usual) is None else data[usual]
    if data.get("attn_type") == "multiquery_attention":
        data["multi_query"] = True
    if isinstance(data.get("sliding_window_pattern"), str) and data.get("layer_types"):
        data.pop("sliding_window_pattern")
    if pure:
        data.setdefault("num_attention_heads", data.get("mamba_num_heads"))
    for key, value in data.items():
        if (
            isinstance(value, list)
            and value
            and key in COUNTS
            and value.count(value[0]) == len(value)
        ):
            data[key] = value[0]

    def size(name: str) -> Any:
        return next(
            (data[key] for key in KEYS.get(name, (name,)) if isinstance(data.get(key), int)), 0
        )

    if isinstance(kinds := data.get("mlp_layer_types"), list):
        data["mlp_layer_types"] = [
            "sparse" if kind in ("moe", "hash_moe") else kind for kind in kinds
        ]
    hidden, every = size("hidden"), max(size("moe_every"), 1)
    layers, dense = (min(max(size(name), 0), MOST_LISTED) for name in ("layers", "dense_layers"))
    if isinstance(ratio := data.pop("expansion_ratio", None), int | float):
        data.setdefault("ffn_hidden_size", int(ratio * hidden))
    follows = {
        "word_embed_proj_dim": hidden,
        "qk_head_dim": size("qk_nope_head_dim") + size("rope_dim"),
        "mamba_expand": size("state_heads") * size("state_dim") / max(hidden, 1),
        "moe_layers": list(range(every - 1, layers, every)),
        "moe_layer_end_index": layers - 1,
        "mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense),
        "layer_switch": data.get("sliding_window_pattern"),
    }
    return {
        key: value for key, value in data.items() if key not in follows or follows[key] != value
    }


def _sizes(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the numbers in a file, by the fields of a model."""
    found = {
        name: [key for key in keys if data.get(key) is not None] for name, keys in KEYS.items()
    }
    given: dict[str, Any] = {name: data[keys[0]] for name, keys in found.items() if keys}
    for name in (*NEEDED, "top_k") if given.get("experts") else NEEDED:
        if name not in given:
            experts_key = found["experts"][0] if name == "top_k" else ""
            raise _missing_key_error(data, KEYS[name], path, experts_key)
    if data.get("multi_query") is True and not data.get("new_decoder_architecture"):
        given["kv_heads"] = 1
    if dense := data.get("mlp_only_layers"):
        if dense != list(range(len(dense))):
            raise InputError(
                f"'{path}': mlp_only_layers are not the first layers: {quote(dense)}", CONFIG
            )
        given["dense_layers"] = len(dense)
    return given


def _require_expert_width(data: Mapping[str, Any], given: Mapping[str, Any], path: str) -> None:
    """Raise InputError for experts without a width, where other layers have an MLP of another.

    Without such layers, as in Mixtral, ``intermediate_size`` is the width of an expert.
    """
    has_dense = given.get("dense_layers") or given.get("moe_every", 1) > 1
    is_stated = given.get("expert_ffn") or data.get("intermediate_size_mlp")
    if given.get("experts") and not is_stated and (has_dense or data.get("n_routed_experts")):
        raise InputError(
            f"'{path}' has experts and no moe_intermediate_size",
            '"moe_intermediate_size": the width of an expert',
        )


def _refuse_encoders(data: Mapping[str, Any], source: str) -> None:
    """Refuse encoders, and models with an encoder for images or sound.

    A config.json lacks the tokens of an image, and so the cost of such an encoder.
    """
    names = data.get("architectures")
    masked = isinstance(names, list) and any("MaskedLM" in str(name) for name in names)
    if masked or data.get("is_encoder_decoder") is True:
        raise InputError(
            f"{source} is of a model with an encoder", "a decoder: encoders are not modelled"
        )
    if towers := [key for key in data if re.fullmatch("(vision|audio)_config", key) and data[key]]:
        which = " and ".join(towers)
        raise InputError(
            f"{source} has an encoder, {which}; its cost depends on the images or sounds of a "
            "sequence",
            "the model as TOML with a table [encoder]: hidden, heads, layers, ffn, tokens, "
            f"frozen; or the file without {which}, for text alone",
        )


def _refuse_unknown_keys(data: Mapping[str, Any], path: str) -> None:
    """Refuse unknown keys that may change the costs of a step."""
    known = set(Config.__struct_fields__)
    unknown = [
        key for key in data if key not in known and COSTLY.search(key) and not HARMLESS.search(key)
    ]
    for key in unknown:
        if PERIOD.search(key) and type(data[key]) is int and data[key] < 1:
            raise InputError(
                f"'{path}': not a number of layers: {key} = {data[key]}", f'"{key}": 1'
            )
    if unread := [
        key for key in unknown if data[key] is True or data[key] not in (None, 0, 1, "", [], {})
    ]:
        names = shorten(", ".join(unread[:4]))
        raise InputError(
            f"'{path}' has unknown keys that may change the cost of a step: {names}",
            "the model as TOML (ppsim model NAME --json shows its fields), or the file without "
            "these keys if they do not matter",
        )


def _layer_kinds(data: Mapping[str, Any], kind: str, layers: int, path: str) -> dict[str, Any]:
    """Return a model's fields for the kinds of its layers: mixers, MLPs, windows and states."""
    if pattern := data.get("hybrid_override_pattern"):
        if wrong := set(pattern) - LETTERS.keys():
            raise InputError(
                f"'{path}': hybrid_override_pattern has {quote(sorted(wrong)[0])}",
                f"{' '.join(LETTERS)}",
            )
        mixers, mlps = zip(*(LETTERS[letter] for letter in pattern), strict=True)
        return {"mixers": mixers, "mlps": mlps}
    found = _layer_mixers(data, kind, layers, path)
    width = data.get("attention_chunk_size") if "chunk" in found else data.get("sliding_window")
    if data.get("use_sliding_window") is False or not width:
        found = ["attention" if mixer in ("window", "chunk") else mixer for mixer in found]
        width = 0
    result: dict[str, Any] = {}
    if kind == "deepseek_v4":
        found, result = _compressed(data, layers, found, path)
    elif data.get("index_topk"):
        found = ["sparse" if mixer == "attention" else mixer for mixer in found or ["attention"]]
    sizes = [key for name in ("state_heads", "state_size") for key in KEYS[name] if data.get(key)]
    if ("mamba" in kind or sizes) and not set(found) & {"mamba", *LINEAR.values()}:
        which = sizes[0] if sizes else kind
        raise InputError(
            f"'{path}' has layers with a state ({which}), but does not list them",
            "layer_types, hybrid_override_pattern or full_attention_interval; or the model as "
            "TOML, with mixers",
        )
    result |= {"mixers": _shorten(found), "window": width or 0}
    result |= {"mlps": ("none",)} if kind == "mamba2" else {}
    if kind == "kimi_linear" and (delta := data.get("linear_attn_config")):
        result |= {"state_heads": delta["num_heads"], "conv": delta["short_conv_kernel_size"]}
        result |= dict.fromkeys(("state_dim", "state_size"), delta["head_dim"])
    elif LINEAR.get(kind) == "linear":
        result |= {"state_heads": data["num_attention_heads"]}
        result |= dict.fromkeys(("state_dim", "state_size"), data.get("head_dim") or 128)
    return result


def _compressed(
    data: Mapping[str, Any], layers: int, listed: list[str], path: str
) -> tuple[list[str], dict[str, Any]]:
    """Return the mixers of DeepSeek-V4's layers, and the tokens per compressed key of csa and hca.

    csa is the mixer with fewer tokens per key.
    """
    if rates := data.get("compress_rates"):
        return listed, {KINDS[name]: ratio for name, ratio in rates.items() if name in KINDS}
    given = data.get("compress_ratios") or []
    ratios = sorted({ratio for ratio in given if ratio > 1})
    if len(given) < layers or len(ratios) != 2:
        raise InputError(
            f"'{path}': compress_ratios has {len(given)} numbers with {len(ratios)} different "
            f"ratios for {layers} layers",
            "one number for each layer: one of two ratios, or 0 for a window",
        )
    names = dict(zip(ratios, ("csa", "hca"), strict=True))
    return [names.get(ratio, "window") for ratio in given[:layers]], {
        name: ratio for ratio, name in names.items()
    }


def _layer_mixers(data: Mapping[str, Any], kind: str, layers: int, path: str) -> list[str]:
    """Return the mixers of layers: the file's list, or the pattern of its type of model."""
    if names := data.get("layer_types"):
        known = KINDS | ({"linear_attention": LINEAR[kind]} if kind in LINEAR else {})
        if unknown := [name for name in names if name not in known]:
            raise InputError(f"'{path}' has layers of an unknown type: {quote(unknown[0])}", CONFIG)
        if len(names) < layers:
            raise InputError(
                f"'{path}': layer_types are {len(names)} for {layers} layers", "one for each layer"
            )
        return [known[name] for name in names]
    if kind == "llama4" and (ropes := data.get("no_rope_layers")):
        return ["chunk" if rope else "attention" for rope in ropes]
    if delta := data.get("linear_attn_config"):
        return [
            "attention" if layer + 1 in delta["full_attn_layers"] else "kda"
            for layer in range(layers)
        ]
    if which := data.get("attn_type_list"):
        return ["attention" if number else "linear" for number in which]
    if every := data.get("full_attention_interval"):
        return [*[LINEAR.get(kind, "delta")] * (every - 1), "attention"]
    if every := data.get("sliding_window_pattern"):
        return [*["window"] * (every - 1), "attention"]
    if data.get("use_sliding_window"):  # in Qwen2, windows begin at that layer
        first = min(data.get("max_window_layers") or 0, layers)
        return [*["attention"] * first, *["window"] * (layers - first)]
    return list(PERIODS.get(kind, ("window",) if kind in WINDOWED else ()))


def _shorten(kinds: list[str]) -> tuple[str, ...]:
    """Return the shortest period of the kinds."""
    for period in range(1, len(kinds)):
        if all(kind == kinds[place % period] for place, kind in enumerate(kinds)):
            return tuple(kinds[:period])
    return tuple(kinds)


def _missing_key_error(
    data: Mapping[str, Any], keys: tuple[str, ...], path: str, given: str
) -> InputError:
    """Return the error for a missing key.

    It names the key ``given`` that needs it, and an unknown key of a similar name.
    """
    known = Config.__struct_fields__
    near = [
        key
        for name in keys
        for key in difflib.get_close_matches(name, data.keys() - set(known), n=1, cutoff=0.8)
    ]
    kind = f" of type {quote(family)}" if (family := data.get("model_type")) else ""
    problem = f"'{path}'{kind} has {f'{given} and ' if given else ''}no {keys[0]}"
    problem += f"; {quote(near[0])} is an unknown key" if near else ""
    return InputError(
        problem, "--seq 4096" if keys == KEYS["seq"] else f"{CONFIG} that has {' or '.join(keys)}"
    )
