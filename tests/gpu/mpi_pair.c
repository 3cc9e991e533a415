/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Two ranks of MPI exchange device memory. Each exchange uses new blocks, at addresses that earlier exchanges have used
 * and freed: a library that caches opened handles must notice. Prints one line of JSON with the number of wrong bytes.
 *
 * Usage: mpi_pair [DEVICES], under mpirun with two ranks. Rank n uses device n modulo DEVICES (default: all).
 */

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/apps/cuda_min.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { TURNS = 6, N_ANSWERS = 4 };

static const size_t sizes[] = {8, 4 * KIB, 64 * KIB + 1, MIB + 3, 4 * MIB, 24 * MIB + 5};
static const char *const names[N_ANSWERS] = {"sendrecv", "interior", "overlapped", "one_way"};
static unsigned long long wrong[N_ANSWERS];
static int rank, other;
static unsigned char *host;

static void must(int result, const char *call)
{
	if (!result)
		return;
	fprintf(stderr, "rank %d: %s: error %d\n", rank, call, result);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

#define MUST(call) must((int)(call), #call)

static unsigned char byte_at(size_t at, int from, unsigned turn)
{
	return (unsigned char)(at * 7 + (at >> 11) + (unsigned)from * 101 + turn * 13);
}

static CUdeviceptr filled(size_t bytes, unsigned turn)
{
	CUdeviceptr ptr;

	MUST(cuMemAlloc_v2(&ptr, bytes));
	for (size_t i = 0; i < bytes; i++)
		host[i] = byte_at(i, rank, turn);
	MUST(cuMemcpyHtoD_v2(ptr, host, bytes));
	return ptr;
}

static CUdeviceptr zeroed(size_t bytes)
{
	CUdeviceptr ptr;

	MUST(cuMemAlloc_v2(&ptr, bytes));
	MUST(cuMemsetD8_v2(ptr, 0, bytes));
	MUST(cuCtxSynchronize());
	return ptr;
}

/* Counts bytes that are not those of the other rank from `skipped` on. */
static unsigned long long count_wrong(CUdeviceptr ptr, size_t bytes, size_t skipped, unsigned turn)
{
	unsigned long long n = 0;

	MUST(cuMemcpyDtoH_v2(host, ptr, bytes));
	for (size_t i = 0; i < bytes; i++)
		n += host[i] != byte_at(i + skipped, other, turn);
	return n;
}

static void *as_pointer(CUdeviceptr ptr)
{
	return (void *)(uintptr_t)ptr;
}

static void exchange(int answer, size_t bytes, size_t skipped, unsigned turn)
{
	CUdeviceptr from = filled(bytes + skipped, turn), to = zeroed(bytes + skipped);

	MUST(MPI_Sendrecv(as_pointer(from + skipped), (int)bytes, MPI_BYTE, other, answer, as_pointer(to + skipped),
		(int)bytes, MPI_BYTE, other, answer, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
	wrong[answer] += count_wrong(to + skipped, bytes, skipped, turn);
	MUST(cuMemFree_v2(from));
	MUST(cuMemFree_v2(to));
}

/* Several messages are under way at once. */
static void overlap(int answer, size_t bytes, unsigned turn)
{
	enum { N = 4 };
	CUdeviceptr from[N], to[N];
	MPI_Request requests[2 * N];

	for (int i = 0; i < N; i++) {
		from[i] = filled(bytes, turn + (unsigned)i);
		to[i] = zeroed(bytes);
		MUST(MPI_Irecv(as_pointer(to[i]), (int)bytes, MPI_BYTE, other, i, MPI_COMM_WORLD, &requests[i]));
	}
	for (int i = 0; i < N; i++)
		MUST(MPI_Isend(as_pointer(from[i]), (int)bytes, MPI_BYTE, other, i, MPI_COMM_WORLD, &requests[N + i]));
	MUST(MPI_Waitall(2 * N, requests, MPI_STATUSES_IGNORE));
	for (int i = 0; i < N; i++) {
		wrong[answer] += count_wrong(to[i], bytes, 0, turn + (unsigned)i);
		MUST(cuMemFree_v2(from[i]));
		MUST(cuMemFree_v2(to[i]));
	}
}

/* Each rank frees its block as soon as MPI has finished with it, and the next message takes the same addresses. */
static void one_way(int answer, size_t bytes, unsigned turn)
{
	bool is_sender = (rank == 0) == (turn % 2 == 0);
	CUdeviceptr ptr = is_sender ? filled(bytes, turn) : zeroed(bytes);

	if (is_sender)
		MUST(MPI_Send(as_pointer(ptr), (int)bytes, MPI_BYTE, other, answer, MPI_COMM_WORLD));
	else
		MUST(MPI_Recv(as_pointer(ptr), (int)bytes, MPI_BYTE, other, answer, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
	if (!is_sender)
		wrong[answer] += count_wrong(ptr, bytes, 0, turn);
	MUST(cuMemFree_v2(ptr));
}

static void report(void)
{
	unsigned long long sums[N_ANSWERS];

	MUST(MPI_Reduce(wrong, sums, N_ANSWERS, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD));
	if (rank != 0)
		return;
	printf("{\"answer\": \"wrong:");
	for (int i = 0; i < N_ANSWERS; i++)
		printf(" %s %llu", names[i], sums[i]);
	printf("\"}\n");
	fflush(stdout);
	for (int i = 0; i < N_ANSWERS; i++)
		if (sums[i])
			exit(1);
}

int main(int argc, char **argv)
{
	int count, n_ranks;
	CUcontext ctx;
	CUdevice device;

	const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK");

	rank = local ? atoi(local) : 0;
	MUST(cuInit(0));
	MUST(cuDeviceGetCount(&count));
	if (argc > 1 && atoi(argv[1]) > 0 && atoi(argv[1]) < count)
		count = atoi(argv[1]);
	/* UCX looks for a current context when MPI starts. */
	MUST(cuDeviceGet(&device, rank % count));
	MUST(cuDevicePrimaryCtxRetain(&ctx, device));
	MUST(cuCtxSetCurrent(ctx));
	MUST(MPI_Init(&argc, &argv));
	MUST(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
	MUST(MPI_Comm_size(MPI_COMM_WORLD, &n_ranks));
	must(n_ranks != 2, "the number of ranks");
	other = 1 - rank;
	host = malloc(sizes[sizeof(sizes) / sizeof(*sizes) - 1] + MIB);
	must(!host, "malloc");
	for (unsigned turn = 0; turn < TURNS; turn++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			exchange(0, sizes[i], 0, turn);
			exchange(1, sizes[i], 256 + 4 * i, turn);
			one_way(3, sizes[i], turn);
		}
		overlap(2, MIB + 512 * turn, turn);
	}
	report();
	MUST(MPI_Finalize());
	return 0;
}
