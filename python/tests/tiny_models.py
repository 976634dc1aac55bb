"""Tiny models of every family of the installed transformers, made from its configuration classes alone: the defaults
with every size reduced, and random weights that are large enough for scores to differ and for a wrong mask to show."""

import contextlib
import inspect
import io
import logging

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

VOCABULARY = 99
LAYERS = 2
BATCH, LENGTH = 3, 11
MOST_PARAMETERS = 70_000_000

# Which tokens are no padding: a whole sequence, one padded on the left and one on the right. Models of texts and images
# take the text's last token for the whole, so that theirs are all padded on the right.
SEEN = torch.ones(BATCH, LENGTH, dtype=torch.bool)
SEEN[1, :3] = False
SEEN[2, -4:] = False
SEEN_ON_THE_LEFT = torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 3], [LENGTH - 4]])
SOUND_LENGTHS = torch.tensor([[1.0], [0.8], [0.6]])

# What a size is called, over all configuration classes, and what it becomes.
SIZES = {
    32: "hidden_size d_model n_embd dim embed_dim embedding_size model_dim hidden_dim emb_dim word_embed_proj_dim "
        "encoder_hidden_size decoder_hidden_size text_hidden_size projection_dim out_hidden_size output_dim "
        "projector_hidden_size hidden_size_global backbone_hidden_size memory_attention_hidden_size embed_proj_dim "
        "patch_embed_hidden_size text_embed_dim vision_embed_dim encoder_embed_dim decoder_embed_dim audio_hidden_size "
        "q_lora_rank hidden_size_per_layer_input context_dim cross_attention_hidden_size lm_hidden_size lru_width",
    48: "intermediate_size encoder_ffn_dim decoder_ffn_dim mlp_dim ffn_dim d_ff d_inner inner_dim n_inner "
        "moe_intermediate_size shared_expert_intermediate_size ffn_hidden_size linear_units dense_intermediate_size "
        "intermediate_size_mlp feed_forward_hidden_size encoder_intermediate_size decoder_intermediate_size "
        "moe_shared_expert_intermediate_size expert_ffn_hidden_size shared_intermediate_size ffn_dim_mlp",
    LAYERS: "num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers depth num_decoder_layers "
            "layers encoder_num_hidden_layers decoder_num_hidden_layers num_encoder_layers memory_attention_num_layers "
            "decoder_n_layers encoder_n_layers num_blocks adapter_layers resampler_depth "
            "num_experts_per_tok num_experts_per_token moe_k moe_topk num_key_value_heads swa_num_key_value_heads "
            "num_kv_heads n_kv_heads num_key_value_attention_heads n_head_kv num_local_layers num_connector_layers",
    4: "num_attention_heads n_head num_heads encoder_attention_heads decoder_attention_heads attention_heads n_heads "
       "encoder_num_attention_heads decoder_num_attention_heads swa_num_attention_heads num_local_experts num_experts "
       "n_routed_experts moe_num_experts sliding_window attention_chunk_size linear_num_key_heads "
       "linear_num_value_heads index_n_heads index_topk rope_dim rotary_dim mamba_n_heads sliding_window_size "
       "num_global_key_value_heads num_codebooks num_queries local_attention_window",
    8: "head_dim d_kv d_head qk_nope_head_dim qk_rope_head_dim v_head_dim kv_lora_rank linear_key_head_dim "
       "linear_value_head_dim index_head_dim swa_head_dim attention_head_dim linear_head_dim head_size kv_channels "
       "patch_size mamba_d_state state_size dim_head global_head_dim attention_head_size d_rel rel_extent "
       "ssm_state_size",
    16: "qk_head_dim context_size codebook_size codebook_dim",
    32.5: "image_size",
    VOCABULARY: "vocab_size vocab_size_per_layer_input src_vocab_size tgt_vocab_size decoder_vocab_size "
                "text_vocab_size input_vocab_size output_vocab_size audio_vocab_size",
    64: "max_position_embeddings n_positions max_sequence_length max_source_positions max_target_positions",
}
BY_NAME = {name: int(size) for size, names in SIZES.items() for name in names.split()}
LAYER_COUNTS = [name for name in BY_NAME if "layer" in name and "moe" not in name]
PYRAMID = ("hidden_size", "embed_dim", "num_layers", "depth", "num_hidden_layers", "hidden_dim")
# Rotary sections of three axes, whose default no configuration names.
SECTIONED = ("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "glm4v_moe_text", "glm_image_text", "glm_ocr_text",
             "paddleocr_vl_text")
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

# Where the rules above do not suffice: by model type, what to set besides (a dotted name is a sub-configuration's).
TIME_SERIES = {"prediction_length": 4, "context_length": 8, "d_model": 32, "lags_sequence": [1, 2, 3]}
SHARED_KEYS = {"num_hidden_layers": 4, "num_kv_shared_layers": 2,
               "layer_types": 2 * ["sliding_attention", "full_attention"]}
BESIDES = {
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 0, "mask_token_id": 3, "token_dropout": False},
    "esmc": {"num_key_value_heads": 4},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "hunyuan_vl_text": {"head_dim": 8},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 32},
    "lilt": {"hidden_size": 48, "max_2d_position_embeddings": 64},
    "layoutlmv3": {"visual_embed": False, "coordinate_size": 5, "shape_size": 6, "hidden_size": 32},
    "xmod": {"default_language": "en_XX"},
    "bridgetower": {"text_config.num_attention_heads": 4, "num_attention_heads": 4},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [4, 16]},
    "autoformer": TIME_SERIES, "informer": TIME_SERIES, "time_series_transformer": TIME_SERIES,
    "moonshine": {"encoder_num_key_value_heads": 4, "decoder_num_key_value_heads": 4},
    "perceiver": {"num_latents": 8, "d_latents": 32, "d_model": 32},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "swin": {"window_size": 4}, "donut-swin": {"window_size": 4}, "maskformer-swin": {"window_size": 4},
    "swinv2": {"window_size": 4},
    "deepseek_v2": {"num_experts_per_tok": 2, "topk_group": 1, "n_group": 1},
    "glm4v_moe_text": {"head_dim": 16}, "glm4v_moe": {"text_config.head_dim": 16},
    "bamba": {"mamba_d_head": 16, "attn_layer_indices": [1]},
    "granitemoehybrid": {"mamba_d_head": 16, "layer_types": ["mamba", "attention"]},
    "falcon_h1": {"mamba_d_head": 16, "mamba_d_ssm": 64, "mamba_n_heads": 4},
    "gemma3n_text": {**SHARED_KEYS, "intermediate_size": 48, "activation_sparsity_pattern": 4 * [0.0]},
    "gemma4_text": {**SHARED_KEYS, "vocab_size_per_layer_input": VOCABULARY},
    "siglip": {"vision_config.image_size": 32, "text_config.projection_size": 32, "vision_config.hidden_size": 32},
    "mask2former": {"num_attention_heads": 4},
    "sam3_lite_text_text_model": {"num_hidden_layers": 3},
    "chameleon": {"vocabulary_map": {"<image>": 5}},
    "mistral4": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "llama_4_scaling_beta": 0.1,
                                     "original_max_position_embeddings": 64}},
    "dbrx": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8}},
    "qwen2_5_omni_thinker": {
        "vision_start_token_id": 6,
        "text_config.rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4}},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 6},
    "step3p7": {"text_config.sliding_window": 4},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "num_hidden_layers": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "attention_layers": ["global", "local"],
                "window_size": 4},
}


class NotMade(Exception):
    """Why there is no tiny model of a family."""


def families():
    """Every model type that has a base model."""
    return sorted(name for name in CONFIG_MAPPING if name in modeling_auto.MODEL_MAPPING_NAMES)


def model_class(family):
    name = modeling_auto.MODEL_MAPPING_NAMES[family]
    name = name[0] if isinstance(name, (tuple, list)) else name
    kind = getattr(transformers, name, None)
    if not (inspect.isclass(kind) and issubclass(kind, PreTrainedModel)):
        raise NotMade(f"{name} is no model class")
    return kind


def kept_layers(values):
    """Which layers are kept of a list with one entry for each layer: the first of each kind, and LAYERS at least."""
    names = list(map(str, values))
    kinds = [names.index(name) for name in dict.fromkeys(names)]
    rest = [i for i in range(len(values)) if i not in kinds]
    return sorted(kinds + rest[:max(0, LAYERS - len(kinds))])


def cut(values):
    """A configuration's dict with every size reduced."""
    values = dict(values)
    kinds = values.get("layer_types") or values.get("layers_block_type")
    before = len(kinds) if kinds else next((values[n] for n in LAYER_COUNTS if isinstance(values.get(n), int)), None)
    keep = kept_layers(kinds) if kinds else list(range(LAYERS))
    shared = values.get("num_key_value_heads") != values.get("num_attention_heads")
    if "mrope_section" in (values.get("rope_parameters") or {}) or values.get("model_type") in SECTIONED:
        values["rope_parameters"] = {**(values.get("rope_parameters") or {}), "mrope_section": [2, 1, 1]}
    if "per_layer_config" in values and values["per_layer_config"]:
        values["per_layer_config"] = {str(i): values["per_layer_config"][str(layer)] for i, layer in enumerate(keep)
                                      if str(layer) in values["per_layer_config"]}
    for name in ("out_features", "out_indices", "stage_names"):  # of a backbone: its last stage, however many there are
        values.pop(name, None)
    for name, value in values.items():
        if isinstance(value, dict):
            values[name] = cut(value)
        elif name == "mrope_section":
            values[name] = [2, 1, 1]
        elif isinstance(value, list) and before and before > len(keep) and len(value) == before:
            values[name] = [value[i] for i in keep]
        elif isinstance(value, bool) or value is None:
            continue
        elif name in TOKENS and isinstance(value, int):
            values[name] = TOKENS[name]
        elif name == "mrope_section":
            values[name] = [2, 1, 1]
        elif isinstance(value, int) and name in BY_NAME and value > BY_NAME[name] and not (
                "depths" in values and name in PYRAMID):
            values[name] = len(keep) if kinds and name in LAYER_COUNTS else BY_NAME[name]
            if name == "num_key_value_heads" and not shared:
                values[name] = BY_NAME["num_attention_heads"]
        elif isinstance(value, int) and str(name).endswith(("_token_id", "_token_index")) and value >= VOCABULARY:
            values[name] = VOCABULARY - 1 - sum(map(ord, name)) % 50
        elif isinstance(value, float) and "drop" in str(name):
            values[name] = 0.0
    return values


def config(family):
    kind = CONFIG_MAPPING[family]
    given = BESIDES.get(family, {})
    try:
        values = cut(given.get("", kind().to_dict()))
        for name, value in given.items():
            *path, last = name.split(".")
            inner = values
            for step in path:
                inner = inner[step]
            if last:
                inner[last] = value
        return kind.from_dict(values)
    except Exception as error:
        raise because("configuration", error)


def weighed(model):
    """Random weights such that scores and outputs are of the order of one."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            drawn = torch.randn(parameter.shape, generator=generator, device="cpu")
            if parameter.dim() < 2:
                parameter += 0.1 * drawn.to(parameter.device)
            else:
                lookup = isinstance(model.get_submodule(name.rpartition(".")[0]), torch.nn.Embedding)
                fan_in = 1 if lookup else max(1, parameter[0].numel())
                parameter.copy_(drawn * fan_in ** -0.5)
    return model.eval()


def build(family, attention):
    """The family's tiny base model with this attention."""
    kind, made = model_class(family), config(family)
    try:
        with torch.device("meta"), quiet():
            size = sum(p.numel() for p in kind._from_config(config(family), attn_implementation="eager").parameters())
    except Exception as error:
        raise because("model", error)
    if size > MOST_PARAMETERS:
        raise NotMade(f"still {size} parameters")
    torch.manual_seed(0)
    with quiet():
        return weighed(kind._from_config(made, attn_implementation=attention))


@contextlib.contextmanager
def quiet():
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def sub_configs(made):
    return [c for c in vars(made).values() if isinstance(c, PreTrainedConfig)]


def image_shape(made):
    for c in (made, *sub_configs(made)):
        size = getattr(c, "image_size", None)
        if size is not None:
            height, width = size if isinstance(size, (list, tuple)) else (size, size)
            channels = getattr(c, "num_channels", None) or getattr(c, "in_channels", None) or 3
            return int(channels if isinstance(channels, int) else 3), int(height), int(width)
    return 3, 32, 32


def inputs(model):
    """Padded batches that the model may accept, the likeliest first."""
    takes = inspect.signature(model.forward).parameters
    pixels, sound = image_inputs(model, takes), sound_inputs(model, takes)
    text, beside = text_inputs(model, takes, SEEN), text_inputs(model, takes, SEEN_ON_THE_LEFT)
    first = [text] if text else []
    both = [{**beside, **some} for some in pixels + sound] if text else []
    return first + both + pixels + sound + [{**one, **two} for one in pixels for two in sound]


def text_inputs(model, takes, seen):
    generator = torch.Generator().manual_seed(1)
    given, seen = {}, seen.long()
    for name in ("input_ids", "decoder_input_ids", "qformer_input_ids"):
        if name in takes:
            ids = torch.randint(3, VOCABULARY // 3, (BATCH, LENGTH), generator=generator)
            masked = name.replace("input_ids", "attention_mask")
            given[name] = torch.where(seen.bool(), ids, 0) if masked in takes else ids
            if masked in takes:
                given[masked] = seen
    if "input_ids" not in takes and "inputs_embeds" in takes:
        width = getattr(model.config, "hidden_size", 32)
        given.update(inputs_embeds=torch.randn(BATCH, LENGTH, width, generator=generator))
        if "attention_mask" in takes:
            given["attention_mask"] = seen
    if "bbox" in takes:
        given["bbox"] = torch.tensor([1, 2, 5, 9]).expand(BATCH, LENGTH, 4)
    if given and "use_cache" in takes:
        given["use_cache"] = False
    return given


def image_inputs(model, takes):
    generator = torch.Generator().manual_seed(1)
    channels, height, width = image_shape(model.config)
    frames = getattr(model.config, "num_frames", 4)
    if "grid_thw" in takes:  # the patches of three images, one after the other
        side, time = getattr(model.config, "patch_size", 8), getattr(model.config, "temporal_patch_size", 1)
        grid = torch.tensor([[1, 4, 4], [1, 8, 4], [1, 4, 4]])
        rest = {"merge_sizes": torch.tensor([1, 1, 1])} if "merge_sizes" in takes else {}
        first = next(iter(takes))
        return [{first: torch.randn(64, *shape, generator=generator), "grid_thw": grid, **rest} for shape in
                ((time * channels * side * side,), (channels, side, side), (channels * side * side,))]
    if "spatial_shapes" in takes:
        side = model.config.vision_config.patch_size if hasattr(model.config, "vision_config") else \
            model.config.patch_size
        return [{"pixel_values": torch.randn(BATCH, 16, channels * side * side, generator=generator),
                 "pixel_attention_mask": (torch.arange(16) < torch.tensor([[16], [12], [8]])).long(),
                 "spatial_shapes": torch.tensor([[4, 4], [3, 4], [2, 4]])}]
    if "pixel_values" in takes:
        return [{"pixel_values": torch.randn(BATCH, *shape, generator=generator)} for shape in
                ((channels, height, width), (frames, channels, height, width), (2, channels, 32, 32),
                 (1, channels, height, width), (channels, 64, 64))]
    if "pixel_values_videos" in takes:
        frames = getattr(model.config, "frames_per_clip", None) or getattr(model.config, "num_frames", 4)
        return [{"pixel_values_videos": torch.randn(BATCH, frames, channels, height, width, generator=generator)}]
    return []


def sound_inputs(model, takes):
    generator = torch.Generator().manual_seed(1)
    made = model.config
    given = []
    if "input_values" in takes:
        for shape in ((BATCH, 4000), (BATCH, 1, 4000), (BATCH, getattr(made, "max_length", 1), 128)):
            given.append({"input_values": torch.randn(*shape, generator=generator)})
            if "attention_mask" in takes and len(shape) == 2:
                given[-1]["attention_mask"] = (torch.arange(4000) < 4000 * SOUND_LENGTHS).long()
    if "input_features" in takes:
        bins = next((getattr(c, n) for c in (made, *sub_configs(made)) for n in
                     ("num_mel_bins", "feature_projection_input_dim", "input_feat_size", "n_mels", "mel_dim",
                      "input_dim")
                     if getattr(c, n, None)), 80)
        for frames in (64, 128, 3000):
            for shape in ((BATCH, frames, bins), (BATCH, bins, frames)):
                one = {"input_features": torch.randn(*shape, generator=generator)}
                for mask in ("attention_mask", "input_features_mask"):
                    if mask in takes:
                        one[mask] = (torch.arange(frames) < frames * SOUND_LENGTHS).long()
                        if mask != "attention_mask":
                            one[mask] = one[mask].bool()
                given.append(one)
    if "past_values" in takes:
        given.append({"past_values": torch.randn(BATCH, getattr(made, "context_length", 32),
                                                 getattr(made, "num_input_channels", 1), generator=generator)})
    return given


def first_that_runs(model):
    """The first of the inputs that the model accepts, and its output."""
    why = NotMade("no inputs known")
    for given in inputs(model):
        try:
            return given, outputs(model, given)
        except Exception as error:
            why = why if why.__cause__ else because(f"inputs {', '.join(given)}", error)  # the likeliest tell most
    raise why


def because(what, error):
    why = NotMade(f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    why.__cause__ = error
    return why


def judged(given, shape):
    """Which positions of an output are not padding, where its second axis is one of positions; else None."""
    masks = [mask for name, mask in given.items() if name.endswith("mask") and mask.dim() == 2]
    for mask in masks:
        if shape[:2] == mask.shape:
            return mask.bool()
    if masks and len(shape) >= 3 and shape[0] == BATCH and any(mask.shape[1] > 2 * LENGTH for mask in masks):
        # Frames that a sound was cut into: the last one may reach into the padding.
        return torch.arange(shape[1]) < (SOUND_LENGTHS * shape[1]).floor() - (SOUND_LENGTHS < 1).int()
    return None


def outputs(model, given):
    """Every floating tensor that the model returns, in order, with its name."""
    def flat(value, name):
        if isinstance(value, torch.Tensor):
            return [(name, value.detach())] if value.is_floating_point() else []
        if isinstance(value, dict):
            value = list(value.items())
        elif isinstance(value, (list, tuple)):
            value = [(str(i), item) for i, item in enumerate(value)]
        else:
            return []
        return [pair for key, item in value for pair in flat(item, f"{name}.{key}")]

    torch.manual_seed(2)  # for models that draw numbers
    with torch.no_grad(), quiet():
        return flat(model(**given), "")
