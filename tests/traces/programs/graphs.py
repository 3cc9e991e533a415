# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""A graph network in training. Each step samples a subgraph of another size around a batch of nodes, passes messages
along its edges in two layers, and propagates back.
"""

import torch

NODES, DEGREE, FEATURES, HIDDEN, CLASSES, STEPS = 200_000, 12, 96, 256, 40, 70


def sample(edges, seeds, fanout):
    """Returns the nodes reached from the seeds, and the edges among them, with new numbers."""
    picked = edges[seeds][:, :fanout]
    sources = picked.reshape(-1)
    targets = seeds.repeat_interleave(fanout)
    nodes, numbers = torch.unique(torch.cat([seeds, sources]), return_inverse=True)
    number_of = torch.empty(NODES, dtype=torch.long, device="cuda")
    number_of[nodes] = torch.arange(len(nodes), device="cuda")
    return nodes, numbers[len(seeds):], number_of[targets]


class Layer(torch.nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.own, self.near = torch.nn.Linear(n_in, n_out), torch.nn.Linear(n_in, n_out)

    def forward(self, x, sources, targets):
        total = torch.zeros_like(x).index_add(0, targets, x[sources])
        count = torch.ones(len(x), device="cuda").index_add(0, targets, torch.ones(len(targets), device="cuda"))
        return self.own(x) + self.near(total / count[:, None])


def main():
    torch.manual_seed(0)
    edges = torch.randint(NODES, (NODES, DEGREE), device="cuda")
    features, labels = torch.randn(NODES, FEATURES, device="cuda"), torch.randint(CLASSES, (NODES,), device="cuda")
    layers = torch.nn.ModuleList([Layer(FEATURES, HIDDEN), Layer(HIDDEN, CLASSES)]).to("cuda")
    optimiser = torch.optim.Adam(layers.parameters(), 1e-3)
    for step in range(STEPS):
        batch = 500 + 4000 * (step * 37 % 11) // 10
        seeds = torch.randperm(NODES, device="cuda")[:batch]
        around, _, _ = sample(edges, seeds, 4 + step % 3 * 4)
        nodes, sources, targets = sample(edges, around, 4 + step % 4 * 2)
        hidden = torch.relu(layers[0](features[nodes], sources, targets))
        loss = torch.nn.functional.cross_entropy(layers[1](hidden, sources, targets), labels[nodes])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 10 == 9:
            with torch.no_grad():
                everywhere = torch.relu(layers[0].own(features))
                print(f"graphs: step {step}, {len(nodes)} nodes, loss {float(loss):.4f}, {float(everywhere.mean()):.4f}")


main()
