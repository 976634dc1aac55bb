"""AdamW on weights in fp32, beside a model that computes in bf16."""

import torch
from torch import nn


class AdamW:
    """Where the model's weights are narrower than fp32, the optimizer has a copy in fp32 and rounds it to the model's
    after each step: in bf16 alone most steps would be lost to rounding. fully_shard keeps such a copy itself."""

    def __init__(self, model, rate, warmup):
        self.parameters = list(model.parameters())
        self.narrow = self.parameters[0].dtype is not torch.float32
        self.wide = [nn.Parameter(p.detach().float()) for p in self.parameters] if self.narrow else self.parameters
        self.rate, self.warmup = rate, warmup
        self.adam = torch.optim.AdamW(self.wide, lr=rate, betas=(0.9, 0.95), weight_decay=0.1,
                                      fused=self.wide[0].is_cuda)

    def step(self, step):
        """Takes the gradients, clipped to norm 1, and clears them."""
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        if self.narrow:
            for wide, narrow in zip(self.wide, self.parameters):
                wide.grad, narrow.grad = narrow.grad.float(), None  # one at a time, each narrow one freed at once
        for group in self.adam.param_groups:
            group["lr"] = self.rate * min(1, (step + 1) / self.warmup)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        if self.narrow:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.wide)

    def state(self):
        return {"adam": self.adam.state_dict(), "wide": [p.detach() for p in self.wide]}

    def load(self, state):
        self.adam.load_state_dict(state["adam"])
        with torch.no_grad():
            torch._foreach_copy_(self.wide, state["wide"])
            torch._foreach_copy_(self.parameters, self.wide)
