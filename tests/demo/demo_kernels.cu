/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A Poisson solver with its own kernels, on the runtime API: multigrid cycles over a square grid
 * whose source changes with each time step. Every level of every cycle allocates its temporaries and
 * frees them when it returns, as library functions do that get no workspace from their caller.
 *
 * The program is built by nvcc with default options, so the runtime is linked statically. Sums are
 * computed in a fixed order, so that every run gives the same bits with any allocator.
 */

#include "demo.h"

enum {
	THREADS = 256,
	COARSEST = 7, /* inner points along an edge of the coarsest grid, which sweeps alone solve */
	COARSEST_SWEEPS = 40,
	SWEEPS = 2,
	PARTIALS_EDGE = 16,
	PARTIALS = PARTIALS_EDGE * PARTIALS_EDGE, /* partial sums, stored in a small grid */
	PROGRESS_LINES = 5,
};

static struct demo_measurements measured;

static void check(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return;
	fflush(stdout);
	fprintf(stderr, "demo: %s failed: %s\n", what, cudaGetErrorString(error));
	exit(1);
}

/* A square grid of n x n inner points, with a border of zeros around them. */
struct grid {
	float *at;
	unsigned n;
};

static size_t grid_bytes(unsigned n)
{
	return (size_t)(n + 2) * (n + 2) * sizeof(float);
}

static struct grid grid_new(unsigned n)
{
	struct grid grid = {NULL, n};
	uint64_t begin = demo_now_ns();

	check(cudaMalloc((void **)&grid.at, grid_bytes(n)), "cudaMalloc");
	measured.alloc_ns += demo_now_ns() - begin;
	measured.mallocs++;
	check(cudaMemsetAsync(grid.at, 0, grid_bytes(n)), "cudaMemsetAsync");
	return grid;
}

static void grid_free(struct grid grid)
{
	uint64_t begin = demo_now_ns();

	check(cudaFree(grid.at), "cudaFree");
	measured.alloc_ns += demo_now_ns() - begin;
	measured.frees++;
}

static float *pinned_new(size_t bytes)
{
	uint64_t begin = demo_now_ns();
	float *ptr;

	check(cudaMallocHost((void **)&ptr, bytes), "cudaMallocHost");
	measured.alloc_ns += demo_now_ns() - begin;
	measured.mallocs++;
	return ptr;
}

static void pinned_free(float *ptr)
{
	uint64_t begin = demo_now_ns();

	check(cudaFreeHost(ptr), "cudaFreeHost");
	measured.alloc_ns += demo_now_ns() - begin;
	measured.frees++;
}

/* Every kernel has one thread for each inner point. Rows and columns count from 1. */
#define POINT(grid)                                                                    \
	unsigned point = blockIdx.x * blockDim.x + threadIdx.x, stride = (grid).n + 2; \
	unsigned row = point / (grid).n + 1, column = point % (grid).n + 1;            \
	if (row > (grid).n)                                                            \
		return;                                                                \
	size_t i = (size_t)row * stride + column

/* A source and a sink that circle with time. */
__global__ void set_source(struct grid f, float time)
{
	POINT(f);
	float x = (float)column / (float)(f.n + 1), y = (float)row / (float)(f.n + 1);
	float dx = x - 0.5f - 0.25f * cosf(time), dy = y - 0.5f - 0.25f * sinf(time);
	float ex = x - 0.5f + 0.25f * cosf(time), ey = y - 0.5f + 0.25f * sinf(time);

	f.at[i] = expf(-200.f * (dx * dx + dy * dy)) - expf(-200.f * (ex * ex + ey * ey));
}

/* One damped Jacobi sweep of -laplace(u) = f, from u to v. */
__global__ void relax(struct grid v, struct grid u, struct grid f, float hh)
{
	POINT(u);
	float around = u.at[i - 1] + u.at[i + 1] + u.at[i - stride] + u.at[i + stride];

	v.at[i] = 0.2f * u.at[i] + 0.8f * 0.25f * (around + hh * f.at[i]);
}

__global__ void take_residual(struct grid r, struct grid u, struct grid f, float hh)
{
	POINT(u);
	float around = u.at[i - 1] + u.at[i + 1] + u.at[i - stride] + u.at[i + stride];

	r.at[i] = f.at[i] - (4.f * u.at[i] - around) / hh;
}

/* Full weighting; coarse point (k, l) lies on fine point (2 k, 2 l). */
__global__ void restrict_to(struct grid coarse, struct grid fine)
{
	POINT(coarse);
	unsigned wide = fine.n + 2;
	const float *p = fine.at + (size_t)2 * row * wide + 2 * column;
	const float *up = p - wide, *down = p + wide;
	float sides = p[-1] + p[1] + up[0] + down[0];
	float corners = up[-1] + up[1] + down[-1] + down[1];

	coarse.at[i] = 0.25f * p[0] + 0.125f * sides + 0.0625f * corners;
}

/* Adds the interpolated correction: a fine point has 4, 2 or 1 coarse neighbours. */
__global__ void add_correction(struct grid fine, struct grid coarse)
{
	POINT(fine);
	unsigned wide = coarse.n + 2, k = row / 2, l = column / 2;
	const float *p = coarse.at + (size_t)k * wide + l, *below = p + (row & 1) * wide;
	unsigned right = column & 1;

	fine.at[i] += 0.25f * (p[0] + p[right] + below[0] + below[right]);
}

/* Each thread sums the squares at a stride of the number of threads, in a fixed order. */
__global__ void sum_squares(float *partial, struct grid r)
{
	unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, n_threads = gridDim.x * blockDim.x;
	size_t n = (size_t)(r.n + 2) * (r.n + 2);
	float sum = 0;

	for (size_t i = thread; i < n; i += n_threads)
		sum += r.at[i] * r.at[i];
	partial[thread] = sum;
}

static unsigned blocks(struct grid grid)
{
	return (grid.n * grid.n + THREADS - 1) / THREADS;
}

static float spacing_squared(struct grid grid)
{
	return 1.f / ((float)(grid.n + 1) * (float)(grid.n + 1));
}

static void smooth(struct grid u, struct grid f, unsigned sweeps)
{
	struct grid v = grid_new(u.n);

	for (unsigned i = 0; i < sweeps; i += 2) {
		relax<<<blocks(u), THREADS>>>(v, u, f, spacing_squared(u));
		relax<<<blocks(u), THREADS>>>(u, v, f, spacing_squared(u));
	}
	grid_free(v);
}

static void multigrid_cycle(struct grid u, struct grid f)
{
	struct grid r, coarse_f, coarse_u;

	if (u.n <= COARSEST) {
		smooth(u, f, COARSEST_SWEEPS);
		return;
	}
	smooth(u, f, SWEEPS);
	r = grid_new(u.n);
	coarse_f = grid_new(u.n / 2);
	coarse_u = grid_new(u.n / 2);
	take_residual<<<blocks(u), THREADS>>>(r, u, f, spacing_squared(u));
	restrict_to<<<blocks(coarse_f), THREADS>>>(coarse_f, r);
	multigrid_cycle(coarse_u, coarse_f);
	add_correction<<<blocks(u), THREADS>>>(u, coarse_u);
	grid_free(coarse_u);
	grid_free(coarse_f);
	grid_free(r);
	smooth(u, f, SWEEPS);
}

/* Returns the Euclidean norm of the residual. */
static double residual_norm(struct grid u, struct grid f)
{
	struct grid r = grid_new(u.n), partial = grid_new(PARTIALS_EDGE - 2);
	float *host = pinned_new(PARTIALS * sizeof(float));
	double sum = 0;

	take_residual<<<blocks(u), THREADS>>>(r, u, f, spacing_squared(u));
	sum_squares<<<1, PARTIALS>>>(partial.at, r);
	grid_free(r);
	check(cudaMemcpyAsync(host, partial.at, PARTIALS * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpyAsync");
	check(cudaStreamSynchronize(0), "cudaStreamSynchronize");
	for (unsigned i = 0; i < PARTIALS; i++)
		sum += host[i];
	demo_measurements_add(&measured, (const uint32_t *)host, PARTIALS);
	pinned_free(host);
	grid_free(partial);
	return sqrt(sum);
}

/* The grid size changes with each step: adaptive codes rarely allocate the same size twice in a row. */
static unsigned level_size(unsigned largest, unsigned step)
{
	unsigned n = (largest + 1) >> (step % 3);

	return (n > 2 * COARSEST ? n : 2 * (COARSEST + 1)) - 1;
}

static double time_step(unsigned largest, unsigned step)
{
	unsigned n = level_size(largest, step);
	struct grid u = grid_new(n), f = grid_new(n);
	double before, after;

	set_source<<<blocks(f), THREADS>>>(f, 0.01f * (float)step);
	before = residual_norm(u, f);
	multigrid_cycle(u, f);
	multigrid_cycle(u, f);
	after = residual_norm(u, f);
	grid_free(f);
	grid_free(u);
	check(cudaGetLastError(), "a kernel");
	if (after < 0.1 * before)
		return after;
	fflush(stdout);
	fprintf(stderr, "demo: step %u: the residual fell only from %g to %g\n", step, before, after);
	exit(1);
}

static void print_info(unsigned device)
{
	struct cudaDeviceProp properties;

	check(cudaGetDeviceProperties(&properties, (int)device), "cudaGetDeviceProperties");
	printf("%s, %.1f GiB\n", properties.name, (double)properties.totalGlobalMem / (1 << 30));
}

int main(int argc, char **argv)
{
	struct demo_options options = {500, 10, 0, false, false};
	unsigned progress, largest;

	demo_options_read(&options, argc, argv, 4, 11, "compute on a grid with 2^N points along each edge");
	check(cudaSetDevice((int)options.device), "cudaSetDevice");
	if (options.info) {
		print_info(options.device);
		return 0;
	}
	largest = (1u << options.size) - 1;
	progress = options.steps / PROGRESS_LINES ? options.steps / PROGRESS_LINES : 1;
	check(cudaFree(NULL), "cudaFree"); /* creates the context before the measurement starts */
	demo_measurements_start(&measured);
	for (unsigned step = 0; step < options.steps; step++) {
		double residual = time_step(largest, step);

		if ((step + 1) % progress == 0) {
			printf("step %u of %u: residual %.3e\n", step + 1, options.steps, residual);
			fflush(stdout);
		}
	}
	demo_measurements_print(&measured, options.steps);
	demo_wait(&options);
	return 0;
}
