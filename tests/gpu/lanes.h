/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Lanes: every kind of stream on which a program can submit work. Each player of the stream matrix has two sets of
 * them, one for the old owners of blocks and one for the new owners. With common lanes the work of a new owner would
 * queue behind that of an old owner, which would hide early reuse. Only the legacy stream is common to all.
 */

#include "gpu.h"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

enum lane_kind {
	LANE_LEGACY,
	LANE_PER_THREAD,
	LANE_BLOCKING,
	LANE_NONBLOCKING,
	LANE_HIGH,
	LANE_OTHER_THREAD, /* the per-thread stream of another host thread */
	LANE_GRAPH,
	N_LANE_KINDS
};

static const char *const lane_names[N_LANE_KINDS] = {
	"legacy",
	"per-thread",
	"blocking",
	"nonblocking",
	"high-priority",
	"other-thread",
	"graph",
};

/* A thread that submits one job at a time; the caller waits until the job is submitted. */
struct helper {
	helper() : thread([this] { loop(); })
	{
	}

	~helper()
	{
		run(nullptr);
		thread.join();
	}

	void run(std::function<void()> work)
	{
		std::unique_lock<std::mutex> lock(mutex);

		job = work;
		has_job = true;
		changed.notify_all();
		changed.wait(lock, [this] { return !has_job; });
	}

	void loop()
	{
		std::unique_lock<std::mutex> lock(mutex);
		bool is_last = false;

		CHECK(cudaSetDevice(0));
		while (!is_last) {
			changed.wait(lock, [this] { return has_job; });
			is_last = !job;
			if (job)
				job();
			has_job = false;
			changed.notify_all();
		}
	}

	std::mutex mutex;
	std::condition_variable changed;
	std::function<void()> job;
	bool has_job = false;
	std::thread thread; /* the last member: the thread uses all others from its start */
};

struct lane {
	enum lane_kind kind;
	cudaStream_t stream;
	std::unique_ptr<helper> other;
	cudaGraphExec_t graph;
	cudaGraphNode_t node;
};

static inline void lane_submit(struct lane *lane, std::function<void(cudaStream_t)> work)
{
	cudaStream_t stream = lane->stream;

	if (lane->other)
		lane->other->run([&] { work(stream); });
	else
		work(stream);
}

static inline cudaStream_t lane_stream_new(enum lane_kind kind)
{
	int lowest, highest;
	cudaStream_t stream;

	if (kind == LANE_LEGACY)
		return cudaStreamLegacy;
	if (kind == LANE_PER_THREAD || kind == LANE_OTHER_THREAD)
		return cudaStreamPerThread;
	CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
	CHECK(cudaStreamCreateWithPriority(&stream, kind == LANE_BLOCKING ? cudaStreamDefault : cudaStreamNonBlocking,
		kind == LANE_HIGH ? highest : lowest));
	return stream;
}

/* Makes a graph of one kernel; its arguments are set before each launch. */
static inline void lane_graph_init(struct lane *lane, const cudaKernelNodeParams *params)
{
	cudaGraph_t graph;

	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddKernelNode(&lane->node, graph, nullptr, 0, params));
	CHECK(cudaGraphInstantiate(&lane->graph, graph, 0));
}

static inline void lane_init(struct lane *lane, enum lane_kind kind)
{
	lane->kind = kind;
	lane->stream = lane_stream_new(kind);
	if (kind == LANE_OTHER_THREAD)
		lane->other.reset(new helper);
}

/* True for streams that wait for the legacy stream, and for which the legacy stream waits. */
static inline bool lane_is_blocking(const struct lane *lane)
{
	return lane->kind == LANE_PER_THREAD || lane->kind == LANE_OTHER_THREAD || lane->kind == LANE_BLOCKING;
}

/*
 * True if CUDA itself runs earlier work of the older lane before later work of the newer one, so that early reuse
 * between them is harmless.
 */
static inline bool lane_is_ordered(const struct lane *older, const struct lane *newer)
{
	bool is_older_legacy = older->kind == LANE_LEGACY;
	bool is_newer_legacy = newer->kind == LANE_LEGACY;

	if (is_older_legacy || is_newer_legacy)
		return (is_older_legacy || lane_is_blocking(older)) && (is_newer_legacy || lane_is_blocking(newer));
	return older->kind == LANE_PER_THREAD && newer->kind == LANE_PER_THREAD;
}
