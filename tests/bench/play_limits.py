# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Training loops whose sizes vary, for the smallest memory in which each finishes (limits.py):

    play_limits.py transformer|gpt [MIB]

`transformer` trains on batches and lengths that change. `gpt` generates with a cache that grows, and trains on what it has
generated, in turns. MIB limits PyTorch's own pool; without it the environment's limit holds.
"""

import sys

import torch
from torch import nn

WIDTH, HEADS, VOCABULARY = 512, 8, 16384
STEPS, TURNS, GENERATED = 20, 4, 40


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.behind = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.forward_layer = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, cache=None):
        """cache: keys and values of the tokens before x. Returns the output, and the cache with those of x."""
        batch, length, _ = x.shape
        query, key, value = self.heads(self.before(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if cache:
            key, value = torch.cat((cache[0], key), 2), torch.cat((cache[1], value), 2)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.forward_layer(self.behind(x)), (key, value)


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.tokens, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def states(self, x, caches=None):
        found = []
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers)):
            x, cache = layer(x, cache)
            found.append(cache)
        return x, found


def train_step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def transformer():
    model = Model(6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for i in range(STEPS):
        x = torch.randn(8 + i % 3 * 4, 128 + i * 37 % 128, WIDTH, device="cuda")
        loss = train_step(optimizer, (model.states(x)[0] - x).pow(2).mean())
    return loss


@torch.no_grad()
def generate(model, tokens):
    caches, made = None, [tokens]
    for _ in range(GENERATED):
        x, caches = model.states(model.tokens(made[-1]), caches)
        made.append(model.head(x[:, -1:]).argmax(-1))
    return torch.cat(made, 1)


def gpt():
    model = Model(8).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for i in range(TURNS):
        tokens = generate(model, torch.randint(0, VOCABULARY, (8 + i % 3 * 8, 96 + i * 53 % 100), device="cuda"))
        x = model.states(model.tokens(tokens[:, :-1]))[0]
        loss = train_step(optimizer, nn.functional.cross_entropy(model.head(x).flatten(0, 1), tokens[:, 1:].flatten()))
    return loss


def main():
    torch.manual_seed(0)
    if len(sys.argv) > 2:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(int(sys.argv[2]) * 2**20 / total)
    print(f"loss {({'transformer': transformer, 'gpt': gpt}[sys.argv[1]])():.4f}")


main()
