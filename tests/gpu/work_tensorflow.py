# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Trains a small transformer in TensorFlow with changing batch sizes and lengths. Prints the speed, the losses, and the
peak of TensorFlow's own pool, which grows as needed and does not take the whole device at its start.
"""

import json
import os
import sys
import time

# TensorFlow reads these variables at its import.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import tensorflow as tf

WARM_UP, STEPS, WINDOWS = 6, 30, 3
WIDTH, HEADS, LAYERS = 512, 8, 4
SHAPES = [(8 + i % 3 * 4, 64 + i * 37 % 128) for i in range(STEPS)]
RATE = 1e-3


def weights(seed, *shape):
    return tf.Variable(tf.random.stateless_normal(shape, (seed, 1)) * shape[0] ** -0.5)


class Block:
    def __init__(self, seed):
        self.into = weights(seed, WIDTH, 3 * WIDTH)
        self.out = weights(seed + 1, WIDTH, WIDTH)
        self.up = weights(seed + 2, WIDTH, 4 * WIDTH)
        self.down = weights(seed + 3, 4 * WIDTH, WIDTH)
        self.variables = [self.into, self.out, self.up, self.down]

    def __call__(self, x):
        x = x + self.attend(normalise(x))
        return x + tf.nn.gelu(normalise(x) @ self.up) @ self.down

    def attend(self, x):
        batch, length = tf.shape(x)[0], tf.shape(x)[1]
        heads = tf.reshape(x @ self.into, (batch, length, 3, HEADS, WIDTH // HEADS))
        query, key, value = tf.unstack(tf.transpose(heads, (2, 0, 3, 1, 4)), 3)
        weight = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * (WIDTH // HEADS) ** -0.5)
        return tf.reshape(tf.transpose(weight @ value, (0, 2, 1, 3)), (batch, length, WIDTH)) @ self.out


def normalise(x):
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(tf.reduce_mean(tf.square(x - mean), axis=-1, keepdims=True) + 1e-5)


def training():
    """A step of a deterministic training, with momentum."""
    tf.random.set_seed(0)
    tf.config.experimental.enable_op_determinism()
    blocks = [Block(10 * i) for i in range(LAYERS)]
    variables = [variable for block in blocks for variable in block.variables]
    moments = [tf.Variable(tf.zeros_like(variable)) for variable in variables]

    @tf.function(input_signature=[tf.TensorSpec((None, None, WIDTH), tf.float32)])
    def train(x):
        with tf.GradientTape() as tape:
            y = x
            for block in blocks:
                y = block(y)
            loss = tf.reduce_mean(tf.square(y - x))
        for variable, moment, gradient in zip(variables, moments, tape.gradient(loss, variables)):
            moment.assign(0.9 * moment + gradient)
            variable.assign_sub(RATE * moment)
        return loss

    def step(i):
        return train(tf.random.stateless_normal((*SHAPES[i % STEPS], WIDTH), (i, 2)))

    return step


def own_peak():
    """The peak of TensorFlow's own pool, if it is in use."""
    if os.environ.get("TF_GPU_ALLOCATOR"):
        return None
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def main():
    if not tf.config.list_physical_devices("GPU"):
        raise SystemExit("Error: TensorFlow found no GPU")
    step = training()
    for i in range(WARM_UP):
        step(i)
    ms, losses = [], []
    for _ in range(WINDOWS):
        tf.test.experimental.sync_devices()
        start = time.perf_counter()
        for i in range(STEPS):
            loss = step(i)
        tf.test.experimental.sync_devices()
        ms.append((time.perf_counter() - start) / STEPS * 1e3)
        losses.append(f"{float(loss):.6f}")
    print(json.dumps({"ms": ms, "answer": " ".join(losses), "own_peak_bytes": own_peak()}), flush=True)
    sys.stdin.readline()  # the test may observe this process before it ends


if __name__ == "__main__":
    main()
