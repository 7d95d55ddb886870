# mypy: ignore-errors
"""Stages of a user's own as tests measure and run them: uneven, float64, from whole numbers to a
loss.
"""

import torch
from torch import nn

WIDTH, WORDS, ROWS = 6, 11, 3


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return nn.functional.cross_entropy(
            self.out(x), torch.arange(len(x), device=x.device) % WORDS
        )


def stage(stage, stages, device):
    """An embedding first, one more layer in each stage, and the loss last."""
    print("a stage of the user's")  # goes to standard error
    layers = [nn.Embedding(WORDS, WIDTH)] if stage == 0 else []
    for _ in range(stage + 1):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    if stage == stages - 1:
        layers.append(Loss())
    example = (
        torch.arange(ROWS) % WORDS if stage == 0 else torch.randn(ROWS, WIDTH, dtype=torch.float64)
    )
    return nn.Sequential(*layers).double().to(device), example.to(device)


def own(stage, stages, device):
    """The same with functions of the user's own for every kind of op."""
    module, example = globals()["stage"](stage, stages, device)

    def backward(x, out, grad):
        torch.autograd.backward([out], [grad])
        return x.grad

    def backward_input(x, out, grad):
        """Both gradients at once; those of the parameters are added in W."""
        weights = list(module.parameters())
        wanted = ([x] if x.requires_grad else []) + weights
        found = list(torch.autograd.grad([out], wanted, [grad]))
        return (found.pop(0) if x.requires_grad else None), (weights, found)

    def backward_weight(saved):
        for weight, gradient in zip(*saved, strict=True):
            weight.grad = gradient if weight.grad is None else weight.grad + gradient

    def pair(x, other):
        other()
        return module(x)

    functions = {"F": module, "B": backward, "I": backward_input, "W": backward_weight, "FB": pair}
    return {"module": module, **functions}, example


def raises(stage, stages, device):
    module, example = globals()["stage"](stage, stages, device)

    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("no such layer")

    return (Broken() if stage == 1 else module), example


def fails_at_once(stage, stages, device):
    raise KeyError("weights")


def exits(stage, stages, device):
    raise SystemExit(3)


def returns_a_module_only(stage, stages, device):
    return nn.Linear(2, 2)


def returns_no_module(stage, stages, device):
    return [1, 2], torch.ones(2)


def does_not_chain(stage, stages, device):
    return nn.Linear(4, 5), torch.randn(2, 4)


def has_no_gradient(stage, stages, device):
    module = nn.Linear(4, 4)
    return module.requires_grad_(stage != 0), torch.randn(2, 4)


class Cut(nn.Linear):
    def forward(self, x):
        return super().forward(x.detach())


def is_cut(stage, stages, device):
    return Cut(4, 4), torch.randn(2, 4)


def half_a_split(stage, stages, device):
    return {"module": nn.Linear(4, 4), "I": print}, torch.randn(2, 4)


def unknown_kind(stage, stages, device):
    return {"module": nn.Linear(4, 4), "BW": print}, torch.randn(2, 4)


def two_outputs(stage, stages, device):
    return nn.LSTM(4, 4), torch.randn(2, 4)


class Two(nn.Module):
    """Takes and returns two tensors of different shapes, and uses one weight twice."""

    def __init__(self, last):
        super().__init__()
        self.layer, self.last = nn.Linear(WIDTH, WIDTH), last

    def forward(self, x, y):
        x = torch.tanh(self.layer(x))
        y = y + self.layer(x).mean(0)
        return (x.mean() + y.mean()) if self.last else (x, y)


class Words(nn.Module):
    """Whole numbers and a mask in, two tensors out; the embedding is also the head of the last
    stage.
    """

    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, words, mask):
        x = self.table(words) * mask[:, None]
        return x, x.mean(0)


class Head(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, x, y):
        return nn.functional.cross_entropy(
            (x + y) @ self.table.weight.T, torch.arange(len(x)) % WORDS
        )


def several(stage, stages, device):
    """Tied embeddings at both ends, two tensors between stages."""
    between = torch.randn(ROWS, WIDTH, dtype=torch.float64), torch.randn(WIDTH, dtype=torch.float64)
    if stage == 0:
        return Words(nn.Embedding(WORDS, WIDTH)).double(), (torch.arange(ROWS), torch.ones(ROWS))
    if stage == stages - 1:
        return Head(nn.Embedding(WORDS, WIDTH)).double(), between
    return Two(False).double(), between


def several_dtypes(stage, stages, device):
    kind = torch.float64 if stage else torch.float32
    return Two(stage == stages - 1), (torch.randn(ROWS, WIDTH), torch.randn(WIDTH, dtype=kind))


class Mirrored:
    """A message of which the opposite is on the wire."""

    def __init__(self, work, tensor=None):
        self.work, self.tensor = work, tensor

    def wait(self):
        self.work.wait()
        if self.tensor is not None:
            self.tensor.neg_()


def handled(stage, stages, device):
    """The same with messages and steps of FSDP of the user's: without either, gradients are wrong
    or no numbers.

    Weights are there between UNSHARD and RESHARD only; REDUCE_GRAD doubles the gradients, for two
    replicas.
    """
    module, example = globals()["stage"](stage, stages, device)
    whole = [weight.data.clone() for weight in module.parameters()]

    def send(tensor, peer, group):
        return Mirrored(torch.distributed.isend(-tensor, peer, group))

    def receive(buffer, peer, group):
        return Mirrored(torch.distributed.irecv(buffer, peer, group), buffer)

    def blocking(tensor, peer, group):
        torch.distributed.send(-tensor, peer, group)

    def gather():
        for weight, value in zip(module.parameters(), whole, strict=True):
            weight.data.copy_(value)

    def free():
        for weight in module.parameters():
            weight.data.fill_(torch.nan)

    def reduce():
        for weight in module.parameters():
            weight.grad.mul_(2)

    free()
    messages = {"SEND_F": send, "RECV_F": receive, "SEND_B": blocking, "RECV_B": receive}
    return {
        "module": module,
        **messages,
        "UNSHARD": gather,
        "RESHARD": free,
        "REDUCE_GRAD": reduce,
    }, example


def fails_to_send(stage, stages, device):
    module, example = globals()["stage"](stage, stages, device)

    def send(tensor, peer, group):
        raise OSError("no such link")

    return {"module": module, "SEND_F": send}, example
