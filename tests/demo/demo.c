/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A small model of a simulation that allocates in its time-step loop. Each step refines the mesh: it
 * allocates a number of patches of new sizes, loads boundary values from pinned memory, computes,
 * reduces, and frees the patches without waiting for the GPU, as a function does that returns. One
 * patch of each step is kept for some steps. In every 16th step a patch is written out through a
 * pinned buffer.
 *
 * The program checks all that it computes, so it notices memory that has two owners at once. It is an
 * ordinary CUDA program that allocates from the driver.
 */

#include "gpu.h"

enum {
	PATCHES_MIN = 4,
	PATCHES_MAX = 12,
	HISTORY = 16,          /* steps for which a patch is kept */
	OUTPUT_EVERY = 16,     /* steps */
	OUTPUT_WORDS = 16384,  /* at most */
	BOUNDARY_WORDS = 1024, /* words that are copied from the host */
	PROGRESS_LINES = 5,
};

/* The first marked words hold mark, the others value. The GPU counts the words that differ from value. */
struct patch {
	CUdeviceptr at;
	uint64_t words, marked;
	uint32_t value, mark;
};

struct mesh {
	struct gpu gpu;
	struct patch patches[PATCHES_MAX + 1], history[HISTORY];
	unsigned n, size_kib, step;
	uint64_t random;
	uint32_t *boundary; /* pinned */
	uint64_t *counts;   /* pinned, one for each patch */
	uint64_t held_bytes;
};

/* Returns a random number below n, by Marsaglia's xorshift. Each run has the same numbers. */
static uint64_t random_below(struct mesh *mesh, uint64_t n)
{
	mesh->random ^= mesh->random << 13;
	mesh->random ^= mesh->random >> 7;
	mesh->random ^= mesh->random << 17;
	return mesh->random % n;
}

static void patch_make(struct mesh *mesh, struct patch *patch)
{
	uint64_t words_max = (uint64_t)mesh->size_kib * 256, words_min = words_max / 8;

	patch->words = words_min + random_below(mesh, words_max - words_min + 1);
	patch->value = (uint32_t)random_below(mesh, 1u << 31);
	patch->mark = ~patch->value;
	patch->marked = random_below(mesh, patch->words / 2) + 1;
	patch->at = gpu_malloc(&mesh->gpu, patch->words * 4);
	mesh->held_bytes += patch->words * 4;
	gpu_fill(&mesh->gpu, patch->at, patch->words, patch->value);
	gpu_fill(&mesh->gpu, patch->at, patch->marked, patch->mark);
}

/* Like patch_make(), with the marked words copied from the host. */
static void patch_make_boundary(struct mesh *mesh, struct patch *patch)
{
	patch_make(mesh, patch);
	patch->marked = patch->words < BOUNDARY_WORDS ? patch->words : BOUNDARY_WORDS;
	for (unsigned i = 0; i < patch->marked; i++)
		mesh->boundary[i] = patch->mark;
	gpu_fill(&mesh->gpu, patch->at, patch->words, patch->value);
	GPU_CALL(&mesh->gpu, cuMemcpyHtoDAsync_v2, patch->at, mesh->boundary, patch->marked * 4, NULL);
}

static void patch_free(struct mesh *mesh, struct patch *patch)
{
	gpu_free(&mesh->gpu, patch->at);
	mesh->held_bytes -= patch->words * 4;
	patch->at = 0;
}

static void patch_write_out(struct mesh *mesh, const struct patch *patch)
{
	uint64_t words = patch->words < OUTPUT_WORDS ? patch->words : OUTPUT_WORDS;
	uint32_t *output = gpu_malloc_pinned(&mesh->gpu, words * 4);

	GPU_CALL(&mesh->gpu, cuMemcpyDtoHAsync_v2, output, patch->at, words * 4, NULL);
	GPU_CALL(&mesh->gpu, cuCtxSynchronize);
	demo_measurements_add(&mesh->gpu.measured, output, words);
	gpu_free_pinned(&mesh->gpu, output);
}

/* Makes new patches. The last one is the oldest kept patch, whose contents must be unchanged. */
static void mesh_refine(struct mesh *mesh)
{
	struct patch *oldest = &mesh->history[mesh->step % HISTORY];

	mesh->n = PATCHES_MIN + (unsigned)random_below(mesh, PATCHES_MAX - PATCHES_MIN + 1);
	patch_make_boundary(mesh, &mesh->patches[0]);
	for (unsigned i = 1; i < mesh->n; i++)
		patch_make(mesh, &mesh->patches[i]);
	if (!oldest->at)
		return;
	mesh->patches[mesh->n++] = *oldest;
}

/* Lets the GPU count the marked words of each patch. The counts are valid after a synchronisation. */
static void mesh_reduce(struct mesh *mesh)
{
	CUdeviceptr counts = gpu_malloc(&mesh->gpu, mesh->n * sizeof(uint64_t));

	GPU_CALL(&mesh->gpu, cuMemsetD32Async, counts, 0, mesh->n * 2, NULL);
	for (unsigned i = 0; i < mesh->n; i++) {
		const struct patch *patch = &mesh->patches[i];

		gpu_count_wrong(&mesh->gpu, patch->at, patch->words, patch->value, counts + i * sizeof(uint64_t));
	}
	GPU_CALL(&mesh->gpu, cuMemcpyDtoHAsync_v2, mesh->counts, counts, mesh->n * sizeof(uint64_t), NULL);
	gpu_free(&mesh->gpu, counts);
}

/* Keeps patch 0 and frees the others. */
static void mesh_coarsen(struct mesh *mesh)
{
	mesh->history[mesh->step % HISTORY] = mesh->patches[0];
	for (unsigned i = 1; i < mesh->n; i++)
		patch_free(mesh, &mesh->patches[i]);
}

static void mesh_verify(struct mesh *mesh)
{
	GPU_CALL(&mesh->gpu, cuCtxSynchronize);
	for (unsigned i = 0; i < mesh->n; i++) {
		const struct patch *patch = &mesh->patches[i];
		uint32_t count = (uint32_t)mesh->counts[i];

		demo_measurements_add(&mesh->gpu.measured, &count, 1);
		if (mesh->counts[i] == patch->marked)
			continue;
		fflush(stdout);
		fprintf(stderr, "demo: step %u: patch %u has %llu marked words of %llu\n", mesh->step, i,
			(unsigned long long)mesh->counts[i], (unsigned long long)patch->marked);
		exit(1);
	}
}

static void mesh_step(struct mesh *mesh)
{
	mesh_refine(mesh);
	mesh_reduce(mesh);
	if (mesh->step % OUTPUT_EVERY == 0)
		patch_write_out(mesh, &mesh->patches[0]);
	mesh_coarsen(mesh);
	mesh_verify(mesh);
}

static void mesh_run(struct mesh *mesh, unsigned steps)
{
	unsigned progress = steps / PROGRESS_LINES ? steps / PROGRESS_LINES : 1;

	mesh->boundary = gpu_malloc_pinned(&mesh->gpu, BOUNDARY_WORDS * 4);
	mesh->counts = gpu_malloc_pinned(&mesh->gpu, (PATCHES_MAX + 1) * sizeof(uint64_t));
	for (mesh->step = 0; mesh->step < steps; mesh->step++) {
		mesh_step(mesh);
		if ((mesh->step + 1) % progress == 0) {
			printf("step %u of %u: %u patches, %.1f MiB held\n", mesh->step + 1, steps, mesh->n,
				(double)mesh->held_bytes / (1 << 20));
			fflush(stdout);
		}
	}
}

static void mesh_free(struct mesh *mesh)
{
	for (unsigned i = 0; i < HISTORY; i++)
		if (mesh->history[i].at)
			patch_free(mesh, &mesh->history[i]);
	gpu_free_pinned(&mesh->gpu, mesh->counts);
	gpu_free_pinned(&mesh->gpu, mesh->boundary);
}

int main(int argc, char **argv)
{
	struct demo_options options = {.steps = 2000, .size = 1024};
	struct mesh mesh = {.random = 20261121};

	demo_options_read(&options, argc, argv, 1, 4 << 20, "size of the largest patch, in KiB");
	mesh.size_kib = options.size;
	gpu_find(&mesh.gpu, options.device);
	if (options.info) {
		gpu_print_info(&mesh.gpu);
		return 0;
	}
	gpu_open(&mesh.gpu);
	mesh_run(&mesh, options.steps);
	demo_measurements_print(&mesh.gpu.measured, options.steps);
	demo_wait(&options);
	mesh_free(&mesh);
	gpu_close(&mesh.gpu);
	return 0;
}
