/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Memory that two processes share chunk by chunk (GPUPOOL_POOL=vmm). The first scenarios print the same as without the
 * library. The others need the library in both processes, and most of them the simulated driver.
 */

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app_peer.h"
#include "tests/sim/abi.h"

enum { THOUSAND = 1000, N_PARTS = 12, PART = 3, BEFORE = 1000, AFTER = 4000 };

/* Counts the descriptors of memory that the simulated driver has made. */
static int count_fds(void)
{
	DIR *entries = opendir("/proc/self/fd");
	const struct dirent *entry;
	char target[64];
	int n = 0;

	while (entries && (entry = readdir(entries)))
		n += readlinkat(dirfd(entries), entry->d_name, target, sizeof(target)) > 6 &&
		     strncmp(target, "/memfd", 6) == 0;
	if (entries)
		closedir(entries);
	return n;
}

/* The number of descriptors above `before`, once those on their way are closed. One was perhaps on its way then. */
static int count_staying(int before)
{
	int staying;

	for (int i = 0; (staying = count_fds() - before) > 0 && i < 2000; i++)
		usleep(1000);
	return staying > 0 ? staying : 0;
}

enum { FD_LIMIT = 256 };

/* Takes all descriptors of the process, and returns one of them. */
static int take_fds(struct rlimit *before)
{
	struct rlimit few;
	int fd, last = -1;

	getrlimit(RLIMIT_NOFILE, before);
	few = *before;
	few.rlim_cur = FD_LIMIT;
	setrlimit(RLIMIT_NOFILE, &few);
	while ((fd = dup(0)) >= 0)
		last = fd;
	return last;
}

static void give_fds(const struct rlimit *before)
{
	struct stat input, st;

	setrlimit(RLIMIT_NOFILE, before);
	fstat(0, &input);
	for (int fd = 3; fd < FD_LIMIT; fd++)
		if (!fstat(fd, &st) && st.st_ino == input.st_ino && st.st_dev == input.st_dev)
			close(fd);
}

/* The handle of an inner address opens at the start of the block, since callers add their own offset. */
static void interior_exporter(void)
{
	CUdeviceptr ptr[2];

	app_alloc(MIB);
	for (unsigned i = 0; i < 2; i++) {
		ptr[i] = app_alloc(i ? 5 * MIB : 64 * KIB);
		app_fill_now(ptr[i], i ? 5 * MIB : 64 * KIB, BEFORE + i);
	}
	app_put_handle(ptr[0] + 4096 + 8);
	app_put_handle(ptr[1] + 3 * MIB + 4);
	app_put_handle(ptr[1]);
	app_await();
}

static void interior_importer(void)
{
	CUdeviceptr small = app_open(app_take_handle()), ptr = app_open(app_take_handle()), base;

	app_result("wrong words in a small block", app_wrong(small, 64 * KIB, BEFORE));
	app_result("wrong words in a large block", app_wrong(ptr, 5 * MIB, BEFORE + 1));
	base = app_open(app_take_handle());
	app_result("the same address by the handle of the start", base == ptr);
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_result("close", cuIpcCloseMemHandle(small));
	app_go();
}

/* Under vmm the block is made of the memory of many others. */
static CUdeviceptr alloc_of_parts(void)
{
	CUdeviceptr ptr[2 * N_PARTS];

	for (unsigned i = 0; i < LENGTH(ptr); i++)
		ptr[i] = app_alloc(PART * MIB);
	for (unsigned i = 0; i < LENGTH(ptr); i += 2)
		APP_MUST(cuMemFree_v2(ptr[i]));
	APP_MUST(cuCtxSynchronize());
	return app_alloc(N_PARTS * PART * MIB);
}

static void parts_exporter(void)
{
	CUdeviceptr ptr = alloc_of_parts();
	int unseen = 0;

	for (unsigned i = 0; i < N_PARTS; i++)
		app_fill_now(ptr + i * PART * MIB, PART * MIB, BEFORE + i);
	app_put_handle(ptr + 7 * MIB);
	app_await();
	for (unsigned i = 0; i < N_PARTS; i++)
		unseen += app_wrong(ptr + i * PART * MIB, PART * MIB, AFTER + i);
	APP_MUST(cuMemFree_v2(ptr));
	app_put_number((uint64_t)unseen);
}

static void parts_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	CUdeviceptr ptr = app_open(handle), base = 0;
	size_t bytes = 0;

	for (unsigned i = 0; i < N_PARTS; i++)
		app_result("wrong words", app_wrong(ptr + i * PART * MIB, PART * MIB, BEFORE + i));
	for (unsigned i = 0; i < N_PARTS; i++)
		app_fill_now(ptr + i * PART * MIB, PART * MIB, AFTER + i);
	APP_MUST(cuMemGetAddressRange_v2(&base, &bytes, ptr + N_PARTS * PART * MIB - 1));
	app_result("range", base == ptr && bytes >= N_PARTS * PART * MIB);
	app_fact("maps", app_calls("cuMemImportFromShareableHandle"));
	app_go();
	app_result("importer's writes missing", (int)app_take_number());
	app_result("wrong words after the free", app_wrong(ptr, N_PARTS * PART * MIB, AFTER));
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_result("close again", cuIpcCloseMemHandle(ptr));
}

static size_t size_of(unsigned nth)
{
	return (nth % 7 + 1) * 4096;
}

static void thousand_exporter(void)
{
	static CUdeviceptr ptr[THOUSAND];

	for (unsigned i = 0; i < THOUSAND; i++) {
		ptr[i] = app_alloc(size_of(i));
		app_fill_now(ptr[i], size_of(i), BEFORE + i);
	}
	for (unsigned i = 0; i < THOUSAND; i++)
		app_put_handle(ptr[i]);
	app_await();
	for (unsigned i = 0; i < THOUSAND; i++)
		APP_MUST(cuMemFree_v2(ptr[i]));
	app_go();
	app_await();
}

static void thousand_importer(void)
{
	static CUdeviceptr ptr[THOUSAND];
	int wrong = 0, changed = 0;

	for (unsigned i = 0; i < THOUSAND; i++) {
		ptr[i] = app_open(app_take_handle());
		wrong += app_wrong(ptr[i], size_of(i), BEFORE + i);
	}
	app_go();
	app_await();
	for (unsigned i = 0; i < THOUSAND; i++) {
		changed += app_wrong(ptr[i], size_of(i), BEFORE + i);
		APP_MUST(cuIpcCloseMemHandle(ptr[i]));
	}
	app_result("wrong words", wrong);
	app_fact("words that changed after the free", (uint64_t)changed); /* the driver clears small blocks */
	app_go();
}

/*
 * The importer opens a block while a kernel of the exporter spins, and while threads of the exporter wait behind it in
 * a free and for the context. The kernel ends once the importer writes the word that it waits for.
 */
static CUdeviceptr behind;

static void *free_behind(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFree_v2(behind));
	return NULL;
}

static void *wait_behind(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuCtxSynchronize());
	return NULL;
}

static void barrier_exporter(void)
{
	CUdeviceptr flag = app_alloc(4 * MIB), other = app_alloc(4 * MIB);
	pthread_t threads[2];

	behind = app_alloc(4 * MIB);
	app_fill_now(flag, 4 * MIB, 0);
	app_fill_now(other, 4 * MIB, BEFORE);
	app_put_handle(flag);
	app_put_handle(other);
	app_spin_until(app_stream(), (const uint32_t *)(uintptr_t)flag, AFTER);
	pthread_create(&threads[0], NULL, free_behind, NULL);
	pthread_create(&threads[1], NULL, wait_behind, NULL);
	app_go();
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	app_go();
	app_await();
}

static void barrier_importer(void)
{
	CUipcMemHandle handle[2] = {app_take_handle(), app_take_handle()};
	CUdeviceptr flag, other;

	app_await();
	usleep(20000); /* the threads are probably behind the kernel by now */
	other = app_open(handle[1]);
	flag = app_open(handle[0]);
	app_result("wrong words", app_wrong(other, 4 * MIB, BEFORE));
	app_fill_now(flag, 4 * MIB, AFTER);
	app_await();
	app_result("close", cuIpcCloseMemHandle(other));
	app_result("close of the flag", cuIpcCloseMemHandle(flag));
	app_go();
}

/* Neither process keeps a descriptor of a block that it exports or opens. */
static void descriptors_exporter(void)
{
	CUdeviceptr ptr = app_alloc(4 * MIB);
	int before;

	app_put_handle(ptr);
	app_await();
	before = count_fds();
	app_go();
	app_await();
	app_put_number((uint64_t)count_staying(before));
}

static void descriptors_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	int before;

	app_result("open", app_try_open(handle));
	before = count_fds();
	app_go();
	app_await();
	for (unsigned i = 0; i < 100; i++)
		if (app_try_open(handle))
			app_result("open", 1);
	app_result("descriptors that stay", count_staying(before));
	app_go();
	app_result("descriptors that stay at the exporter's", (int)app_take_number());
}

/* Ends the child as exit() does, so that exit handlers run in it. */
static void end_child(CUresult result)
{
	exit(result ? 3 : 0);
}

static int status_of(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		exit(78);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/*
 * Both processes fork. CUDA does not survive that, so the children can only end, and must not take away what their
 * parents share: the socket, and the memory that is open.
 */
static void forks_exporter(void)
{
	CUdeviceptr ptr[2] = {app_alloc(4 * MIB), app_alloc(4 * MIB)};
	int alive[2];
	pid_t child;

	for (unsigned i = 0; i < 2; i++)
		app_fill_now(ptr[i], 4 * MIB, BEFORE + i);
	app_put_handle(ptr[0]);
	APP_MUST(pipe(alive));
	child = fork();
	if (!child) {
		CUipcMemHandle handle;
		char byte;

		close(alive[1]);
		(void)!read(alive[0], &byte, 1); /* until the parent closes the other end */
		end_child(cuIpcGetMemHandle(&handle, ptr[0]));
	}
	app_put_handle(ptr[1]);
	app_await();
	close(alive[1]);
	app_put_number((uint64_t)status_of(child));
	app_await();
}

static void forks_importer(void)
{
	CUipcMemHandle handle[2] = {app_take_handle(), app_take_handle()};
	CUdeviceptr ptr[2] = {app_open(handle[0]), app_open(handle[1])};
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		end_child(cuIpcCloseMemHandle(ptr[0]));
	app_result("a child's close", status_of(child));
	for (unsigned i = 0; i < 2; i++) {
		app_result("wrong words", app_wrong(ptr[i], 4 * MIB, BEFORE + i));
		app_result("close", cuIpcCloseMemHandle(ptr[i]));
	}
	app_go();
	app_result("an export by the exporter's child", (int)app_take_number());
	for (unsigned i = 0; i < 2; i++)
		app_result("open after the child's end", app_try_open(handle[i]));
	app_go();
}

#define KILLED_BYTES (64 * MIB)

/* A process that has a block open is killed. Here the first process exports, and the second one imports. */
static void killed_exporter(void)
{
	CUdeviceptr ptr = app_alloc(KILLED_BYTES), large;
	int before = count_fds();

	app_fill_now(ptr, KILLED_BYTES, BEFORE);
	app_put_handle(ptr);
	APP_MUST(kill((pid_t)app_take_number(), SIGKILL));
	app_peer_wait();
	app_result("importer's writes missing", app_wrong(ptr, KILLED_BYTES, AFTER));
	app_result("free", cuMemFree_v2(ptr));
	app_result("allocation of memory that includes the block's", cuMemAlloc_v2(&large, 224 * MIB));
	app_result("descriptors that stay", count_staying(before));
}

static void killed_importer(void)
{
	app_fill_now(app_open(app_take_handle()), KILLED_BYTES, AFTER);
	app_put_number((uint64_t)getpid());
	app_await();
}

static void describe(const char *what, CUdeviceptr ptr)
{
	CUmemGenericAllocationHandle handle = 0;
	uint64_t types = 7, legacy = 7;
	CUcontext ctx = NULL;

	APP_MUST(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, ptr));
	APP_MUST(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr));
	APP_MUST(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, ptr));
	app_say(what, "handle types %u, legacy %u, context %d, retain %d", (unsigned)types, (unsigned)legacy,
		ctx == app_ctx, cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr));
}

static void attributes_exporter(void)
{
	app_put_handle(app_alloc(MIB));
	app_await();
}

static void attributes_importer(void)
{
	CUdeviceptr ptr = app_open(app_take_handle());

	describe("an own block", app_alloc(4 * MIB) + MIB);
	describe("an opened block", ptr + 4096);
	app_result(
		"synchronous operations", cuPointerSetAttribute(&(unsigned){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	app_result("wrong version", app_try_open((CUipcMemHandle){"gpupool ipc 9"}));
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_go();
}

/* Another device reaches an opened block by peer access, enabled before the open or after it. */
static void peers_exporter(void)
{
	CUdeviceptr ptr[2] = {app_alloc(4 * MIB), app_alloc(4 * MIB)};

	for (unsigned i = 0; i < 2; i++) {
		app_fill_now(ptr[i], 4 * MIB, BEFORE);
		app_put_handle(ptr[i]);
	}
	app_await();
	for (unsigned i = 0; i < 2; i++)
		app_put_number((uint64_t)app_wrong(ptr[i], 4096, AFTER));
}

static void fill_by(CUcontext ctx, CUdeviceptr ptr)
{
	APP_MUST(cuCtxSetCurrent(ctx));
	app_result("fill by the other device", cuMemsetD32_v2(ptr, AFTER, 1024));
	app_result("its end", cuCtxSynchronize());
	APP_MUST(cuCtxSetCurrent(app_ctx));
}

static void peers_importer(void)
{
	CUipcMemHandle handle[2] = {app_take_handle(), app_take_handle()};
	CUdeviceptr ptr[2] = {app_open(handle[0])};
	CUcontext other;

	APP_MUST(cuDevicePrimaryCtxRetain(&other, 1));
	APP_MUST(cuCtxSetCurrent(other));
	app_result("enable", cuCtxEnablePeerAccess(app_ctx, 0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	ptr[1] = app_open(handle[1]);
	for (unsigned i = 0; i < 2; i++)
		fill_by(other, ptr[i]);
	for (unsigned i = 0; i < 2; i++)
		app_result("close", cuIpcCloseMemHandle(ptr[i]));
	app_go();
	for (unsigned i = 0; i < 2; i++)
		app_result("wrong words at the exporter's", (int)app_take_number());
}

/* From here on the scenarios need gpupool in both processes. */

static uint64_t word_of(CUipcMemHandle handle, unsigned nth)
{
	uint64_t word;

	memcpy(&word, handle.reserved + 16 + 8 * nth, sizeof(word));
	return word;
}

static int connect_to_exporter(CUipcMemHandle handle)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%.60s/%llu.%llu.sock", getenv("GPUPOOL_RUNTIME_DIR"),
		(unsigned long long)word_of(handle, 0), (unsigned long long)word_of(handle, 1));
	APP_MUST(connect(fd, (struct sockaddr *)&address, sizeof(address)));
	return fd;
}

static void ask(int fd, CUipcMemHandle handle, uint64_t nonce, uint64_t at)
{
	char line[160];
	int n = snprintf(line, sizeof(line), "chunk %llu %llu %llu %llu\n", (unsigned long long)nonce,
		(unsigned long long)word_of(handle, 3), (unsigned long long)word_of(handle, 4), (unsigned long long)at);

	APP_MUST(write(fd, line, (size_t)n) != n);
}

/* Clients ask for chunks and end before they have the answer: descriptors must not stay in the exporter. */
static void hangup_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	char line[512] = "";
	int fd;

	app_result("open", app_try_open(handle));
	app_go();
	app_await();
	for (unsigned i = 0; i < 200; i++) {
		fd = connect_to_exporter(handle);
		for (unsigned k = 0; k <= i % 16; k++)
			ask(fd, handle, word_of(handle, 2), 0);
		close(fd);
	}
	fd = connect_to_exporter(handle);
	ask(fd, handle, word_of(handle, 2) + 1, 0);
	ask(fd, handle, word_of(handle, 2), 4 * MIB);
	for (size_t n = 0;
		n + 1 < sizeof(line) && !(n > 2 && strchr(strchr(line, '\n') ? strchr(line, '\n') + 1 : "", '\n'));)
		n += (size_t)read(fd, line + n, 1);
	close(fd);
	app_result("a wrong nonce is refused", strstr(line, "\"unknown\"") != NULL);
	app_result("no chunk is passed", strstr(line, "gpupool.chunk") == NULL);
	app_result("open", app_try_open(handle));
	app_go();
	app_result("descriptors that stay at the exporter's", (int)app_take_number());
}

enum { HELD = 16, CHURNS = 300, AHEAD = 4 };

/* Allocates, exports and frees, a few rounds ahead of a client that asks for chunks of what was exported. */
static void hostile_exporter(void)
{
	CUdeviceptr ptr[HELD] = {0};
	unsigned seed = 3;
	int before = 0;

	for (unsigned i = 0; i < CHURNS; i++) {
		unsigned nth = app_random(&seed) % HELD;

		if (i >= AHEAD)
			app_await();
		if (ptr[nth])
			APP_MUST(cuMemFree_v2(ptr[nth]));
		ptr[nth] = app_alloc((app_random(&seed) % 12 + 1) << (app_random(&seed) % 2 ? 12 : 19));
		app_put_handle(ptr[nth]);
	}
	for (unsigned i = 0; i < AHEAD; i++)
		app_await();
	for (unsigned i = 0; i < HELD; i++)
		if (ptr[i])
			APP_MUST(cuMemFree_v2(ptr[i]));
	before = count_fds();
	app_go();
	app_await();
	app_put_number((uint64_t)count_staying(before));
}

/* Writes a request for the handle with some words changed, so that it is valid, refused, or no request at all. */
static void write_request(int fd, CUipcMemHandle handle, unsigned *seed)
{
	static const char *const odd[] = {"0", "-1", "x", "18446744073709551615", "18446744073709551616", "1 1", "+2"};
	uint64_t words[] = {word_of(handle, 2), word_of(handle, 3), word_of(handle, 4),
		(app_random(seed) % 4) * 2 * MIB + (app_random(seed) % 8 ? 0 : 512)};
	char line[256] = "chunk";

	for (unsigned i = 0; i < LENGTH(words); i++) {
		size_t n = strlen(line);

		if (app_random(seed) % 16 == 0)
			snprintf(line + n, sizeof(line) - n, " %s", odd[app_random(seed) % LENGTH(odd)]);
		else
			snprintf(line + n, sizeof(line) - n, " %llu",
				(unsigned long long)(words[i] + (app_random(seed) % 16 ? 0 : 1)));
	}
	strcat(line, "\n");
	APP_MUST(write(fd, line, strlen(line)) != (ssize_t)strlen(line));
}

/* Reads one answer, closes its descriptors, and returns their number. */
static unsigned read_answer(int fd, char *line, size_t size)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control;
	unsigned n_fds = 0;
	size_t n = 0;

	do {
		struct iovec part = {line + n, 1};
		struct msghdr message = {
			.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

		APP_MUST(recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != 1);
		for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
			for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
				int one;

				memcpy(&one, CMSG_DATA(c) + i * sizeof(one), sizeof(one));
				close(one);
				n_fds++;
			}
	} while (line[n++] != '\n' && n + 1 < size);
	line[n] = '\0';
	return n_fds;
}

/* Half of the clients read all of their answers; the others hang up after some. */
static void hostile_importer(void)
{
	static CUipcMemHandle handles[CHURNS];
	unsigned seed = 5, n_passed = 0, n_refused = 0, n_wrong = 0;
	char line[1024];

	for (unsigned i = 0; i < CHURNS; i++) {
		unsigned n_requests = app_random(&seed) % 6, n_read = i % 2 ? n_requests : n_requests / 2;
		int fd;

		handles[i] = app_take_handle();
		fd = connect_to_exporter(handles[i]);
		for (unsigned k = 0; k < n_requests; k++)
			write_request(fd, handles[i - app_random(&seed) % (i + 1) % HELD], &seed);
		for (unsigned k = 0; k < n_read; k++) {
			unsigned n_fds = read_answer(fd, line, sizeof(line));
			bool is_passed = strstr(line, "\"gpupool.chunk/1\"") != NULL;

			n_passed += is_passed;
			n_refused += strstr(line, "\"gpupool.error/1\"") != NULL;
			n_wrong += n_fds != is_passed;
		}
		close(fd);
		app_go();
	}
	app_result("chunks were passed", n_passed > 50);
	app_result("requests were refused", n_refused > 50);
	app_result("answers with a wrong number of descriptors", (int)n_wrong);
	app_await();
	app_go();
	app_result("descriptors that stay at the exporter's", (int)app_take_number());
}

static void fault(const char *spec)
{
	bool (*inject)(const char *) = (bool (*)(const char *))dlsym(RTLD_DEFAULT, "simgpu_fault");

	if (inject && !inject(spec))
		app_must(-1, spec);
}

/* Makes the nth call from now on fail. */
static void fault_nth(const char *function, unsigned nth, unsigned code)
{
	char spec[64];

	snprintf(spec, sizeof(spec), "%s:%llu=%u", function, (unsigned long long)app_calls(function) + nth, code);
	fault(spec);
}

/* Calls that fail: the nth from now on, which is in the middle of an open. */
static const struct {
	const char *function;
	unsigned nth, code;
} failing[] = {
	{"cuMemImportFromShareableHandle", 1, 2},
	{"cuMemImportFromShareableHandle", 2, 2},
	{"cuMemAddressReserve", 1, 2},
	{"cuMemMap", 1, 2},
	{"cuMemMap", 2, 2},
	{"cuMemSetAccess", 1, 101},
};

static int open_failing(CUipcMemHandle handle, unsigned nth)
{
	int result;

	fault_nth(failing[nth].function, failing[nth].nth, failing[nth].code);
	result = app_try_open(handle);
	fault(NULL);
	return result;
}

/* A driver call of the importer fails in the middle: nothing stays mapped, and the next open or close works. */
static void faults_exporter(void)
{
	CUdeviceptr ptr = alloc_of_parts();

	app_fill_now(ptr, N_PARTS * PART * MIB, BEFORE);
	app_put_handle(ptr);
	app_await();
}

static void faults_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	CUdeviceptr ptr;

	app_result("open", app_try_open(handle));
	for (unsigned i = 0; i < LENGTH(failing); i++) {
		int before = count_fds();

		app_result(failing[i].function, open_failing(handle, i));
		app_result("descriptors that stay", count_staying(before));
	}
	/* The two arenas of this process keep theirs, and one of the counted calls failed. */
	app_result("reservations that stay",
		(int)app_calls("cuMemAddressReserve") - (int)app_calls("cuMemAddressFree") - 3);
	ptr = app_open(handle);
	fault_nth("cuMemUnmap", 1, 304);
	app_result("close that the driver refuses", cuIpcCloseMemHandle(ptr));
	fault(NULL);
	app_result("wrong words", app_wrong(ptr, N_PARTS * PART * MIB, BEFORE));
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_go();
}

/* The exporter's driver cannot export, or the exporter has no descriptor left. */
static void refuses_exporter(void)
{
	CUdeviceptr ptr = alloc_of_parts();
	struct rlimit before;

	app_put_handle(ptr);
	fault_nth("cuMemExportToShareableHandle", 2, 2);
	app_go();
	app_await();
	fault(NULL);
	close(take_fds(&before)); /* the server accepts a client with it */
	app_go();
	app_await();
	give_fds(&before);
	app_go();
	app_await();
	app_put_number(cuMemFree_v2(ptr));
}

static void refuses_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	struct rlimit before;

	app_await();
	app_result("open while the driver refuses", app_try_open(handle));
	app_go();
	app_await();
	app_result("open while the exporter has no descriptor", app_try_open(handle));
	app_go();
	app_await();
	take_fds(&before);
	app_result("open without a descriptor", app_try_open(handle));
	give_fds(&before);
	app_result("open", app_try_open(handle));
	app_go();
	app_result("the exporter's free", (int)app_take_number());
}

/* The exporter ends, by a signal or by itself, while its server makes a descriptor for the importer. */
static void end_in_call(unsigned nth, bool at_end, bool is_killed)
{
	CUdeviceptr ptr = alloc_of_parts();

	app_fill_now(ptr, N_PARTS * PART * MIB, BEFORE);
	app_put_handle(ptr);
	app_await();
	app_stop_nth_call("cuMemExportToShareableHandle", at_end, nth);
	app_go();
	app_await_stopped_call();
	if (is_killed)
		kill(getpid(), SIGKILL);
	exit(0);
}

static void killed_first_exporter(void)
{
	end_in_call(1, false, true);
}

static void killed_later_exporter(void)
{
	end_in_call(2, true, true);
}

static void exits_exporter(void)
{
	end_in_call(2, true, false);
}

/* Memory that is open stays open. Of the block that could not be opened nothing stays. */
static void ended_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	CUdeviceptr ptr = app_open(handle), again;
	int before;

	app_result("close", cuIpcCloseMemHandle(ptr));
	app_go();
	app_await();
	before = count_fds();
	app_result("open", app_try_open(handle));
	app_result("open by the older function", cuIpcOpenMemHandle(&again, handle, LAZY));
	app_result("descriptors that stay", count_staying(before));
	app_result("reservations that stay",
		(int)app_calls("cuMemAddressReserve") - (int)app_calls("cuMemAddressFree") - 2);
	app_peer_wait();
}

/* Memory of a second device, opened in a context of each device. */
static void devices_exporter(void)
{
	CUcontext second;
	CUdeviceptr ptr;

	APP_MUST(cuDevicePrimaryCtxRetain(&second, 1));
	APP_MUST(cuCtxSetCurrent(second));
	ptr = app_alloc(4 * MIB);
	APP_MUST(cuMemsetD32_v2(ptr, BEFORE, MIB));
	APP_MUST(cuCtxSynchronize());
	app_put_handle(ptr);
	app_await();
}

static void devices_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	CUcontext second;

	APP_MUST(cuDevicePrimaryCtxRetain(&second, 1));
	for (int i = 0; i < 4; i++) {
		int device = -1, wrong = 0;
		uint32_t words[64];
		CUdeviceptr ptr;

		APP_MUST(cuCtxSetCurrent(i % 2 ? second : app_ctx));
		ptr = app_open(handle);
		APP_MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
		app_result("device", device);
		app_result("copy", cuMemcpyDtoH_v2(words, ptr, sizeof(words)));
		for (unsigned k = 0; k < LENGTH(words); k++)
			wrong += words[k] != BEFORE;
		app_result("wrong words", wrong);
		app_result("fill", cuMemsetD32_v2(ptr, BEFORE, 1024));
		app_result("its end", cuCtxSynchronize());
		app_result("close", cuIpcCloseMemHandle(ptr));
	}
	app_go();
}

static CUdeviceptr opened_twice;

static void *close_it(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("close", cuIpcCloseMemHandle(opened_twice));
	return NULL;
}

static void closes_exporter(void)
{
	app_put_handle(app_alloc(MIB));
	app_await();
}

/* Two threads close a block that was opened twice, while work still writes it. A close asks for the current context. */
static void closes_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	CUstream stream = app_stream();
	pthread_t threads[2];
	uint64_t n_calls;

	opened_twice = app_open(handle);
	(void)app_open(handle);
	app_spin_fill(stream, opened_twice, 64 * KIB, 5, 50 * MS);
	n_calls = app_calls("cuCtxGetCurrent") + 2;
	app_stop_calls("cuCtxGetCurrent", true);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, close_it, NULL);
	while (app_is_simulated() && app_calls("cuCtxGetCurrent") < n_calls)
		sched_yield();
	app_release_calls();
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	app_result("synchronise", cuCtxSynchronize());
	app_go();
}

/*
 * The block is opened, used and closed again while its last close has waited for earlier work. That wait ends with a
 * free of the driver.
 */
static void reopened_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	CUstream stream = app_stream();
	pthread_t thread;

	opened_twice = app_open(handle);
	app_stop_calls("cuMemFree_v2", true);
	pthread_create(&thread, NULL, close_it, NULL);
	app_await_stopped_call();
	app_result("same address", app_open(handle) == opened_twice);
	app_spin_fill(stream, opened_twice, 64 * KIB, 5, 50 * MS);
	app_result("close", cuIpcCloseMemHandle(opened_twice));
	app_release_calls();
	pthread_join(thread, NULL);
	app_result("synchronise", cuCtxSynchronize());
	app_go();
}

/* A process alone: its exports, where importers could not ask it, or where the driver cannot export. */
static void alone(void)
{
	CUipcMemHandle handle;
	uint64_t legacy = 7;
	CUdeviceptr ptr;

	app_start();
	ptr = app_alloc(MIB);
	APP_MUST(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr));
	app_result("legacy", (int)(legacy & 0xff));
	app_result("export", cuIpcGetMemHandle(&handle, ptr));
	app_pause("exported");
	APP_MUST(cuMemFree_v2(ptr));
	app_result("export of a freed block", cuIpcGetMemHandle(&handle, ptr));
}

APP_PAIR(interior, interior_exporter, interior_importer)
APP_PAIR(parts, parts_exporter, parts_importer)
APP_PAIR(thousand, thousand_exporter, thousand_importer)
APP_PAIR(barrier, barrier_exporter, barrier_importer)
APP_PAIR(descriptors, descriptors_exporter, descriptors_importer)
APP_PAIR(forks, forks_exporter, forks_importer)
APP_PAIR(killed, killed_importer, killed_exporter)
APP_PAIR(attributes, attributes_exporter, attributes_importer)
APP_PAIR(peers, peers_exporter, peers_importer)
APP_PAIR(hangup, descriptors_exporter, hangup_importer)
APP_PAIR(hostile, hostile_exporter, hostile_importer)
APP_PAIR(faults, faults_exporter, faults_importer)
APP_PAIR(refuses, refuses_exporter, refuses_importer)
APP_PAIR(killed_first, killed_first_exporter, ended_importer)
APP_PAIR(killed_later, killed_later_exporter, ended_importer)
APP_PAIR(exits, exits_exporter, ended_importer)
APP_PAIR(devices, devices_exporter, devices_importer)
APP_PAIR(closes, closes_exporter, closes_importer)
APP_PAIR(reopened, closes_exporter, reopened_importer)

const struct app_scenario app_scenarios[] = {
	{"interior", interior},
	{"parts", parts},
	{"thousand", thousand},
	{"barrier", barrier},
	{"descriptors", descriptors},
	{"forks", forks},
	{"killed", killed},
	{"attributes", attributes},
	{"peers", peers},
	{"hangup", hangup},
	{"hostile", hostile},
	{"faults", faults},
	{"refuses", refuses},
	{"killed_first", killed_first},
	{"killed_later", killed_later},
	{"exits", exits},
	{"devices", devices},
	{"closes", closes},
	{"reopened", reopened},
	{"alone", alone},
	{0},
};
