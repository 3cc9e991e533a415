/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Sleeps and wakes in which a call fails, memory is short, a signal comes, or either side is killed. */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "play.h"
#include "tools/text/stat_say.h"

/* The simulated clock jumps to the end of work only at the hundredth query, unless queries take time. */
#define GPU    "SIMGPU_LATENCY=cuEventQuery=100000"
#define VMM    "GPUPOOL_POOL=vmm"
#define POOLED ((uint64_t)28 * MIB) /* of the blocks of app_sleep, by chunks */

static char stat_text[64 * 1024];
static const char *const vmm[] = {VMM, GPU, NULL};

/* Content is dropped last. So a refusal before that loses nothing. */
static const char *const drop_faults[] = {
	"APP_FAULT_ASLEEP=cuMemUnmap 1 999",
	"APP_FAULT_ASLEEP=cuMemcpyDtoHAsync_v2 1 999",
	"APP_FAULT_ASLEEP=cuMemHostRegister_v2 1 2",
};

START_TEST(a_sleep_that_fails_before_content_is_dropped_keeps_all_of_it)
{
	const char *env[] = {drop_faults[_i], VMM, GPU, NULL};

	play_run(&(struct play){.program = "app_sleep", .words = {"dropped"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_ne(play_fact("one error"), 0);
	ck_assert_uint_eq(play_fact("one kept"), 1);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* A fault at a sleep leaves the process awake. One at a wake is tried again until the calls succeed. */
static const struct {
	const char *asleep, *awake;
	const char *fact;
	int error;
} faults[] = {
	{"APP_FAULT_ASLEEP=cuMemHostRegister_v2 1 2", "A=", "slept error", ENOMEM},
	{"APP_FAULT_ASLEEP=cuMemHostRegister_v2 2 2", "A=", "slept error", ENOMEM},
	{"APP_FAULT_ASLEEP=cuMemHostRegister_v2 2 999", "A=", "slept error", EIO},
	{"APP_FAULT_ASLEEP=cuMemcpyDtoHAsync_v2 2 999", "A=", "slept error", EIO},
	{"APP_FAULT_ASLEEP=cuMemUnmap 2 999", "A=", "slept error", EIO},
	{"APP_FAULT_ASLEEP=cuEventRecord 1 999", "A=", "slept error", EIO},
	{"A=", "APP_FAULT_AWAKE=cuMemCreate 1 2", "woke error", ENOMEM},
	{"A=", "APP_FAULT_AWAKE=cuMemCreate 2 2", "woke error", ENOMEM},
	{"A=", "APP_FAULT_AWAKE=cuMemCreate 3 2", "woke error", ENOMEM},
	{"A=", "APP_FAULT_AWAKE=cuMemMap 2 2", "woke error", ENOMEM},
	{"A=", "APP_FAULT_AWAKE=cuMemSetAccess 2 999", "woke error", EIO},
	{"A=", "APP_FAULT_AWAKE=cuMemcpyHtoDAsync_v2 2 999", "woke error", EIO},
};

START_TEST(a_call_that_the_driver_refuses_leaves_a_process_awake_or_asleep_and_never_wrong)
{
	const char *env[] = {faults[_i].asleep, faults[_i].awake, VMM, GPU, NULL};

	play_run(&(struct play){.program = "app_sleep", .words = {"faulty"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact(faults[_i].fact), (uint64_t)faults[_i].error);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\nwrong words: 0\n"));
	if (faults[_i].fact[0] == 's')
		ck_assert_uint_ge(play_fact("bytes"), POOLED);
	else
		ck_assert_uint_lt(play_fact("bytes after the wake"), POOLED);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* While the driver pins a piece, the next one is made ready. It goes back if the sleep fails. */
START_TEST(content_of_several_pieces_sleeps_and_a_failure_leaves_no_host_memory_behind)
{
	static const char *const asleep[] = {"A=", "APP_FAULT_ASLEEP=cuMemHostRegister_v2 1 2"};
	const char *env[] = {asleep[_i], VMM, GPU, NULL};

	play_run(&(struct play){.program = "app_sleep", .words = {"in-pieces"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact(_i ? "slept error" : "slept"), _i ? ENOMEM : 320 * MIB);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	if (_i)
		ck_assert_uint_le(play_fact("MiB of host memory left behind"), 32);
	ck_assert_uint_eq(play_fact("pieces"), _i ? 1 : 2);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_handler_of_a_signal_runs_after_the_memory_has_moved)
{
	play_run(&(struct play){.program = "app_sleep", .words = {"signalled"}, .env = vmm, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("slept"), POOLED);
	ck_assert_uint_eq(play_fact("signals in the move"), 0);
	ck_assert_uint_eq(play_fact("handled"), 1);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* Work waits for memory that others have. SIGTERM ends the process meanwhile, or its handler does. */
static const struct {
	const char *end;
	int status;
	const char *out;
} shortages[] = {
	{"A=", 0, "wrong words at exit: 0\n"},
	{"APP_END=exit", 3, "wrong words at exit: 0\n"},
	{"APP_END=kill", 128 + SIGTERM, ""},
};

START_TEST(a_wake_that_is_short_of_memory_says_so_and_waits_and_a_signal_ends_it)
{
	const char *env[] = {shortages[_i].end, VMM, GPU, NULL};

	play_run(&(struct play){.program = "app_sleep", .words = {"short-wake"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, shortages[_i].status);
	ck_assert_msg(strstr(play_err, "waking: waiting for 28 MiB of device memory"), "%s", play_err);
	ck_assert_uint_eq(play_fact("woke error"), ENOMEM);
	ck_assert_uint_lt(play_fact("asleep"), POOLED);
	ck_assert_str_eq(play_out, shortages[_i].out);
}
END_TEST

/* An attempt to wake takes all memory that there is, and gives it back. Other processes would find none meanwhile. */
START_TEST(a_wake_that_is_short_of_memory_takes_none_until_there_is_enough)
{
	const char *env[] = {VMM, GPU, "SIMGPU_MEMORY=64M", "SIMGPU_SHARED=ledger", "GPUPOOL_LOG=info", NULL};

	play_run(
		&(struct play){.program = "app_sleep", .words = {"crowded-wake"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	/* One attempt makes up to six calls, and attempts are half a second apart. */
	ck_assert_uint_lt(play_fact("taken by a wait of 50 looks"), 50);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_msg(
		strstr(play_err, "asleep: 28 MiB of device memory have gone back to the driver in "), "%s", play_err);
	ck_assert_msg(strstr(play_err, "awake: 28 MiB of device memory are back in "), "%s", play_err);
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

START_TEST(a_process_that_gets_no_host_memory_stays_awake)
{
	play_run(&(struct play){.program = "app_sleep", .words = {"no-host"}, .env = vmm, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("without host memory error"), ENOMEM);
	ck_assert_uint_ge(play_fact("bytes"), POOLED);
	ck_assert_uint_eq(play_fact("slept"), POOLED);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\nwrong words: 0\n"));
}
END_TEST

/*
 * Where a process that falls asleep or wakes is killed, or the client that asked for it. Without a call the process is
 * stopped and has not read the request yet. Otherwise it stops inside the driver, in the nth call from then on.
 */
static const struct {
	const char *point, *stop;
	bool is_wake;
} moves[] = {
	{"before the gate is closed", NULL, false},
	{"asleep", NULL, true},
	{"with the gate closed", "APP_STOP=cuCtxRecordEvent 1 start", false},
	{"when the GPU is quiet", "APP_STOP=cuMemHostRegister_v2 1 start", false},
	{"after the copies of the first piece", "APP_STOP=cuMemUnmap 1 start", false},
	{"after the unmap of the second piece", "APP_STOP=cuMemUnmap 2 end", false},
	{"after the second piece of a wake was created", "APP_STOP=cuMemCreate 2 end", true},
	{"after the copies of a wake", "APP_STOP=cuMemHostUnregister 1 start", true},
};

enum { CLIENT_SECONDS = 60 };

static size_t row;
static pid_t process, client; /* client: 0 if the test is the client itself, by this connection */
static int connection;

static bool is_unread(void)
{
	return !moves[row].stop;
}

/* Sends the request of the row to the process, which is at a pause. */
static void ask_for_move(void)
{
	const char *command = moves[row].is_wake ? "wake" : "sleep";
	char words[64];

	process = (pid_t)play_number(play_ask("status"), "pid");
	if (is_unread())
		play_stop(process);
	snprintf(words, sizeof(words), "%s --timeout=%d", command, CLIENT_SECONDS);
	client = is_unread() || !play_stat ? 0 : play_start_stat(words, "client");
	snprintf(words, sizeof(words), "%s %d", command, CLIENT_SECONDS * 1000);
	connection = client ? -1 : play_ask_only(words);
}

static void play_move(void (*at_pause)(const char *name))
{
	const char *env[] = {is_unread() ? "A=" : moves[row].stop, moves[row].is_wake ? "APP_ASLEEP=1" : "B=", VMM, GPU,
		"SIMGPU_DEADLOCK_MS=60000", "SIMGPU_SHARED=ledger", "SIMGPU_MEMORY=64M", NULL};

	play_run(&(struct play){.program = "app_sleep",
		.words = {"stopped"},
		.env = env,
		.preload = play_library,
		.at_pause = at_pause});
}

/* Host memory with a file of its own could stay, or go to a disk. */
static void check_host_memory(void)
{
	char name[64], line[512];
	uint64_t from, to;
	FILE *maps;

	snprintf(name, sizeof(name), "/proc/%d/maps", (int)process);
	maps = fopen(name, "re");
	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, " rw-s ") && sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) == 2 && to - from >= MIB)
			ck_assert_msg(strstr(line, "(deleted)"), "%s: %s", moves[row].point, line);
	ck_assert_int_eq(fclose(maps), 0);
}

/* The client that was waiting says that there will be no answer. */
static void await_client(void)
{
	static char text[PLAY_OUTPUT_MAX];
	int status;

	if (!client) {
		ck_assert_int_le(read(connection, text, 1), 0);
		close(connection);
		return;
	}
	ck_assert_int_eq(waitpid(client, &status, 0), client);
	play_read("client", text);
	ck_assert_msg(status != 0 && strstr(text, "gpupool-stat: pid "), "%s: %d %s", moves[row].point, status, text);
}

static void kill_process(const char *name)
{
	if (strcmp(name, "before") == 0)
		ask_for_move();
	if (strcmp(name, is_unread() ? "before" : "within") != 0)
		return;
	check_host_memory();
	ck_assert_int_eq(kill(process, SIGKILL), 0);
	await_client();
}

/* The neighbour has more than the process had left, and is the only one that is listed. */
static void look_at_neighbour(const char *name)
{
	char pid[16];

	if (!play_stat)
		return;
	ck_assert_int_eq(play_run_stat("list -q", stat_text, sizeof(stat_text)), 0);
	snprintf(pid, sizeof(pid), "%u\n", (unsigned)play_number(play_ask("status"), "pid"));
	ck_assert_str_eq(stat_text, pid);
}

START_TEST(a_process_that_is_killed_in_a_sleep_or_wake_leaves_its_memory_to_others_and_no_socket)
{
	const char *env[] = {VMM, GPU, "SIMGPU_SHARED=ledger", "SIMGPU_MEMORY=64M", NULL};

	row = (size_t)_i;
	play_move(kill_process);
	ck_assert_int_eq(play_status, 128 + SIGKILL);
	if (play_stat)
		ck_assert_int_eq(play_run_stat("list", stat_text, sizeof(stat_text)), STAT_NO_PROCESS);
	ck_assert_msg(!play_stat || !play_is_listening(), "%s: a socket stays", moves[row].point);
	play_run(&(struct play){.program = "app_sleep",
		.words = {"neighbour"},
		.env = env,
		.preload = play_library,
		.at_pause = look_at_neighbour});
	ck_assert_msg(play_status == 0, "%s: %s", moves[row].point, play_out);
	ck_assert_str_eq(play_out, "wrong words: 0\n");
}
END_TEST

static void kill_client(const char *name)
{
	if (strcmp(name, "before") == 0)
		ask_for_move();
	if (strcmp(name, is_unread() ? "before" : "within") == 0) {
		if (client) {
			ck_assert_int_eq(kill(client, SIGKILL), 0);
			ck_assert_int_eq(waitpid(client, NULL, 0), client);
		} else {
			close(connection);
		}
		if (is_unread())
			ck_assert_int_eq(kill(process, SIGCONT), 0);
	}
	if (strcmp(name, "after") != 0)
		return;
	/* The server answers once it has carried out the request before. */
	ck_assert_ptr_nonnull(
		strstr(play_ask("status"), moves[row].is_wake ? "\"state\":\"awake\"" : "\"state\":\"asleep\""));
	if (!play_stat)
		return;
	ck_assert_int_eq(play_run_stat("sleep", stat_text, sizeof(stat_text)), 0);
	ck_assert_int_eq(play_run_stat("wake", stat_text, sizeof(stat_text)), 0);
	ck_assert_msg(strstr(stat_text, "awake: took 28.0 MiB"), "%s: %s", moves[row].point, stat_text);
}

START_TEST(a_process_whose_client_is_killed_in_a_sleep_or_wake_carries_it_out_and_obeys_the_next_command)
{
	row = (size_t)_i;
	play_move(kill_client);
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

/* A call of the driver that does not return, in a sleep or a wake. */
static const struct {
	const char *stop, *words, *text;
	bool is_wake;
} hangs[] = {
	{"APP_STOP=cuMemUnmap 2 end", "sleep --timeout=0.1", "has not finished its sleep within 5.1 s", false},
	{"APP_STOP=cuMemMap 2 end", "wake --timeout=0.1", "has not finished its wake within 5.1 s", true},
};

/* The client gives up, and the next one is not even sent. The process goes on. */
static void give_up(const char *name)
{
	static char text[PLAY_OUTPUT_MAX];
	bool is_wake = hangs[row].is_wake;
	int status;

	if (strcmp(name, "before") == 0) {
		client = play_start_stat(hangs[row].words, "client");
	} else if (strcmp(name, "within") == 0) {
		ck_assert_int_eq(waitpid(client, &status, 0), client);
		play_read("client", text);
		ck_assert_int_eq(status, STAT_NO_ANSWER << 8);
		ck_assert_msg(strstr(text, hangs[row].text), "%s", text);
		ck_assert_msg(strstr(text, "it goes on with that, and is asleep or awake afterwards"), "%s", text);
		if (is_wake)
			return;
		ck_assert_int_eq(play_run_stat("wake", stat_text, sizeof(stat_text)), STAT_NO_ANSWER);
		ck_assert_msg(strstr(stat_text, "did not answer within 2 s"), "%s", stat_text);
	} else {
		ck_assert_ptr_nonnull(
			strstr(play_ask("status"), is_wake ? "\"state\":\"awake\"" : "\"state\":\"asleep\""));
	}
}

START_TEST(a_command_gives_up_a_process_that_hangs_in_a_sleep_or_wake_and_the_process_finishes_it)
{
	const char *env[] = {
		hangs[_i].stop, hangs[_i].is_wake ? "APP_ASLEEP=1" : "B=", VMM, GPU, "SIMGPU_DEADLOCK_MS=60000", NULL};

	if (!play_stat)
		return;
	row = (size_t)_i;
	play_run(&(struct play){.program = "app_sleep",
		.words = {"stopped"},
		.env = env,
		.preload = play_library,
		.at_pause = give_up});
	ck_assert_int_eq(play_status, 0);
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
	ck_assert_uint_eq(play_fact("races"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_sleep_that_fails_before_content_is_dropped_keeps_all_of_it, 0, LENGTH(drop_faults));
	tcase_add_loop_test(
		tc, a_call_that_the_driver_refuses_leaves_a_process_awake_or_asleep_and_never_wrong, 0, LENGTH(faults));
	tcase_add_loop_test(tc, content_of_several_pieces_sleeps_and_a_failure_leaves_no_host_memory_behind, 0, 2);
	tcase_add_test(tc, a_handler_of_a_signal_runs_after_the_memory_has_moved);
	tcase_add_loop_test(
		tc, a_wake_that_is_short_of_memory_says_so_and_waits_and_a_signal_ends_it, 0, LENGTH(shortages));
	tcase_add_test(tc, a_wake_that_is_short_of_memory_takes_none_until_there_is_enough);
	tcase_add_test(tc, a_process_that_gets_no_host_memory_stays_awake);
	tcase_add_loop_test(tc, a_process_that_is_killed_in_a_sleep_or_wake_leaves_its_memory_to_others_and_no_socket,
		0, LENGTH(moves));
	tcase_add_loop_test(tc,
		a_process_whose_client_is_killed_in_a_sleep_or_wake_carries_it_out_and_obeys_the_next_command, 0,
		LENGTH(moves));
	tcase_add_loop_test(tc, a_command_gives_up_a_process_that_hangs_in_a_sleep_or_wake_and_the_process_finishes_it,
		0, LENGTH(hangs));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"sleep_fault", add}, 1);
}
