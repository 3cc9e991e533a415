/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The control socket of a process with memory of a simulated GPU, and a hostile client. The input is
 * the text that the client writes, mixed with other operations of the client and the process (enum
 * op). The server side is the library's code: the connection, called as the server's loop calls it,
 * and the library's actions.
 *
 * Under GPUPOOL_POOL=vmm the process also exports blocks, and the client, which knows the last handle, asks for the
 * chunks of the block.
 *
 * A simple model of the protocol in this file computes the number of answers and the schema of each.
 * Jansson checks that each answer is JSON.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "shim/answers/actions.h"
#include "shim/backend/sleep.h"
#include "shim/ctl/ctl_conn.h"
#include "shim/ctl/ctl_server.h"
#include "shim/process.h"
#include "tests/apps/cuda_min.h"

enum op {
	OP_LITERAL,
	OP_STEP,   /* the client sends the text so far, and the server makes a step */
	OP_READ,   /* the client reads at most 16 * N bytes */
	OP_REPEAT, /* repeats the last byte of the text N times, but a newline at most 31 times */
	OP_SHUT,   /* the client shuts down its sending side */
	OP_HANG_UP,
	OP_REPLACE, /* the program closes the server's descriptor, and its number is reused for another file */
	OP_IDLE,    /* half the idle timeout passes */
	OP_ALLOC,   /* the program allocates; the lowest bit of the size chooses pinned memory */
	OP_FREE,
	OP_EXPORT, /* the program exports a block */
	OP_ASK,    /* adds a request for the last exported block to the text, up to a word that the input chooses */
	N_OPS
};

enum {
	TEXT_MAX = 16 << 10,
	N_BLOCKS = 16,
	STEPS_MAX = 100000,
	IDLE_NS = 1000000000,
};

static struct session {
	struct gp_ctl_conn conn;
	int fd; /* the client's end; -1 after it has hung up */
	int64_t now_ns;
	bool is_shut, is_cut; /* cut: later answers may be missing */
	char text[TEXT_MAX], answers[GP_CTL_ANSWER_MAX];
	size_t n_text, n_sent, n_answers;
	void *blocks[N_BLOCKS];
	bool is_pinned[N_BLOCKS], is_dirty;
} s;

static CUipcMemHandle exported; /* the last one, also of an earlier input */

static char socket_dir[] = "/tmp/fuzz_ctl.XXXXXX";

static void remove_socket(void)
{
	unlink(gp_ctl_path());
	rmdir(socket_dir);
}

/* Connects and hangs up. The server moves its socket to another descriptor before it answers a client. */
static void await_server(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char byte;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", gp_ctl_path());
	fuzz_require(fd >= 0 && !connect(fd, (struct sockaddr *)&address, sizeof(address)) && !shutdown(fd, SHUT_WR) &&
			     read(fd, &byte, 1) == 0,
		"no server");
	close(fd);
}

/*
 * Starts a server that no client asks. Blocks can be exported only while importers could ask for them. From then on the
 * server's thread opens and closes no descriptors.
 */
static void start_server(void)
{
	struct gp_ctl_options options = {.dirs = {.runtime_dir = socket_dir, .uid = geteuid()}, .handlers = gp_actions};

	fuzz_require(mkdtemp(socket_dir) && !gp_ctl_start(&options), "no socket");
	atexit(remove_socket);
	await_server();
}

/* Starts the process that the client asks, with a context on the first device. */
static void begin_process(void)
{
	CUcontext context;

	if (atomic_exchange(&gp_process_is_started, true))
		return; /* setting the flag also keeps the library from making its own socket */
	fuzz_require(
		!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context), "no simulated GPU");
	start_server();
}

static void open_session(unsigned flags)
{
	static const int sizes[] = {0, 1, 8 << 10, 64 << 10};
	int fds[2], size = sizes[flags & 3];

	s.n_text = s.n_sent = s.n_answers = 0;
	s.is_shut = s.is_cut = s.is_dirty = false;
	s.now_ns = 1;
	fuzz_require(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), "no sockets");
	if (size)
		setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	s.fd = fds[0];
	gp_ctl_conn_init(&s.conn);
	fuzz_require(!gp_ctl_conn_open(&s.conn, fds[1], s.now_ns), "no connection");
}

static bool is_open(void)
{
	return s.conn.fd.fd >= 0;
}

/* Makes a step as the server's loop does. Returns false if the connection is not ready. */
static bool step(void)
{
	struct pollfd ready = {.fd = s.conn.fd.fd};

	if (!is_open())
		return false;
	ready.events = gp_ctl_conn_events(&s.conn);
	if (poll(&ready, 1, 0) != 1)
		return false;
	gp_ctl_conn_step(&s.conn, gp_actions, s.now_ns);
	return true;
}

static void write_some(void)
{
	ssize_t n;

	if (s.fd < 0 || s.is_shut || s.n_sent == s.n_text)
		return;
	n = send(s.fd, s.text + s.n_sent, s.n_text - s.n_sent, MSG_NOSIGNAL);
	if (n > 0)
		s.n_sent += (size_t)n;
	else
		FUZZ_CHECK(errno == EAGAIN || !is_open(), "the connection was lost: %s", strerror(errno));
}

/* Returns false if there was nothing to read. */
static bool read_some(size_t max)
{
	char drop[4096];
	size_t room = sizeof(s.answers) - s.n_answers;
	ssize_t n;

	if (s.fd < 0 || !max)
		return false;
	/* Bytes that no longer fit are dropped, and not compared with the model. */
	if (room)
		n = recv(s.fd, s.answers + s.n_answers, max < room ? max : room, 0);
	else
		n = recv(s.fd, drop, sizeof(drop), 0);
	if (n <= 0)
		return false;
	if (room)
		s.n_answers += (size_t)n;
	else
		s.is_cut = true;
	return true;
}

static void hang_up(void)
{
	if (s.fd >= 0)
		close(s.fd);
	s.fd = -1;
	s.is_cut = true;
}

/* The connection must give up the descriptor, and must not close the program's file that has the same number. */
static void replace(void)
{
	int number = s.conn.fd.fd, other, flags;

	if (!is_open())
		return;
	other = open("/dev/null", O_RDWR | O_CLOEXEC);
	flags = fcntl(other, F_GETFL);
	fuzz_require(other >= 0 && dup3(other, number, O_CLOEXEC) == number, "no descriptor");
	close(other);
	s.is_cut = true;
	gp_ctl_conn_step(&s.conn, gp_actions, s.now_ns);
	FUZZ_CHECK(!is_open(), "the connection uses a descriptor of the program");
	FUZZ_CHECK(fcntl(number, F_GETFL) == flags, "the connection closed a descriptor of the program");
	close(number);
}

static void pass_time(void)
{
	s.now_ns += IDLE_NS / 2 + 1;
	if (!is_open() || s.now_ns - s.conn.active_ns < IDLE_NS)
		return;
	s.is_cut = true;
	gp_ctl_conn_close(&s.conn);
}

/* The calls of a process that is deep asleep wait for gpupool-stat, which is not here. */
static void end_deep_sleep(void)
{
	struct gp_sleep_result unused;

	(void)gp_deep_undo(&unused);
}

static void free_block(size_t i)
{
	CUresult r = CUDA_SUCCESS;

	end_deep_sleep();
	if (s.blocks[i])
		r = s.is_pinned[i] ? cuMemFreeHost(s.blocks[i]) : cuMemFree_v2((CUdeviceptr)s.blocks[i]);
	FUZZ_CHECK(r == CUDA_SUCCESS, "a free returned %d", (int)r);
	s.blocks[i] = NULL;
}

static void alloc_block(unsigned size)
{
	size_t i = size / 2 % N_BLOCKS, bytes = (size_t)(size | 1) << (size % 16);
	CUdeviceptr address = 0;
	void *pinned = NULL;
	CUresult r;

	s.is_dirty = true;
	free_block(i);
	s.is_pinned[i] = size & 1;
	r = s.is_pinned[i] ? cuMemHostAlloc(&pinned, bytes, 0) : cuMemAlloc_v2(&address, bytes);
	/* An allocation may exceed a limit that the client has set. */
	FUZZ_CHECK(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY, "an allocation returned %d", (int)r);
	if (!r)
		s.blocks[i] = s.is_pinned[i] ? pinned : (void *)(uintptr_t)address;
}

static bool has_handle(void)
{
	return memcmp(exported.reserved, "gpupool ipc", 11) == 0;
}

static void export_block(size_t i)
{
	end_deep_sleep();
	if (s.blocks[i] && !s.is_pinned[i] && cuIpcGetMemHandle(&exported, (CUdeviceptr)s.blocks[i]))
		memset(&exported, 0, sizeof(exported));
}

static void add_text(uint8_t byte, unsigned times)
{
	for (; times && s.n_text < sizeof(s.text); times--)
		s.text[s.n_text++] = (char)byte;
}

static void repeat(unsigned times)
{
	uint8_t byte = s.n_text ? (uint8_t)s.text[s.n_text - 1] : ' ';

	add_text(byte, times % (byte == '\n' ? 32 : 8192));
}

/* Adds the command and the first n words of a request for the last exported block. */
static void ask(unsigned n)
{
	char line[128];
	uint64_t words[6]; /* of the handle, after its name: pid, start, nonce, address, serial number, checksum */
	int length;

	if (!has_handle())
		return;
	memcpy(words, exported.reserved + 16, sizeof(words));
	length = snprintf(line, sizeof(line), "chunk");
	for (unsigned i = 0; i < n % 4; i++)
		length += snprintf(
			line + length, sizeof(line) - (size_t)length, " %llu", (unsigned long long)words[2 + i]);
	if (n % 4 == 3)
		length += snprintf(line + length, sizeof(line) - (size_t)length, " ");
	for (int i = 0; i < length; i++)
		add_text((uint8_t)line[i], 1);
}

static void play(struct fuzz_input *in, enum op op)
{
	switch (op) {
	case OP_STEP:
		write_some();
		step();
		break;
	case OP_READ:
		read_some(fuzz_byte(in) * 16u);
		break;
	case OP_REPEAT:
		repeat(fuzz_u16(in));
		break;
	case OP_SHUT:
		write_some();
		s.is_shut = s.is_shut || (s.fd >= 0 && !shutdown(s.fd, SHUT_WR));
		break;
	case OP_HANG_UP:
		write_some();
		hang_up();
		break;
	case OP_REPLACE:
		replace();
		break;
	case OP_IDLE:
		pass_time();
		break;
	case OP_ALLOC:
		alloc_block(fuzz_byte(in));
		break;
	case OP_FREE:
		free_block(fuzz_byte(in) % N_BLOCKS);
		break;
	case OP_EXPORT:
		export_block(fuzz_byte(in) % N_BLOCKS);
		break;
	case OP_ASK:
		ask(fuzz_byte(in));
		break;
	default:
		break;
	}
}

/* Lets both sides continue until nothing changes. Then the connection must be closed. */
static void finish(void)
{
	unsigned n = 0;

	for (bool moves = true; moves && n < STEPS_MAX; n++) {
		size_t sent = s.n_sent;

		if (is_open())
			write_some();
		if (s.fd >= 0 && !s.is_shut && (s.n_sent == s.n_text || !is_open()))
			s.is_shut = shutdown(s.fd, SHUT_WR) == 0;
		moves = step();
		moves = read_some(SIZE_MAX) || moves || s.n_sent != sent;
	}
	FUZZ_CHECK(n < STEPS_MAX, "the connection does not end");
	FUZZ_CHECK(!is_open(), "the connection stays open although the client has finished");
	FUZZ_CHECK(!s.conn.out.text, "the closed connection keeps memory");
	if (s.fd >= 0)
		close(s.fd);
	s.fd = -1;
}

/* The required schema of an answer. A request with words after the command may also get an error. */
struct expected {
	const char *schema;
	bool may_refuse;
};

static const struct expected an_error = {"error", false};

/* A process may be unable to sleep, and one that is deep asleep refuses what would need the driver. */
static bool can_fail(const char *command)
{
	return strcmp(command, "sleep") == 0 || strcmp(command, "wake") == 0 || memmem(s.text, s.n_text, "deep", 4);
}

/* Parses a request as documented, and returns what its answer must be. */
static struct expected expect(const char *line, size_t length, char copy[static GP_CTL_REQUEST_MAX])
{
	char *words[GP_CTL_WORDS_MAX], *save;
	int n = 0;

	memcpy(copy, line, length);
	if (length && copy[length - 1] == '\r')
		length--;
	copy[length] = '\0';
	for (size_t i = 0; i < length; i++)
		if (copy[i] != '\t' && (copy[i] < ' ' || copy[i] > '~'))
			return an_error;
	for (char *word = strtok_r(copy, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
		if (n == GP_CTL_WORDS_MAX)
			return an_error;
		words[n++] = word;
	}
	for (int i = 0; n && i < GP_CTL_N_COMMANDS; i++) {
		const struct gp_ctl_command_row *row = &gp_ctl_commands[i];

		if (strcmp(row->name, words[0]))
			continue;
		if (n - 1 < row->min_words || n - 1 > row->max_words)
			return an_error;
		return (struct expected){row->name, n > 1 || can_fail(row->name)};
	}
	return an_error;
}

/* The bytes of an answer that has them must add up. */
static void check_bytes(const json_t *object)
{
	static const char *const parts[] = {"used_bytes", "pending_bytes", "cached_bytes", "returning_bytes"};
	json_int_t sum = 0;

	if (!json_object_get(object, "cached_bytes"))
		return;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		sum += json_integer_value(json_object_get(object, parts[i]));
	FUZZ_CHECK(sum == json_integer_value(json_object_get(object, "total_bytes")),
		"total_bytes is not the sum of its parts, %lld", (long long)sum);
}

static unsigned version_of(const char *name)
{
	enum gp_ctl_command command = gp_ctl_command_find(name);

	return command < GP_CTL_N_COMMANDS ? gp_ctl_commands[command].version : 1;
}

static void check_answer(const char *answer, size_t length, struct expected expected)
{
	json_t *object = json_loadb(answer, length, JSON_REJECT_DUPLICATES, NULL), *device;
	char name[GP_CTL_SCHEMA_MAX];
	const char *schema = json_string_value(json_object_get(object, "schema"));
	unsigned major;
	size_t i;

	FUZZ_CHECK(json_is_object(object), "the answer is not a JSON object: %.*s", (int)length, answer);
	FUZZ_CHECK(schema && gp_ctl_schema_parse(schema, name, &major) && major == version_of(name),
		"the answer has no valid schema: %.*s", (int)length, answer);
	FUZZ_CHECK(!strcmp(name, expected.schema) || (expected.may_refuse && !strcmp(name, "error")),
		"the answer has schema %s instead of %s", name, expected.schema);
	json_array_foreach(json_object_get(object, "devices"), i, device)
		check_bytes(device);
	check_bytes(json_object_get(object, "pinned"));
	json_decref(object);
}

/* Checks the next answer. Returns false if there is none. */
static bool take_answer(size_t *at, struct expected expected)
{
	const char *answer = s.answers + *at;
	const char *end = memchr(answer, '\n', s.n_answers - *at);

	if (!end) {
		FUZZ_CHECK(s.is_cut, "an answer is missing, expected schema: %s", expected.schema);
		return false;
	}
	check_answer(answer, (size_t)(end - answer), expected);
	*at += (size_t)(end - answer) + 1;
	return true;
}

static void check_answers(void)
{
	static char copy[GP_CTL_REQUEST_MAX];
	const char *line = s.text, *text_end = s.text + s.n_sent;
	bool is_answered = true;
	size_t at = 0;

	while (is_answered && line < text_end) {
		const char *end = memchr(line, '\n', (size_t)(text_end - line));

		/* The server ends the connection after its answer to a line that is too long or has no end. */
		if (!end || end - line >= GP_CTL_REQUEST_MAX) {
			take_answer(&at, an_error);
			break;
		}
		is_answered = take_answer(&at, expect(line, (size_t)(end - line), copy));
		line = end + 1;
	}
	FUZZ_CHECK(s.is_cut || at == s.n_answers, "there are more answers than requests");
}

/* A chunk that stayed pinned for a client would stay in the pool. */
static void check_is_empty(const char *answer, size_t length)
{
	json_t *object = json_loadb(answer, length, 0, NULL), *device;
	size_t i;

	json_array_foreach(json_object_get(object, "devices"), i, device)
		FUZZ_CHECK(json_integer_value(json_object_get(device, "total_bytes")) == 0,
			"the pool keeps %lld bytes after a reclaim",
			(long long)json_integer_value(json_object_get(device, "total_bytes")));
	json_decref(object);
}

/* Frees and reclaims all memory, so that the next input starts with the same state. */
static void free_all(void)
{
	static const char *const requests[] = {"reclaim", "reclaim pinned", "status"};
	struct gp_json out;

	end_deep_sleep();
	for (size_t i = 0; s.is_dirty && i < N_BLOCKS; i++)
		free_block(i);
	gp_json_init(&out, GP_CTL_ANSWER_MAX);
	for (size_t i = 0; s.is_dirty && i < sizeof(requests) / sizeof(*requests); i++) {
		char request[16];
		const char *answer;
		size_t length;

		length = (size_t)snprintf(request, sizeof(request), "%s", requests[i]);
		gp_ctl_request(gp_actions, request, length, &out, &answer, &length);
		check_answer(answer, length, (struct expected){i < 2 ? "reclaim" : "status", false});
		if (i == 2)
			check_is_empty(answer, length);
	}
	gp_json_deinit(&out);
}

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	fuzz_require(dir, "no /proc");
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	unsigned n_fds;
	uint8_t byte;

	begin_process();
	n_fds = count_fds();
	open_session(fuzz_byte(&in));
	while (!fuzz_is_over(&in)) {
		if (fuzz_op(&in, &byte))
			play(&in, (enum op)(byte % N_OPS));
		else
			add_text(byte, 1);
	}
	finish();
	check_answers();
	free_all();
	FUZZ_CHECK(count_fds() <= n_fds, "descriptors stay open: %u, and %u before", count_fds(), n_fds);
	return 0;
}
