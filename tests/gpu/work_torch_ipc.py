# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Passes tensors between processes with PyTorch: one process makes tensors, and the other checks and changes them; then
they swap roles. Between rounds memory is freed and reused. Prints the number of wrong elements of each kind.
"""

import json
import sys

import torch
import torch.multiprocessing as mp

ROUNDS = 6
SHAPES = [(1,), (127,), (1000,), (64, 1024), (3, 5, 7), (1 << 20,), (5, 1 << 20), (33, 1 << 18)]
TYPES = [torch.float32, torch.int64, torch.uint8, torch.float16]


def make(turn, nth):
    """A tensor whose elements encode the round and their index."""
    count = torch.Size(SHAPES[nth]).numel()
    values = (torch.arange(count, device="cuda") * 7 + turn * 31 + nth * 5) % 101
    return values.to(TYPES[nth % len(TYPES)]).reshape(SHAPES[nth])


def wrong(tensor, turn, nth, added):
    return int((tensor.long() != make(turn, nth).long() + added).sum())


def check_and_change(tensors, turn, added):
    """Counts wrong elements, then changes all elements so that the owner can check the change."""
    found = sum(wrong(tensor, turn, nth, added) for nth, tensor in enumerate(tensors))
    for tensor in tensors:
        tensor.add_(1)
    torch.cuda.synchronize()
    return found


def views(tensors):
    """Tensors and views of tensors. The view does not begin at the first element of its tensor."""
    return [tensor.flatten()[tensor.numel() // 2 :] for tensor in tensors]


def in_child(other):
    """The child: checks received tensors, then sends its own."""
    for turn in range(ROUNDS):
        tensors, parts = other.recv()
        found = check_and_change(tensors, turn, 0)
        same = sum(int((a != b).sum()) for a, b in zip(views(tensors), parts))
        del tensors, parts
        other.send((found, same))
        other.recv()
        own_tensors = [make(turn + 50, nth) for nth in range(len(SHAPES))]
        torch.cuda.synchronize()
        other.send(own_tensors)
        other.recv()
        other.send(sum(wrong(tensor, turn + 50, nth, 1) for nth, tensor in enumerate(own_tensors)))
        del own_tensors


def exchange(other):
    """
    Counts wrong elements: in tensors that the child got, in views, in changed elements, and in tensors that it sent.
    """
    totals = dict.fromkeys(["received", "views", "changed", "returned", "changed_back"], 0)
    for turn in range(ROUNDS):
        own_tensors = [make(turn, nth) for nth in range(len(SHAPES))]
        unsent = [make(turn + 20, nth) for nth in range(len(SHAPES))]
        torch.cuda.synchronize()
        other.send((own_tensors, views(own_tensors)))
        found = other.recv()
        totals["received"] += found[0]
        totals["views"] += found[1]
        totals["changed"] += sum(wrong(tensor, turn, nth, 1) for nth, tensor in enumerate(own_tensors))
        totals["changed"] += sum(wrong(t, turn + 20, nth, 0) for nth, t in enumerate(unsent))
        del own_tensors, unsent
        other.send("send")
        tensors = other.recv()
        totals["returned"] += check_and_change(tensors, turn + 50, 0)
        del tensors
        other.send("look")
        totals["changed_back"] += other.recv()
    return totals


def main():
    mp.set_start_method("spawn")
    parent_end, child_end = mp.Pipe()
    torch.zeros(1, device="cuda")
    child = mp.Process(target=in_child, args=(child_end,), daemon=True)
    child.start()
    child_end.close()
    try:
        totals = exchange(parent_end)
        child.join(30)
        answer = "wrong: " + " ".join(f"{name} {total}" for name, total in totals.items())
        answer += f"; exit {child.exitcode}"
        ok = not any(totals.values()) and child.exitcode == 0
    except RuntimeError as error:
        answer, ok = f"refused: {str(error).splitlines()[0]}", True
        child.kill()
    print(json.dumps({"answer": answer}), flush=True)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
