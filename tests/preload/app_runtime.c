/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program that uses the runtime API, built with the shared runtime and with the static one. */

#include <fcntl.h>
#include <unistd.h>

#include "app.h"

enum { ROUNDS = 200 };

static const size_t bytes = 64 * KIB;

static void loop(void)
{
	size_t wrong = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned char *host, *ptr;

		APP_MUST(cudaMalloc((void **)&ptr, bytes + i * 100));
		APP_MUST(cudaMallocHost((void **)&host, bytes));
		APP_MUST(cudaMemset(ptr, (int)i, bytes));
		APP_MUST(cudaMemcpy(host, ptr, bytes, cudaMemcpyDeviceToHost));
		for (size_t k = 0; k < bytes; k++)
			wrong += host[k] != (i & 255);
		APP_MUST(cudaFreeHost(host));
		APP_MUST(cudaFree(ptr));
	}
	printf("wrong bytes: %zu\n", wrong);
	app_result("last error", cudaGetLastError());
	app_report_driver();
}

/* Holds blocks that were allocated through the runtime, at one line. */
static void held(void)
{
	static void *kept[8];

	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < 8; i++)
			APP_MUST(cudaMalloc(&kept[i], bytes));
		if (round)
			app_pause("held");
		for (unsigned i = 0; i < 8; i++)
			APP_MUST(cudaFree(kept[i]));
	}
	printf("done\n");
}

static unsigned n_readlinks;

/* The whole process finds this function before libc's. It counts the lookups of the program's name. */
ssize_t readlink(const char *path, char *buffer, size_t size)
{
	n_readlinks++;
	return readlinkat(AT_FDCWD, path, buffer, size);
}

static void churn(unsigned rounds)
{
	void *ptr;

	while (rounds--) {
		APP_MUST(cudaMalloc(&ptr, bytes));
		APP_MUST(cudaFree(ptr));
	}
}

/* Reports how many times the name is looked up once it is known. */
static void steady(void)
{
	unsigned before;

	churn(8);
	before = n_readlinks;
	churn(ROUNDS);
	app_fact("name lookups at first", before);
	app_fact("name lookups later", n_readlinks - before);
}

/* Prints a result, and the last error that the runtime has recorded. */
static void print_error(const char *what, cudaError_t error)
{
	printf("%s: %d, last error %d\n", what, error, cudaGetLastError());
}

static void errors(void)
{
	void *ptr = &ptr, *host = &ptr;
	size_t pitch;

	print_error("free of NULL", cudaFree(NULL));
	print_error("free of the stack", cudaFree(&ptr));
	print_error("malloc of nothing", cudaMalloc(&ptr, 0));
	printf("NULL %d\n", ptr == NULL);
	print_error("malloc to nowhere", cudaMalloc(NULL, 64));
	print_error("malloc of too much", cudaMalloc(&ptr, SIZE_MAX / 2));
	printf("NULL %d\n", ptr == NULL);
	print_error("malloc", cudaMalloc(&ptr, MIB));
	print_error("free inside", cudaFree((char *)ptr + 512));
	print_error("free", cudaFree(ptr));
	print_error("free again", cudaFree(ptr));
	print_error("host malloc of nothing", cudaMallocHost(&host, 0));
	print_error("host free of NULL", cudaFreeHost(NULL));
	print_error("host free of device memory", cudaFreeHost(ptr));
	print_error("pitch of no height", cudaMallocPitch(&ptr, &pitch, 4, 0));
	print_error("pitch", cudaMallocPitch(&ptr, &pitch, 1000, 5));
	printf("pitch %zu\n", pitch);
	print_error("free", cudaFree(ptr));
	print_error("managed", cudaMallocManaged(&ptr, MIB, cudaMemAttachGlobal));
	print_error("free", cudaFree(ptr));
	print_error("bad device", cudaSetDevice(99));
}

static void mixed(void)
{
	cudaStream_t streams[] = {NULL, cudaStreamPerThread, NULL};
	void *ptr;

	APP_MUST(cudaStreamCreateWithFlags(&streams[2], cudaStreamNonBlocking));
	for (unsigned i = 0; i < 60; i++) {
		cudaStream_t stream = streams[i % LENGTH(streams)];

		APP_MUST(cudaMalloc(&ptr, MIB));
		APP_MUST(cudaMemsetAsync(ptr, (int)i, bytes, stream));
		APP_MUST(cudaFreeAsync(ptr, stream));
		APP_MUST(cudaMallocAsync(&ptr, MIB, stream));
		APP_MUST(cudaMemsetAsync(ptr, (int)i, bytes, stream));
		APP_MUST(i % 2 ? cudaFreeAsync(ptr, stream) : cudaStreamSynchronize(stream));
		if (i % 2 == 0)
			APP_MUST(cudaFree(ptr));
	}
	APP_MUST(cudaDeviceSynchronize());
	app_result("last error", cudaGetLastError());
	app_report_driver();
}

static void reset(void)
{
	for (unsigned i = 0; i < 20; i++) {
		char *ptr[8];
		char text[8];

		for (size_t k = 0; k < LENGTH(ptr); k++) {
			APP_MUST(cudaMalloc((void **)&ptr[k], MIB));
			APP_MUST(cudaMemset(ptr[k], (int)k, MIB));
		}
		for (size_t k = 0; k < LENGTH(ptr); k++)
			APP_MUST(cudaMemcpy(&text[k], ptr[k], 1, cudaMemcpyDeviceToHost));
		for (size_t k = 0; k < LENGTH(ptr); k++)
			if (text[k] != (char)k)
				app_result("wrong byte", text[k]);
		APP_MUST(cudaFree(ptr[0]));
		app_result("reset", cudaDeviceReset());
	}
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"loop", loop},
	{"held", held},
	{"steady", steady},
	{"errors", errors},
	{"mixed", mixed},
	{"reset", reset},
	{0},
};
