/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * What the runtime's calls return and what they leave behind, a line "name: value" for each
 * question. Addresses and times are never printed, so that the output of a raw run and of one
 * under a pool can be compared line by line.
 */

#include "gpu.h"

#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <sys/wait.h>
#include <unistd.h>

static const size_t MIB = 1 << 20;

static void say(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const char *name, const char *format, ...)
{
	va_list args;

	printf("%s: ", name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

/* The name of a result; the runtime's memory of it is cleared. */
static const char *name_of(cudaError_t error)
{
	cudaGetLastError();
	return cudaGetErrorName(error);
}

static void *take(size_t bytes)
{
	void *p;

	CHECK(cudaMalloc(&p, bytes));
	return p;
}

static void zero_sizes()
{
	void *p = (void *)1, *h = (void *)1, *q = (void *)1;
	size_t pitch = 77;

	say("zero.malloc", "%s null=%d", name_of(cudaMalloc(&p, 0)), p == nullptr);
	say("zero.host", "%s null=%d", name_of(cudaMallocHost(&h, 0)), h == nullptr);
	say("zero.hostalloc", "%s null=%d", name_of(cudaHostAlloc(&h, 0, 0)), h == nullptr);
	say("zero.pitch_width", "%s null=%d pitch=%zu", name_of(cudaMallocPitch(&q, &pitch, 0, 8)),
		q == nullptr, pitch);
	say("zero.pitch_height", "%s null=%d", name_of(cudaMallocPitch(&q, &pitch, 8, 0)),
		q == nullptr);
	say("zero.free", "%s", name_of(cudaFree(nullptr)));
	say("zero.freehost", "%s", name_of(cudaFreeHost(nullptr)));
}

static void null_outputs()
{
	void *p;
	size_t n;

	say("null.malloc", "%s", name_of(cudaMalloc((void **)nullptr, 64)));
	say("null.malloc_zero", "%s", name_of(cudaMalloc((void **)nullptr, 0)));
	say("null.host", "%s", name_of(cudaMallocHost((void **)nullptr, 64)));
	say("null.pitch", "%s", name_of(cudaMallocPitch(&p, nullptr, 64, 64)));
	say("null.pitch_ptr", "%s", name_of(cudaMallocPitch((void **)nullptr, &n, 64, 64)));
	say("null.info", "%s", name_of(cudaMemGetInfo(nullptr, nullptr)));
	say("null.info_free", "%s", name_of(cudaMemGetInfo(nullptr, &n)));
}

static void too_big()
{
	void *p = (void *)1;

	say("big.malloc", "%s null=%d", name_of(cudaMalloc(&p, (size_t)1 << 46)), p == nullptr);
	say("big.max", "%s", name_of(cudaMalloc(&p, SIZE_MAX)));
	say("big.almost_max", "%s", name_of(cudaMalloc(&p, SIZE_MAX - 600)));
	say("big.host_max", "%s", name_of(cudaMallocHost(&p, SIZE_MAX - 600)));
	p = take(MIB);
	say("big.peek_after_success", "%s", cudaGetErrorName(cudaPeekAtLastError()));
	CHECK(cudaFree(p));
}

static void wrong_frees()
{
	static const size_t sizes[] = {512, MIB, 64 * MIB};
	int local = 0;
	void *heap = malloc(64), *h;

	for (size_t bytes : sizes) {
		std::string size = std::to_string(bytes);
		char *p = (char *)take(bytes);

		say(("free.interior." + size).c_str(), "%s", name_of(cudaFree(p + 256)));
		say(("free.as_host." + size).c_str(), "%s", name_of(cudaFreeHost(p)));
		say(("free.once." + size).c_str(), "%s", name_of(cudaFree(p)));
		say(("free.twice." + size).c_str(), "%s", name_of(cudaFree(p)));
	}
	CHECK(cudaMallocHost(&h, MIB));
	say("free.stack", "%s", name_of(cudaFree(&local)));
	say("free.heap", "%s", name_of(cudaFree(heap)));
	say("free.one", "%s", name_of(cudaFree((void *)1)));
	say("free.host_as_device", "%s", name_of(cudaFree(h)));
	say("free.host_interior", "%s", name_of(cudaFreeHost((char *)h + 64)));
	say("free.host_once", "%s", name_of(cudaFreeHost(h)));
	say("free.host_twice", "%s", name_of(cudaFreeHost(h)));
	say("free.heap_as_host", "%s", name_of(cudaFreeHost(heap)));
	free(heap);
}

static void mixed_frees()
{
	void *p;
	cudaStream_t stream;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	p = take(MIB);
	say("mixed.malloc_freeasync", "%s", name_of(cudaFreeAsync(p, stream)));
	CHECK(cudaDeviceSynchronize());
	say("mixed.freeasync_free", "%s", name_of(cudaFree(p)));
	CHECK(cudaMallocAsync(&p, MIB, stream));
	say("mixed.mallocasync_free", "%s", name_of(cudaFree(p)));
	CHECK(cudaMallocManaged(&p, MIB));
	say("mixed.managed_free", "%s", name_of(cudaFree(p)));
	CHECK(cudaMallocAsync(&p, MIB, stream));
	say("mixed.mallocasync_freeasync", "%s", name_of(cudaFreeAsync(p, stream)));
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaStreamDestroy(stream));
	say("mixed.freeasync_destroyed", "%s", name_of(cudaDeviceSynchronize()));
}

/* Every pitch from 1 to 2048, folded into one number, and some of them to look at. */
static void pitches()
{
	unsigned long long hash = 14695981039346656037ull;

	for (size_t width = 1; width <= 2048; width++) {
		size_t pitch = 0;
		void *p;

		CHECK(cudaMallocPitch(&p, &pitch, width, 3));
		hash = (hash ^ pitch) * 1099511628211ull;
		if (width == 1 || width == 513 || width == 2048)
			say(("pitch." + std::to_string(width)).c_str(), "%zu", pitch);
		CHECK(cudaMemset2D(p, pitch, 1, width, 3));
		CHECK(cudaFree(p));
	}
	say("pitch.all", "%llx", hash);
}

static bool is_near(size_t a, size_t b)
{
	return (a > b ? a - b : b - a) <= 4 * MIB;
}

static void memory_info()
{
	static const size_t sizes[] = {64 * MIB, 1024 * MIB, 8192 * MIB};
	size_t total, total_after, before, during, after;
	void *p;

	for (size_t bytes : sizes) {
		std::string size = std::to_string(bytes / MIB);

		CHECK(cudaMemGetInfo(&before, &total));
		p = take(bytes);
		CHECK(cudaMemGetInfo(&during, nullptr));
		CHECK(cudaFree(p));
		CHECK(cudaMemGetInfo(&after, &total_after));
		say(("info.drop." + size).c_str(), "%d", is_near(before, during + bytes));
		say(("info.back." + size).c_str(), "%d", is_near(before, after));
		say(("info.total." + size).c_str(), "%d", total == total_after);
	}
	say("info.total", "%zu", total);
	/* What is reported as free can be had. */
	CHECK(cudaMemGetInfo(&before, nullptr));
	say("info.most_of_free", "%s",
		name_of(cudaMalloc(&p, std::min(before / 10 * 9, (size_t)36 << 30))));
	CHECK(cudaFree(p));
}

static void alignment()
{
	static const size_t sizes[] = {1, 511, 513, 4096, MIB, MIB + 1, 33 * MIB};
	int worst = 0;

	for (size_t bytes : sizes)
		for (int i = 0; i < 8; i++) {
			void *p = take(bytes), *q = take(1);

			worst |= (uintptr_t)p % 256 != 0 || (uintptr_t)q % 256 != 0 || p == q;
			CHECK(cudaFree(q));
			CHECK(cudaFree(p));
		}
	say("align.256", "%s", worst ? "no" : "yes");
	say("align.peek", "%s", cudaGetErrorName(cudaPeekAtLastError()));
}

static const char *describe_host_pointer(const void *host, const void *base)
{
	if (!host)
		return "null";
	return host == base ? "same" : "other";
}

static void say_attributes(const char *name, const void *p, const void *base)
{
	cudaPointerAttributes a;
	cudaError_t error = cudaPointerGetAttributes(&a, p);

	if (error)
		say(name, "%s", name_of(error));
	else
		say(name, "type=%d device=%d same_device_pointer=%d host_pointer=%s", (int)a.type,
			a.device, a.devicePointer == base,
			describe_host_pointer(a.hostPointer, base));
}

static void attributes()
{
	char *p = (char *)take(8 * MIB), *small = (char *)take(512), *h;

	CHECK(cudaMallocHost((void **)&h, MIB));
	say_attributes("attributes.block", p, p);
	say_attributes("attributes.interior", p + 4096, p + 4096);
	say_attributes("attributes.small", small, small);
	say_attributes("attributes.host", h, h);
	say_attributes("attributes.host_interior", h + 100, h + 100);
	CHECK(cudaFree(p));
	CHECK(cudaFreeHost(h));
	say_attributes("attributes.freed", p, p);
	say_attributes("attributes.host_freed", h, h);
	CHECK(cudaFree(small));
}

static void host_flags()
{
	for (unsigned flags = 0; flags < 9; flags++)
		for (int again = 0; again < 2; again++) {
			std::string name = "host.flags" + std::to_string(flags) +
					   (again ? ".again" : ".first");
			void *h = nullptr, *device = nullptr;
			unsigned seen = 99;
			const char *code = name_of(cudaHostAlloc(&h, 2 * MIB + 1, flags));

			if (!h) {
				say(name.c_str(), "%s", code);
				continue;
			}
			name_of(cudaHostGetFlags(&seen, h));
			name_of(cudaHostGetDevicePointer(&device, h, 0));
			say(name.c_str(), "%s flags=%u mapped=%d aligned=%d", code, seen,
				device == h, (uintptr_t)h % 4096 == 0);
			((volatile char *)h)[2 * MIB] = 1;
			CHECK(cudaFreeHost(h));
		}
}

static void copies()
{
	static const size_t sizes[] = {1, 4097, 3 * MIB + 5, 70 * MIB};

	for (size_t bytes : sizes) {
		std::vector<unsigned char> in(bytes), out(bytes);
		void *p = take(bytes), *q = take(bytes);

		for (size_t i = 0; i < bytes; i++)
			in[i] = (unsigned char)(i * 31 + 7);
		CHECK(cudaMemcpy(p, in.data(), bytes, cudaMemcpyHostToDevice));
		CHECK(cudaMemcpy(q, p, bytes, cudaMemcpyDeviceToDevice));
		CHECK(cudaMemcpy(out.data(), q, bytes, cudaMemcpyDefault));
		say(("copy." + std::to_string(bytes)).c_str(), "%s",
			in == out ? "same" : "DIFFERENT");
		CHECK(cudaFree(p));
		CHECK(cudaFree(q));
	}
}

struct handles {
	cudaIpcMemHandle_t handle[4];
	int is_valid[4];
};

static const char *const ipc_names[] = {"whole", "middle", "small", "interior"};

/* The other process: what it finds behind the handles. */
static int import_handles()
{
	struct handles handles;

	if (fread(&handles, sizeof(handles), 1, stdin) != 1)
		return 1;
	for (int i = 0; i < 4; i++) {
		std::string name = std::string("ipc.import.") + ipc_names[i];
		void *p = nullptr;
		int word = -1;
		cudaError_t error;

		if (!handles.is_valid[i])
			continue;
		error = cudaIpcOpenMemHandle(&p, handles.handle[i], cudaIpcMemLazyEnablePeerAccess);
		if (!error)
			cudaMemcpy(&word, p, sizeof(word), cudaMemcpyDeviceToHost);
		say(name.c_str(), "%s word=%d close=%s", name_of(error), word,
			error ? "-" : name_of(cudaIpcCloseMemHandle(p)));
	}
	return 0;
}

static void ipc(const char *self)
{
	char *whole = (char *)take(512 * MIB), *middle = (char *)take(8 * MIB),
	     *small = (char *)take(512);
	char *ptrs[] = {whole, middle, small, middle + 4096};
	struct handles handles = {};
	void *pooled;
	std::string command = std::string("'") + self + "' import";
	FILE *f;

	CHECK(cudaMallocAsync(&pooled, MIB, nullptr));
	say("ipc.export.pooled", "%s", name_of(cudaIpcGetMemHandle(&handles.handle[0], pooled)));
	CHECK(cudaFreeAsync(pooled, nullptr));
	for (int i = 0; i < 4; i++) {
		int word = 111 * (i + 1);

		CHECK(cudaMemcpy(ptrs[i], &word, sizeof(word), cudaMemcpyHostToDevice));
	}
	for (int i = 0; i < 4; i++) {
		cudaError_t error = cudaIpcGetMemHandle(&handles.handle[i], ptrs[i]);

		handles.is_valid[i] = !error;
		say((std::string("ipc.export.") + ipc_names[i]).c_str(), "%s", name_of(error));
	}
	f = popen(command.c_str(), "w");
	if (f) {
		fwrite(&handles, sizeof(handles), 1, f);
		say("ipc.importer", "%d", pclose(f));
	}
	CHECK(cudaFree(whole));
	CHECK(cudaFree(middle));
	CHECK(cudaFree(small));
}

static void fork_after_init()
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		void *p = nullptr;
		cudaError_t error = cudaMalloc(&p, MIB);

		_exit(error > 255 ? 255 : (int)error);
	}
	waitpid(pid, &status, 0);
	say("fork.malloc_in_child", "exited=%d code=%d", WIFEXITED(status), WEXITSTATUS(status));
	say("fork.parent_goes_on", "%s", name_of(cudaFree(take(MIB))));
}

static void reset_with_live_blocks()
{
	void *small = take(512), *large = take(64 * MIB), *h, *p;
	int word = 5, back = 0;

	CHECK(cudaMallocHost(&h, MIB));
	CHECK(cudaFree(take(32 * MIB)));
	say("reset", "%s", name_of(cudaDeviceReset()));
	/* Before anything new is allocated, which may get the same address. */
	say("reset.free_old_small", "%s", name_of(cudaFree(small)));
	say("reset.free_old_large", "%s", name_of(cudaFree(large)));
	p = take(MIB);
	CHECK(cudaMemcpy(p, &word, sizeof(word), cudaMemcpyHostToDevice));
	CHECK(cudaMemcpy(&back, p, sizeof(back), cudaMemcpyDeviceToHost));
	say("reset.works_again", "%d", back == word);
	say("reset.free_new", "%s", name_of(cudaFree(p)));
	say("reset.large_again", "%s", name_of(cudaFree(take(256 * MIB))));
	say("reset.again", "%s", name_of(cudaDeviceReset()));
	say("reset.use_again", "%s", name_of(cudaFree(take(MIB))));
}

static void other_device()
{
	int n;
	void *p;

	CHECK(cudaGetDeviceCount(&n));
	if (n < 2)
		return;
	p = take(MIB);
	CHECK(cudaSetDevice(1));
	say("device.free_with_other_current", "%s", name_of(cudaFree(p)));
	p = take(MIB);
	say_attributes("device.attributes", p, p);
	CHECK(cudaSetDevice(0));
	say("device.free_from_first", "%s", name_of(cudaFree(p)));
}

__global__ void write_to(int *p)
{
	*p = 1;
}

/*
 * A program of its own: nothing works after an error that kills the context, and every call must
 * say so.
 */
static int fault()
{
	void *p = take(MIB), *h;

	CHECK(cudaMallocHost(&h, MIB));
	CHECK(cudaFree(take(2 * MIB)));
	write_to<<<1, 1>>>((int *)64);
	say("fault.sync", "%s", name_of(cudaDeviceSynchronize()));
	say("fault.free", "%s", name_of(cudaFree(p)));
	say("fault.malloc_cached", "%s", name_of(cudaMalloc(&p, 2 * MIB)));
	say("fault.malloc_new", "%s", name_of(cudaMalloc(&p, 512 * MIB)));
	say("fault.host_malloc", "%s", name_of(cudaMallocHost(&p, MIB)));
	say("fault.host_free", "%s", name_of(cudaFreeHost(h)));
	return 0;
}

static void *kept_for_exit;

static void free_at_exit()
{
	say("exit.free", "%s", cudaGetErrorName(cudaFree(kept_for_exit)));
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "import"))
		return import_handles();
	gpu_require();
	CHECK(cudaFree(nullptr));
	if (argc == 2 && !strcmp(argv[1], "fault"))
		return fault();
	atexit(free_at_exit);
	zero_sizes();
	null_outputs();
	too_big();
	ipc(argv[0]);
	wrong_frees();
	mixed_frees();
	pitches();
	memory_info();
	alignment();
	attributes();
	host_flags();
	copies();
	other_device();
	fork_after_init();
	reset_with_live_blocks();
	kept_for_exit = take(MIB);
	return 0;
}
