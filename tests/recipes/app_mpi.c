/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* An MPI program with CUDA: prints its rank, the size of the device, and the sum of all ranks by MPI. */

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cudaMalloc(void **ptr, size_t bytes);
int cudaFree(void *ptr);
int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);

int main(int argc, char **argv)
{
	const char *seconds = getenv("SIMULATION_SECONDS");
	size_t free_bytes = 0, total_bytes = 0;
	int rank, sum = 0;
	void *ptr;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < 100; i++)
		if (cudaMalloc(&ptr, 1 << 20) || cudaFree(ptr))
			MPI_Abort(MPI_COMM_WORLD, 3);
	if (cudaMalloc(&ptr, 64 << 20) || cudaMemGetInfo(&free_bytes, &total_bytes))
		MPI_Abort(MPI_COMM_WORLD, 4);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d of sum %d: %zu MiB in all\n", rank, sum, total_bytes >> 20);
	fflush(stdout);
	sleep(seconds ? (unsigned)atoi(seconds) : 0);
	MPI_Finalize();
	return 0;
}
