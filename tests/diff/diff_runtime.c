/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The runtime's calls, their outputs, and the runtime's last error, which only the program's own calls may set. Built
 * with the shared and the static runtime, and with the legacy and the per-thread default stream.
 */

#include "tests/preload/app.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* Prints a result and the runtime's last error, and clears the last error. */
static void report(const char *what, cudaError_t error)
{
	cudaError_t peeked = cudaPeekAtLastError();

	printf("%s: %d, last error %d %d\n", what, error, peeked, cudaGetLastError());
}

static void *alloc(size_t bytes)
{
	void *ptr = NULL;

	APP_MUST(cudaMalloc(&ptr, bytes));
	return ptr;
}

static void zero_sizes(void)
{
	void *p = &p, *h = &h, *q = &q, *m = &m;
	size_t pitch = 77;

	report("malloc of zero bytes", cudaMalloc(&p, 0));
	report("host malloc of zero bytes", cudaMallocHost(&h, 0));
	printf("are NULL: %d %d\n", p == NULL, h == NULL);
	h = &h;
	report("host alloc of zero bytes", cudaHostAlloc(&h, 0, 0));
	report("managed memory of zero bytes", cudaMallocManaged(&m, 0, cudaMemAttachGlobal));
	report("pitch of no width", cudaMallocPitch(&q, &pitch, 0, 8));
	printf("are NULL: %d %d %d, pitch %zu\n", h == NULL, m == NULL, q == NULL, pitch);
	q = &q;
	pitch = 77;
	report("pitch of no height", cudaMallocPitch(&q, &pitch, 8, 0));
	printf("is NULL: %d, pitch %zu\n", q == NULL, pitch);
	report("async malloc of zero bytes", cudaMallocAsync(&q, 0, NULL));
	report("free of NULL", cudaFree(NULL));
	report("host free of NULL", cudaFreeHost(NULL));
	report("async free of NULL", cudaFreeAsync(NULL, NULL));
}

static void null_outputs(void)
{
	void *p;
	size_t n;

	report("malloc", cudaMalloc(NULL, 64));
	report("malloc of zero bytes", cudaMalloc(NULL, 0));
	report("host malloc", cudaMallocHost(NULL, 64));
	report("host alloc", cudaHostAlloc(NULL, 64, 0));
	report("managed", cudaMallocManaged(NULL, 64, cudaMemAttachGlobal));
	report("pitch", cudaMallocPitch(&p, NULL, 64, 64));
	report("pitch's pointer", cudaMallocPitch(NULL, &n, 64, 64));
	report("async", cudaMallocAsync(NULL, 64, NULL));
	report("info", cudaMemGetInfo(NULL, NULL));
	report("info's free", cudaMemGetInfo(NULL, &n));
	report("info's total", cudaMemGetInfo(&n, NULL));
	report("attributes", cudaPointerGetAttributes(NULL, &p));
}

static void too_big(void)
{
	static const size_t sizes[] = {(size_t)1 << 46, SIZE_MAX / 2, SIZE_MAX - 600, SIZE_MAX};
	void *p = &p;

	for (size_t i = 0; i < LENGTH(sizes); i++) {
		report("malloc of too much", cudaMalloc(&p, sizes[i]));
		printf("is NULL: %d\n", p == NULL);
		report("managed of too much", cudaMallocManaged(&p, sizes[i], cudaMemAttachGlobal));
		report("pitch of too much", cudaMallocPitch(&p, &(size_t){0}, sizes[i], 1));
	}
	report("host malloc of too much", cudaMallocHost(&p, SIZE_MAX - 600));
	printf("is NULL: %d\n", p == NULL);
	/* A call that succeeds does not clear the last error. */
	p = NULL;
	printf("fails: %d\n", cudaMalloc(&p, SIZE_MAX / 2));
	p = alloc(MIB);
	report("free after that", cudaFree(p));
	app_result("no last error remains", cudaGetLastError());
}

static void wrong_frees(void)
{
	static const size_t sizes[] = {512, MIB, 64 * MIB};
	void *heap = malloc(64), *host;
	int local = 0;

	for (size_t i = 0; i < LENGTH(sizes); i++) {
		char *p = alloc(sizes[i]);

		report("inside", cudaFree(p + 256));
		report("as pinned", cudaFreeHost(p));
		report("free", cudaFree(p));
		report("free again", cudaFree(p));
		report("async free inside", cudaFreeAsync(p + 64, NULL));
	}
	APP_MUST(cudaMallocHost(&host, MIB));
	report("stack", cudaFree(&local));
	report("heap", cudaFree(heap));
	report("1", cudaFree((void *)1));
	report("pinned", cudaFree(host));
	report("pinned inside", cudaFreeHost((char *)host + 64));
	report("pinned with cudaFreeHost", cudaFreeHost(host));
	report("pinned with cudaFreeHost again", cudaFreeHost(host));
	report("heap as pinned", cudaFreeHost(heap));
	free(heap);
}

static void mixed_frees(void)
{
	cudaStream_t streams[] = {NULL, cudaStreamPerThread, cudaStreamLegacy, NULL};
	void *p;

	APP_MUST(cudaStreamCreateWithFlags(&streams[3], cudaStreamNonBlocking));
	for (size_t i = 0; i < 3 * LENGTH(streams); i++) {
		cudaStream_t stream = streams[i % LENGTH(streams)];

		p = alloc(MIB);
		APP_MUST(cudaMemsetAsync(p, (int)i, MIB, stream));
		report("cudaFreeAsync of cudaMalloc", cudaFreeAsync(p, stream));
		APP_MUST(cudaDeviceSynchronize());
		report("cudaFree after cudaFreeAsync", cudaFree(p));
		APP_MUST(cudaMallocAsync(&p, MIB, stream));
		APP_MUST(cudaMemsetAsync(p, (int)i, MIB, stream));
		APP_MUST(cudaStreamSynchronize(stream));
		report("cudaFree of cudaMallocAsync", cudaFree(p));
		APP_MUST(cudaMallocAsync(&p, MIB, stream));
		report("cudaFreeAsync of cudaMallocAsync", cudaFreeAsync(p, stream));
		APP_MUST(cudaMallocManaged(&p, MIB, cudaMemAttachGlobal));
		report("cudaFree of managed", cudaFree(p));
	}
	report("end", cudaDeviceSynchronize());
}

/* Prints a hash of all pitches, and some of them in full. */
static void pitches(void)
{
	uint64_t hash = UINT64_C(14695981039346656037);

	for (size_t width = 1; width <= 2048; width++) {
		size_t pitch = 0;
		void *p;

		APP_MUST(cudaMallocPitch(&p, &pitch, width, 3));
		hash = (hash ^ pitch) * UINT64_C(1099511628211);
		if (width == 1 || width == 513 || width == 2048)
			printf("of %zu: %zu\n", width, pitch);
		APP_MUST(cudaFree(p));
	}
	printf("of all: %llx\n", (unsigned long long)hash);
}

static void report_attributes(const char *name, const void *p)
{
	struct cudaPointerAttributes a;
	cudaError_t error = cudaPointerGetAttributes(&a, p);

	if (error)
		report(name, error);
	else
		printf("%s: type %d, device %d, device pointer %d, host pointer %d\n", name, a.type, a.device,
			a.devicePointer == p, a.hostPointer == p);
}

static void attributes(void)
{
	for (unsigned life = 0; life < 2; life++) {
		char *p = alloc(8 * MIB), *small = alloc(512), *h;

		APP_MUST(cudaMallocHost((void **)&h, MIB));
		report_attributes("block", p);
		report_attributes("inside", p + 4096);
		report_attributes("small", small);
		report_attributes("host", h);
		report_attributes("inside host", h + 100);
		APP_MUST(cudaFree(p));
		APP_MUST(cudaFree(small));
		APP_MUST(cudaFreeHost(h));
	}
	report_attributes("stack", &(int){0});
}

static void host_flags(void)
{
	for (unsigned i = 0; i < 20; i++) {
		unsigned flags = i % 10, seen = 99;
		void *h = NULL, *device = NULL;
		char name[32];

		snprintf(name, sizeof(name), "host alloc, flags %u", flags);
		report(name, cudaHostAlloc(&h, 4 * MIB + 1, flags));
		if (!h)
			continue;
		report("its flags", cudaHostGetFlags(&seen, h));
		report("its device pointer", cudaHostGetDevicePointer(&device, h, 0));
		printf("%s gives: %u, mapped %d, aligned %d\n", name, seen, device == h, (uintptr_t)h % 4096 == 0);
		((volatile char *)h)[4 * MIB] = 1;
		APP_MUST(cudaFreeHost(h));
	}
}

static void registering(void)
{
	char *heap = aligned_alloc(4096, MIB), *h;

	memset(heap, 1, MIB);
	APP_MUST(cudaMallocHost((void **)&h, MIB));
	report("register", cudaHostRegister(heap, MIB, 0));
	report("register again", cudaHostRegister(heap, MIB, 0));
	report("free as pinned", cudaFreeHost(heap));
	report("unregister", cudaHostUnregister(heap));
	report("unregister again", cudaHostUnregister(heap));
	report("register pinned memory", cudaHostRegister(h, MIB, 0));
	report("unregister it", cudaHostUnregister(h));
	report("free", cudaFreeHost(h));
	free(heap);
}

static void copies(void)
{
	static const size_t sizes[] = {1, 4097, 3 * MIB + 5, 20 * MIB};

	for (size_t i = 0; i < LENGTH(sizes); i++) {
		size_t bytes = sizes[i];
		unsigned char *in = malloc(bytes), *out = calloc(1, bytes);
		void *p = alloc(bytes), *q = alloc(bytes);

		for (size_t k = 0; k < bytes; k++)
			in[k] = (unsigned char)(k * 31 + 7);
		APP_MUST(cudaMemcpy(p, in, bytes, cudaMemcpyHostToDevice));
		APP_MUST(cudaMemcpy(q, p, bytes, cudaMemcpyDeviceToDevice));
		APP_MUST(cudaMemcpy(out, q, bytes, cudaMemcpyDefault));
		printf("%zu bytes come back: %d\n", bytes, memcmp(in, out, bytes) == 0);
		APP_MUST(cudaFree(p));
		APP_MUST(cudaFree(q));
		free(in);
		free(out);
	}
	app_result("last error", cudaGetLastError());
}

/* Loops in which blocks are pending in each round cause no error. */
static void loop(void)
{
	enum { ROUNDS = 2000 };
	unsigned errors = 0, wrong = 0;
	cudaStream_t stream;
	unsigned char *host;

	APP_MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	for (unsigned i = 0; i < ROUNDS; i++) {
		void *p = alloc(64 * KIB + i % 7 * 4096), *q;

		APP_MUST(cudaMallocHost((void **)&host, 64 * KIB));
		APP_MUST(cudaMemsetAsync(p, (int)i, 64 * KIB, stream));
		APP_MUST(cudaFree(p));
		q = alloc(64 * KIB);
		APP_MUST(cudaMemsetAsync(q, (int)~i, 64 * KIB, stream));
		APP_MUST(cudaMemcpyAsync(host, q, 64 * KIB, cudaMemcpyDeviceToHost, stream));
		if (i % 16 == 0) {
			APP_MUST(cudaStreamSynchronize(stream));
			wrong += host[0] != (unsigned char)~i || host[64 * KIB - 1] != (unsigned char)~i;
		}
		errors += cudaPeekAtLastError() != cudaSuccess;
		APP_MUST(cudaFree(q));
		APP_MUST(cudaFreeHost(host));
	}
	printf("errors left: %u, wrong bytes: %u\n", errors, wrong);
	report("end", cudaDeviceSynchronize());
}

/* A call that succeeds does not change the last error, whether the pool or the driver serves it. */
static void left(void)
{
	enum { ROUNDS = 200 };
	unsigned n_left = 0;
	void *host = NULL, *p;

	for (unsigned i = 0; i < ROUNDS; i++) {
		if (i == ROUNDS / 2)
			app_result("wrong free", cudaFree(&p));
		p = alloc(4096 + i % 3 * 64 * KIB);
		APP_MUST(cudaMallocHost(&host, 4096));
		APP_MUST(cudaFreeHost(host));
		APP_MUST(cudaFree(p));
		n_left += cudaPeekAtLastError() == cudaErrorInvalidValue;
	}
	app_say("last error kept", "%u of %u", n_left, (unsigned)ROUNDS);
	report("end", cudaDeviceSynchronize());
}

static void *in_thread(void *unused)
{
	void *p = alloc(MIB);

	report("in another thread, wrong free", cudaFree((char *)p + 8));
	app_result("in another thread, last error", cudaPeekAtLastError());
	return p;
}

/* Each thread has its own last error. */
static void threads(void)
{
	pthread_t thread;
	void *p;

	app_result("wrong free", cudaFree(&p));
	if (pthread_create(&thread, NULL, in_thread, NULL))
		exit(71);
	pthread_join(thread, &p);
	app_result("last error", cudaPeekAtLastError());
	report("free from here", cudaFree(p));
}

static void reset(void)
{
	for (unsigned i = 0; i < 3; i++) {
		void *small = alloc(512), *large = alloc(64 * MIB), *h, *p;
		int word = 5, back = 0;

		APP_MUST(cudaMallocHost(&h, MIB));
		APP_MUST(cudaFree(alloc(32 * MIB)));
		report("reset", cudaDeviceReset());
		/* Use the old address before new allocations, which may get the same address. */
		report("free of an old small block", cudaFree(small));
		report("free of an old large block", cudaFree(large));
		report("host free of an old block", cudaFreeHost(h));
		p = alloc(MIB);
		APP_MUST(cudaMemcpy(p, &word, sizeof(word), cudaMemcpyHostToDevice));
		APP_MUST(cudaMemcpy(&back, p, sizeof(back), cudaMemcpyDeviceToHost));
		printf("works again: %d\n", back == word);
		report("free of a new block", cudaFree(p));
		report("free of a new large block", cudaFree(alloc(256 * MIB)));
	}
}

/* In a child of a process that has used CUDA, calls return errors. */
static void forked(void)
{
	int status = -1;
	void *p = alloc(MIB);
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		report("free in the child", cudaFree(p));
		report("malloc in the child", cudaMalloc(&p, MIB));
		report("host malloc in the child", cudaMallocHost(&p, MIB));
		fflush(stdout);
		_exit(3);
	}
	waitpid(child, &status, 0);
	printf("the child ended: %d %d\n", WIFEXITED(status), WEXITSTATUS(status));
	report("free in the parent", cudaFree(p));
	report("the parent allocates and frees", cudaFree(alloc(MIB)));
}

static void *kept;

static void free_at_exit(void)
{
	printf("at exit, free: %d\n", cudaFree(kept));
	printf("at exit, malloc: %d\n", cudaMalloc(&kept, MIB));
	printf("at exit, last error: %d\n", cudaGetLastError());
}

static void at_exit_before(void)
{
	if (atexit(free_at_exit))
		exit(71);
	kept = alloc(MIB);
}

static void at_exit_after(void)
{
	kept = alloc(MIB);
	if (atexit(free_at_exit))
		exit(71);
}

static void at_exit_reset(void)
{
	at_exit_before();
	report("reset", cudaDeviceReset());
}

const struct app_scenario app_scenarios[] = {
	{"zero-sizes", zero_sizes, APP_TOGETHER},
	{"null-outputs", null_outputs, APP_TOGETHER},
	{"too-big", too_big, APP_TOGETHER},
	{"wrong-frees", wrong_frees, APP_TOGETHER},
	{"mixed-frees", mixed_frees, APP_TOGETHER},
	{"pitches", pitches, APP_TOGETHER},
	{"attributes", attributes, APP_TOGETHER},
	{"host-flags", host_flags, APP_TOGETHER},
	{"registering", registering, APP_TOGETHER},
	{"copies", copies, APP_TOGETHER},
	{"loop", loop, APP_TOGETHER},
	{"left", left, APP_TOGETHER},
	{"threads", threads, APP_TOGETHER},
	{"reset", reset},
	{"fork", forked},
	{"at-exit-before", at_exit_before},
	{"at-exit-after", at_exit_after},
	{"at-exit-reset", at_exit_reset},
	{0},
};
