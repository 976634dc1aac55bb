"""Registers an operator with PyTorch. torch.library.custom_op would do, but its operators drop forward-mode derivatives
without an error; an operator defined here refuses them, also where code calls torch.ops.flashtile directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch
from torch._library.autograd import Info, make_autograd_impl

from ._forward_mode import forward_mode, refuse_forward_mode

_library = torch.library.Library("flashtile", "FRAGMENT")


def operator(name: str, schema: str, kernel: Callable, fake: Callable, backward: Optional[Callable] = None,
             setup_context: Optional[Callable] = None) -> Any:
    """Defines torch.ops.flashtile.<name> and returns it. fake computes shapes alone, for tracers; backward and
    setup_context are as torch.library.register_autograd takes them."""
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    defined = getattr(torch.ops.flashtile, name).default
    autograd = make_autograd_impl(defined, Info(backward, setup_context))

    def autograd_or_refuse(keyset: Any, *arguments: Any) -> Any:
        if forward_mode(arguments):
            refuse_forward_mode()
        return autograd(keyset, *arguments)

    torch.library.register_kernel(f"flashtile::{name}", None, kernel, lib=_library)
    torch.library.register_fake(f"flashtile::{name}", fake, lib=_library)
    _library.impl(name, autograd_or_refuse, "Autograd", with_keyset=True)
    return defined


def writing_operator(name: str, schema: str, kernel: Callable) -> Any:
    """Defines torch.ops.flashtile.<name>, which writes into those arguments that its schema marks, returns nothing and
    has no gradient, and returns it."""
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.register_kernel(f"flashtile::{name}", None, kernel, lib=_library)
    torch.library.register_fake(f"flashtile::{name}", lambda *arguments: None, lib=_library)
    return getattr(torch.ops.flashtile, name).default
