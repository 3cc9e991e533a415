/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Handles of memory that no longer exists, and handles that are forged. */

#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "app_peer.h"

enum { NOBODY = 65534, ADDRESS = 3, MANY = 24, BEFORE = 1000, AFTER = 2000, CANARY = 3000 };

static void one_exporter(void)
{
	CUdeviceptr ptr = app_alloc(MIB);

	app_fill_now(ptr, MIB, BEFORE);
	app_put_handle(ptr);
	app_await();
}

static void wrong_calls_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	CUdeviceptr ptr = 0;

	app_result("open without flags", cuIpcOpenMemHandle_v2(&ptr, handle, 0));
	app_result("open with unknown flags", cuIpcOpenMemHandle_v2(&ptr, handle, 2));
	app_result("open with a NULL output", cuIpcOpenMemHandle_v2(NULL, handle, LAZY));
	app_result("close of address 0", cuIpcCloseMemHandle(0));
	app_result("handle with a NULL output", cuIpcGetMemHandle(NULL, app_alloc(MIB)));
	APP_MUST(cuCtxSetCurrent(NULL));
	app_result("open without a context", cuIpcOpenMemHandle_v2(&ptr, handle, LAZY));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("open with valid arguments", app_try_open(handle));
	app_go();
}

/* The importer keeps a block open and writes to it long after the exporter has freed it and allocated many others. */
static void freed_exporter(void)
{
	CUdeviceptr ptr = app_alloc(3 * MIB), others[MANY];
	int damaged = 0;

	app_alloc(3 * MIB); /* so that the segment stays */
	app_fill_now(ptr, 3 * MIB, BEFORE);
	app_put_handle(ptr);
	app_await();
	APP_MUST(cuMemFree_v2(ptr));
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < MANY; i++) {
			others[i] = app_alloc(3 * MIB);
			app_fill_now(others[i], 3 * MIB, CANARY + i);
		}
		app_go();
		app_await();
		for (unsigned i = 0; i < MANY; i++) {
			damaged += app_wrong(others[i], 3 * MIB, CANARY + i);
			APP_MUST(cuMemFree_v2(others[i]));
		}
	}
	app_put_number((uint64_t)damaged);
	app_put_number(cuMemFree_v2(ptr));
}

static void freed_importer(void)
{
	CUipcMemHandle handle = app_take_handle();
	CUdeviceptr ptr = app_open(handle);

	app_go();
	for (unsigned round = 0; round < 3; round++) {
		app_await();
		app_fill_now(ptr, 3 * MIB, AFTER + round);
		app_result("wrong words in the freed block", app_wrong(ptr, 3 * MIB, AFTER + round));
		app_go();
	}
	app_result("damaged words at the exporter's", (int)app_take_number());
	app_result("the exporter's second free", (int)app_take_number());
	app_result("open after the free", app_try_open(handle));
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_result("close again", cuIpcCloseMemHandle(ptr));
}

/* A pool may hold back freed memory, but not after this number of frees. */
static void free_some(void)
{
	for (unsigned i = 0; i < 16; i++)
		APP_MUST(cuMemFree_v2(app_alloc(512)));
}

/* A new block has a new id and a new handle, even at an old address. */
static void again_exporter(void)
{
	CUdeviceptr ptr = app_alloc(3 * MIB);
	CUipcMemHandle handle = app_handle_of(ptr), next;
	uint64_t id = app_id_of(ptr);

	app_put(&handle, sizeof(handle));
	app_await();
	APP_MUST(cuMemFree_v2(ptr));
	app_put_number(cuIpcGetMemHandle(&next, ptr));
	free_some();
	ptr = app_alloc(3 * MIB);
	next = app_handle_of(ptr);
	app_put_number(app_id_of(ptr) != id);
	app_put_number(memcmp(&next, &handle, sizeof(next)) != 0);
	app_fill_now(ptr, 3 * MIB, BEFORE);
	app_put(&next, sizeof(next));
	app_await();
}

static void again_importer(void)
{
	CUipcMemHandle handle = app_take_handle();

	app_result("open", app_try_open(handle));
	app_go();
	app_result("handle of a freed block", (int)app_take_number());
	app_result("new block has a new id", (int)app_take_number());
	app_result("new block has a new handle", (int)app_take_number());
	app_result("wrong words", app_wrong(app_open(app_take_handle()), 3 * MIB, BEFORE));
	app_result("open of the old handle", app_try_open(handle));
	app_go();
}

static void exit_exporter(void)
{
	CUdeviceptr ptr[2] = {app_alloc(MIB), app_alloc(MIB)};

	app_fill_now(ptr[0], MIB, BEFORE);
	app_put_handle(ptr[0]);
	app_put_handle(ptr[1]);
	app_await();
}

static void exit_importer(void)
{
	CUipcMemHandle handle[2] = {app_take_handle(), app_take_handle()};
	CUdeviceptr ptr = app_open(handle[0]);

	app_go();
	app_peer_wait();
	app_result("wrong words", app_wrong(ptr, MIB, BEFORE));
	app_fill_now(ptr, MIB, AFTER);
	app_result("wrong words in an own block", app_wrong(ptr, MIB, AFTER));
	app_result("open", app_try_open(handle[1]));
	app_result("close", cuIpcCloseMemHandle(ptr));
	app_result("close again", cuIpcCloseMemHandle(ptr));
	app_result("open of a closed handle", app_try_open(handle[0]));
}

/* The layout of gpupool's handles, for forging them. */
struct own_handle {
	char magic[16];
	uint64_t words[5]; /* process, its start, nonce, address, serial */
	uint64_t check;
};

static bool is_own_handle(CUipcMemHandle handle)
{
	return memcmp(handle.reserved, "gpupool ipc", 11) == 0;
}

static CUipcMemHandle with_word(CUipcMemHandle handle, unsigned nth, uint64_t word)
{
	uint64_t sum = UINT64_C(14695981039346656037);
	struct own_handle own_handle;

	memcpy(&own_handle, &handle, sizeof(own_handle));
	own_handle.words[nth] = word;
	for (size_t i = 0; i < offsetof(struct own_handle, check); i++)
		sum = (sum ^ ((const unsigned char *)&own_handle)[i]) * UINT64_C(1099511628211);
	own_handle.check = sum;
	memcpy(&handle, &own_handle, sizeof(own_handle));
	return handle;
}

static uint64_t word_of(CUipcMemHandle handle, unsigned nth)
{
	struct own_handle own_handle;

	memcpy(&own_handle, &handle, sizeof(own_handle));
	return own_handle.words[nth];
}

static unsigned n_tried, n_opened, n_other_codes;

static void try(CUipcMemHandle handle)
{
	int result = app_try_open(handle);

	n_tried++;
	n_opened += result == CUDA_SUCCESS;
	n_other_codes += result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE;
}

static void try_words(CUipcMemHandle handle)
{
	uint64_t words[] = {0, 1, (uint64_t)getpid(), (uint64_t)getppid(), INT32_MAX, UINT64_MAX, 0};

	for (unsigned nth = 0; nth < 5; nth++) {
		if (nth == ADDRESS)
			continue; /* the serial already implies it */
		words[LENGTH(words) - 1] = word_of(handle, nth) + 1;
		for (unsigned i = 0; i < LENGTH(words); i++)
			if (words[i] != word_of(handle, nth))
				try(with_word(handle, nth, words[i]));
	}
}

/* Tries handles with wrong, missing and random bytes, and handles with valid bytes about something else. */
static void forged_importer(void)
{
	CUipcMemHandle handle = app_take_handle(), other;
	unsigned seed = 7;

	/* A real driver trusts its own handles and may crash on forged ones. */
	for (size_t i = 0; i < sizeof(handle) && (is_own_handle(handle) || app_calls("cuInit")); i++) {
		other = handle;
		other.reserved[i] ^= (char)(1 << i % 8);
		try(other);
		other = handle;
		memset(other.reserved + i, 0, sizeof(other) - i);
		if (memcmp(&other, &handle, sizeof(other)) != 0)
			try(other);
		for (size_t k = 0; k < sizeof(other); k++)
			other.reserved[k] = (char)app_random(&seed);
		try(other);
		memcpy(other.reserved, handle.reserved, i);
		if (i < 56)
			try(other);
	}
	if (is_own_handle(handle) || app_calls("cuInit"))
		try_words(handle);
	app_fact("tried", n_tried);
	app_fact("opened", n_opened);
	app_fact("other codes", n_other_codes);
	app_result("open of the valid handle", app_try_open(handle));
	app_go();
}

/* A process of another user cannot open the memory. */
static void stranger_importer(void)
{
	CUipcMemHandle handle = app_take_handle();

	app_result("as the same user", app_try_open(handle));
	if (geteuid() == 0)
		app_result("setuid", setuid(NOBODY));
	if (geteuid() == NOBODY)
		app_result("as another user", app_try_open(handle));
	app_go();
}

/*
 * Returns the address of this process's control socket. The exporter replaces that socket with its own. It still asks
 * the real server for each answer, and passes the answer on with a wrong offset and size.
 */
static struct sockaddr_un socket_path(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *dir = getenv("GPUPOOL_RUNTIME_DIR");
	char start[16];
	DIR *entries = opendir(dir ? dir : "/nowhere");
	const struct dirent *entry = NULL;

	snprintf(start, sizeof(start), "%d.", (int)getpid());
	while (entries && (entry = readdir(entries)) &&
		(strncmp(entry->d_name, start, strlen(start)) != 0 || !strstr(entry->d_name, ".sock")))
		;
	if (entry)
		snprintf(address.sun_path, sizeof(address.sun_path), "%.80s/%.24s", dir, entry->d_name);
	if (entries)
		closedir(entries);
	return address;
}

static void send_text(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		exit(78);
}

static void receive_line(int fd, char *line, size_t bytes)
{
	size_t n = 0;

	while (n + 1 < bytes && read(fd, line + n, 1) == 1 && line[n++] != '\n')
		;
	line[n] = '\0';
}

#define TIB ((size_t)1 << 40)

/* No segment is as large as these. */
static const struct {
	size_t offset, bytes;
} wrong_places[] = {{TIB, MIB}, {0, TIB}, {TIB, 1}, {SIZE_MAX - MIB, MIB}};

static void liar_exporter(void)
{
	int server = socket(AF_UNIX, SOCK_STREAM, 0), liar = socket(AF_UNIX, SOCK_STREAM, 0);
	struct sockaddr_un address;
	char request[128], line[512];
	const char *end;

	app_put_handle(app_alloc(MIB));
	address = socket_path();
	if (connect(server, (struct sockaddr *)&address, sizeof(address)) || unlink(address.sun_path) ||
		bind(liar, (struct sockaddr *)&address, sizeof(address)) || listen(liar, 1))
		exit(79);
	app_go();
	for (unsigned i = 0; i < LENGTH(wrong_places); i++) {
		int client = accept(liar, NULL, NULL);

		receive_line(client, request, sizeof(request));
		send_text(server, request);
		receive_line(server, line, sizeof(line));
		end = strstr(line, "\"offset\"");
		if (!end)
			exit(80);
		snprintf(line + (end - line), sizeof(line) - (size_t)(end - line), "\"offset\":%zu,\"bytes\":%zu}\n",
			wrong_places[i].offset, wrong_places[i].bytes);
		send_text(client, line);
		close(client);
	}
	app_await();
}

static void liar_importer(void)
{
	CUipcMemHandle handle = app_take_handle();

	app_await();
	for (unsigned i = 0; i < LENGTH(wrong_places); i++)
		app_result("open", app_try_open(handle));
	app_result("opened without being closed",
		(int)app_calls("cuIpcOpenMemHandle_v2") - (int)app_calls("cuIpcCloseMemHandle"));
	app_go();
}

APP_PAIR(calls, one_exporter, wrong_calls_importer)
APP_PAIR(freed, freed_exporter, freed_importer)
APP_PAIR(again, again_exporter, again_importer)
APP_PAIR(ended, exit_exporter, exit_importer)
APP_PAIR(forged, one_exporter, forged_importer)
APP_PAIR(stranger, one_exporter, stranger_importer)
APP_PAIR(liar, liar_exporter, liar_importer)

const struct app_scenario app_scenarios[] = {
	{"calls", calls},
	{"freed", freed},
	{"again", again},
	{"ended", ended},
	{"forged", forged},
	{"stranger", stranger},
	{"liar", liar},
	{0},
};
