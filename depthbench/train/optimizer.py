"""AdamW by parameter role, and the learning rate as a function of the step."""

from math import cos, pi

import torch
from torch import nn

from depthbench.config import Optimizer
from residuals import ROUTING_STATIC, DesignError, Role, declared


def build_optimizer(model: nn.Module, recipe: Optimizer) -> torch.optim.AdamW:
    """One group per role: decay and learning-rate multiplier are the role's.

    Raises `DesignError` for a parameter without a role.
    """

    def decays(role: Role) -> bool:
        return role.decay if recipe.decay == "by-role" else role != ROUTING_STATIC

    groups: dict[Role, list[nn.Parameter]] = {}
    for _, parameter, rule in declared(model):
        groups.setdefault(rule.role, []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "lr": recipe.learning_rate * role.lr_multiplier,
                "lr_multiplier": role.lr_multiplier,
                "weight_decay": recipe.weight_decay if decays(role) else 0.0,
            }
            for role, parameters in groups.items()
        ],
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.eps,
        fused=True,
    )


def assert_each_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Every parameter of the model is in the optimiser exactly once, and nothing else is."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    missing = [name for key, name in names.items() if key not in held]
    repeated = sorted({names.get(key, "?") for key in held if held.count(key) > 1})
    if missing or repeated or len(held) != len(names):
        raise DesignError(
            f"the optimiser must hold every parameter once: missing {missing or 'none'}, "
            f"repeated {repeated or 'none'}, foreign {len(set(held) - set(names))}"
        )


def assert_each_has_gradient(model: nn.Module) -> None:
    """After the first backward pass no parameter's gradient is None; exact zeros are fine."""
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    if without:
        raise DesignError(
            f"no gradient reaches {', '.join(without)}: use the parameter in the forward pass or "
            "do not create it"
        )


def learning_rate(step: int, steps: int, recipe: Optimizer) -> float:
    """Peak · linear warm-up, then cosine to `final_fraction` of the peak at the last step.

    `step` counts from 0; the first step already moves, at peak / warm-up steps.
    """
    warmup = max(1, round(recipe.warmup_fraction * steps))
    if step < warmup:
        return recipe.learning_rate * (step + 1) / warmup
    progress = (step + 1 - warmup) / max(1, steps - warmup)
    cosine = (1 + cos(pi * progress)) / 2
    return recipe.learning_rate * (recipe.final_fraction + (1 - recipe.final_fraction) * cosine)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Sets the rate of every group, times its role's multiplier."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_multiplier"]
