/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Measures the time of an allocation and its free, in patterns of real programs. */

#include "gpu.h"

#include <thread>

static const size_t KIB = 1024, MIB = KIB * KIB, GIB = KIB * MIB;

enum {
	WINDOW = 32,
	REPEATS = 7,
	THREAD_WINDOW = 16,
	THREAD_PAIRS = 3000,
};

/* Upper limit on the bytes of a window: a window of large blocks has fewer of them. */
static const size_t WINDOW_BYTES = 16 * GIB;

/* The approximate time of a repeat; the number of pairs is chosen to match. */
static const double REPEAT_NS = 15e6;

__global__ void touch(char *p, size_t bytes)
{
	size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	if (i < bytes)
		p[i] = 1;
}

struct work {
	size_t bytes;
	std::vector<void *> window;
};

static void run_pingpong(struct work *work, int n)
{
	void *p;

	for (int i = 0; i < n; i++) {
		CHECK(cudaMalloc(&p, work->bytes));
		CHECK(cudaFree(p));
	}
}

static void run_window(struct work *work, int n)
{
	for (int i = 0; i < n; i++) {
		void **p = &work->window[(size_t)i * 7919 % work->window.size()];

		CHECK(cudaFree(*p));
		CHECK(cudaMalloc(p, work->bytes));
	}
}

static void run_batch(struct work *work, int n)
{
	for (int done = 0; done < n; done += (int)work->window.size()) {
		for (void *p : work->window)
			CHECK(cudaFree(p));
		for (void *&p : work->window)
			CHECK(cudaMalloc(&p, work->bytes));
	}
}

static void run_kernel(struct work *work, int n)
{
	void *p;

	for (int i = 0; i < n; i++) {
		CHECK(cudaMalloc(&p, work->bytes));
		touch<<<1024, 256>>>((char *)p, work->bytes);
		CHECK(cudaFree(p));
	}
	CHECK(cudaDeviceSynchronize());
}

static void run_hoisted(struct work *work, int n)
{
	for (int i = 0; i < n; i++)
		touch<<<1024, 256>>>((char *)work->window[0], work->bytes);
	CHECK(cudaDeviceSynchronize());
}

static void run_pinned(struct work *work, int n)
{
	void *p;

	for (int i = 0; i < n; i++) {
		CHECK(cudaMallocHost(&p, work->bytes));
		CHECK(cudaFreeHost(p));
	}
}

static double time_pairs(void (*run)(struct work *, int), struct work *work, int n)
{
	double start = now_ns();

	run(work, n);
	return (now_ns() - start) / n;
}

/* Returns the number of pairs that fills a repeat. The search also warms up caches. */
static int calibrate(void (*run)(struct work *, int), struct work *work)
{
	double pair;

	time_pairs(run, work, WINDOW);
	pair = time_pairs(run, work, WINDOW);
	return (int)std::min(std::max(REPEAT_NS / pair, 4.0), 20000.0) / WINDOW * WINDOW + WINDOW;
}

static double measure(void (*run)(struct work *, int), struct work *work)
{
	std::vector<double> repeats;
	int n = calibrate(run, work);

	for (int i = 0; i < REPEATS; i++)
		repeats.push_back(time_pairs(run, work, n));
	return median(repeats);
}

static void fill_window(struct work *work, size_t n)
{
	work->window.resize(n);
	for (void *&p : work->window)
		CHECK(cudaMalloc(&p, work->bytes));
}

static void empty_window(struct work *work)
{
	for (void *p : work->window)
		CHECK(cudaFree(p));
	work->window.clear();
}

static const struct pattern {
	const char *name;
	void (*run)(struct work *, int);
	bool needs_window;
} patterns[] = {
	{"pingpong", run_pingpong, false},
	{"window", run_window, true},
	{"batch", run_batch, true},
	{"kernel", run_kernel, false},
};

static void measure_sizes()
{
	static const size_t sizes[] = {512, 64 * KIB, MIB, 64 * MIB, GIB};

	for (size_t bytes : sizes)
		for (const struct pattern &pattern : patterns) {
			struct work work = {bytes, {}};

			if (pattern.needs_window)
				fill_window(&work, std::min((size_t)WINDOW, WINDOW_BYTES / bytes));
			printf("pair pattern=%s bytes=%zu ns=%.1f\n", pattern.name, bytes, measure(pattern.run, &work));
			empty_window(&work);
		}
}

static void measure_pinned()
{
	static const size_t sizes[] = {4 * KIB, MIB, 16 * MIB};

	for (size_t bytes : sizes) {
		struct work work = {bytes, {}};

		printf("pair pattern=pinned bytes=%zu ns=%.1f\n", bytes, measure(run_pinned, &work));
	}
}

static void run_one_thread()
{
	struct work work = {64 * KIB, {}};

	CHECK(cudaSetDevice(0));
	fill_window(&work, THREAD_WINDOW);
	run_window(&work, THREAD_PAIRS);
	empty_window(&work);
}

/* Measures the throughput of the process: wall time over the pairs of all threads. */
static void measure_threads()
{
	for (int n : {1, 4, 16}) {
		std::vector<double> repeats;

		for (int i = 0; i < 5; i++) {
			std::vector<std::thread> threads;
			double start = now_ns();

			for (int k = 0; k < n; k++)
				threads.emplace_back(run_one_thread);
			for (std::thread &thread : threads)
				thread.join();
			repeats.push_back((now_ns() - start) / THREAD_PAIRS / n);
		}
		printf("threads n=%d bytes=%zu ns=%.1f\n", n, 64 * KIB, median(repeats));
	}
}

/*
 * Measures a kernel on 1 GiB that is allocated in each iteration, and on 1 GiB that is allocated before the loop. The
 * repeats alternate.
 */
static void measure_loop()
{
	struct work inside = {GIB, {}}, hoisted = {GIB, {}};
	std::vector<double> a, b, ratios;
	int n = calibrate(run_kernel, &inside), m;

	fill_window(&hoisted, 1);
	m = calibrate(run_hoisted, &hoisted);
	for (int i = 0; i < 2 * REPEATS + 1; i++) {
		a.push_back(time_pairs(run_kernel, &inside, n));
		b.push_back(time_pairs(run_hoisted, &hoisted, m));
		ratios.push_back(a.back() / b.back());
	}
	empty_window(&hoisted);
	printf("loop bytes=%zu inside_ns=%.1f hoisted_ns=%.1f ratio=%.3f\n", GIB, median(a), median(b), median(ratios));
}

int main()
{
	gpu_require();
	CHECK(cudaFree(nullptr));
	measure_sizes();
	measure_pinned();
	measure_loop();
	measure_threads();
	CHECK(cudaGetLastError());
	return 0;
}
