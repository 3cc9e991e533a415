/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ipc_peer.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECTION_SECONDS = 40 };

#define FUNCTION(name, parameters) CUresult(*name) parameters;
FUNCTIONS(FUNCTION)
#undef FUNCTION

CUcontext primary;

void print_answer(const char *question, const char *format, ...)
{
	va_list args;

	printf("ipc.%s: ", question);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

void check(int r, const char *what)
{
	if (r == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: error %d\n", what, r);
	fflush(stdout);
	_Exit(1);
}

static bool load(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	bool is_complete = driver;

#define FUNCTION(name, parameters)                              \
	*(void **)&name = driver ? dlsym(driver, #name) : NULL; \
	is_complete = is_complete && name;
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	return is_complete;
}

static void start(CUdevice device)
{
	alarm(SECTION_SECONDS);
	check(!load(), "the driver's functions");
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&primary, device));
	CHECK(cuCtxSetCurrent(primary));
}

struct request {
	enum op op;
	int slot;
	size_t n; /* bytes, an offset, a value */
};

static int to_exporter, from_exporter;

static void transfer(ssize_t moved, size_t bytes)
{
	check(moved != (ssize_t)bytes, "the other process");
}

static void serve_one(const struct request *request, struct reply *reply)
{
	static CUdeviceptr slots[SLOTS];
	CUdeviceptr *ptr = &slots[request->slot], opened;
	uint32_t word = 0;

	switch (request->op) {
	case ALLOC:
		reply->result = cuMemAlloc_v2(ptr, request->n);
		break;
	case ALLOC_ASYNC:
		reply->result = cuMemAllocAsync(ptr, request->n, NULL);
		break;
	case ALLOC_MANAGED:
		reply->result = cuMemAllocManaged(ptr, request->n, ATTACH_GLOBAL);
		break;
	case FREE:
		reply->result = cuMemFree_v2(*ptr);
		break;
	case HANDLE:
		reply->result = cuIpcGetMemHandle(&reply->handle, *ptr + request->n);
		break;
	case FILL:
		reply->result = cuMemsetD32_v2(*ptr, (unsigned)request->n, 64);
		cuCtxSynchronize();
		break;
	case WORD:
		reply->result = cuMemcpyDtoH_v2(&word, *ptr, sizeof(word));
		reply->value = word;
		return;
	case BUFFER_ID:
		reply->result = cuPointerGetAttribute(&reply->value, CU_POINTER_ATTRIBUTE_BUFFER_ID, *ptr);
		return;
	case SELF_OPEN:
		reply->result = cuIpcGetMemHandle(&reply->handle, *ptr);
		if (!reply->result)
			reply->result = cuIpcOpenMemHandle_v2(&opened, reply->handle, (unsigned)request->n);
		break;
	case QUIT:
		_exit(0);
	}
	reply->value = *ptr;
}

static void serve(int in, int out)
{
	struct request request;

	start(0);
	while (read(in, &request, sizeof(request)) == sizeof(request)) {
		struct reply reply = {0};

		serve_one(&request, &reply);
		transfer(write(out, &reply, sizeof(reply)), sizeof(reply));
	}
	_exit(0);
}

struct reply ask(enum op op, int slot, size_t n)
{
	struct request request = {op, slot, n};
	struct reply reply = {0};

	transfer(write(to_exporter, &request, sizeof(request)), sizeof(request));
	transfer(read(from_exporter, &reply, sizeof(reply)), sizeof(reply));
	return reply;
}

void end_exporter(void)
{
	struct request request = {QUIT, 0, 0};
	char byte;

	transfer(write(to_exporter, &request, sizeof(request)), sizeof(request));
	check(read(from_exporter, &byte, 1) != 0, "the exporter's end");
}

static pid_t start_exporter(int *to, int *from)
{
	int there[2], back[2];
	pid_t pid;

	check(pipe(there) || pipe(back), "pipe");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(there[1]);
		close(back[0]);
		serve(there[0], back[1]);
	}
	close(there[0]);
	close(back[1]);
	*to = there[1];
	*from = back[0];
	return pid;
}

void run_section(void (*section)(void), const char *name)
{
	pid_t exporter = start_exporter(&to_exporter, &from_exporter), importer = fork();
	int status = 0;

	if (importer == 0) {
		start(0);
		section();
		fflush(stdout);
		_exit(0);
	}
	waitpid(importer, &status, 0);
	close(to_exporter);
	close(from_exporter);
	if (status)
		print_answer(name, "ended with status %#x", (unsigned)status);
	waitpid(exporter, NULL, 0);
}
