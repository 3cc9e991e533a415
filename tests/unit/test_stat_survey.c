/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * How gpupool-stat asks many processes, of which most are hostile: within one deadline, and with bounds for each user.
 * Time is counted: it passes where the survey waits. The sockets are listened at in this process, on behalf of others
 * that have ended: what the kernel says of a socket is who called listen().
 */

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/ctl_proto.h"
#include "tests/suite.h"
#include "tools/stat_metrics.h"
#include "tools/stat_round.h"
#include "tools/stat_survey.h"

enum { PEERS_MAX = 8192, TIMEOUT_MS = 2000, STRANGER = 65533, N_UIDS = 40, FIRST_UID = 20000 };

static struct peer {
	int listener, client; /* one client at a time */
	const char *answer;   /* NULL: silent */
	const char *rest;     /* of the answer to the client; NULL: it has not asked yet */
	uid_t asked_by;
} peers[PEERS_MAX];
static int n_peers, n_asked;
static char root[64];
static int64_t now_ns;

/* What is called in place of poll() and clock_gettime(). */
int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int fuzz_clock_gettime(clockid_t clock, struct timespec *ret_time);

static void take_client(struct peer *peer)
{
	struct ucred client;
	socklen_t length = sizeof(client);

	peer->client = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	peer->rest = NULL;
	if (peer->client < 0)
		return;
	ck_assert_int_eq(getsockopt(peer->client, SOL_SOCKET, SO_PEERCRED, &client, &length), 0);
	peer->asked_by = client.uid;
}

static void serve(struct peer *peer)
{
	char request[256];
	ssize_t n;

	if (peer->client < 0)
		take_client(peer);
	if (peer->client < 0)
		return;
	if (!peer->rest && recv(peer->client, request, sizeof(request), 0) > 0) {
		n_asked++;
		peer->rest = peer->answer;
	}
	while (peer->rest && *peer->rest && (n = send(peer->client, peer->rest, strlen(peer->rest), MSG_NOSIGNAL)) > 0)
		peer->rest += n;
	if (!peer->rest || *peer->rest)
		return;
	close(peer->client);
	peer->client = -1;
}

int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	struct rlimit limit, most;
	int n_ready;

	/* The peers have descriptors of their own. */
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	most = (struct rlimit){limit.rlim_max, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &most), 0);
	for (int i = 0; i < n_peers; i++)
		serve(&peers[i]);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	n_ready = poll(fds, n, 0);
	now_ns += n_ready ? 1000 : (timeout_ms > 0 ? timeout_ms : 1) * INT64_C(1000000);
	return n_ready;
}

int fuzz_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	*ret_time = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
	return 0;
}

/* In a child, so that the kernel names that, as that user. */
static void listen_as(int fd, uid_t uid)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(setuid(uid) != 0 || listen(fd, 8) != 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}

/* The socket of a process in a directory. as_one: of one process, whatever its name is. */
static void add_peer(const char *dir, uid_t uid, const char *answer, bool as_one)
{
	struct peer *peer = &peers[n_peers++];
	int dir_fd = open(dir, O_PATH | O_CLOEXEC);
	char name[GP_CTL_NAME_MAX], state;
	struct sockaddr_un address;
	uint64_t start_ticks;
	socklen_t length;

	ck_assert_int_lt(n_peers, PEERS_MAX);
	ck_assert_int_eq(gp_ctl_process_stat(0, &start_ticks, &state), 0);
	gp_ctl_name_format(name, getpid(), start_ticks + (unsigned)n_peers);
	*peer = (struct peer){socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), -1, answer, NULL,
		(uid_t)-1};
	ck_assert_int_eq(gp_ctl_address(dir_fd, name, &address, &length), 0);
	ck_assert_int_eq(bind(peer->listener, (struct sockaddr *)&address, length), 0);
	ck_assert_int_eq(fchownat(dir_fd, name, uid, (gid_t)-1, 0), 0);
	close(dir_fd);
	if (as_one) {
		ck_assert_int_eq(seteuid(uid), 0);
		ck_assert_int_eq(listen(peer->listener, 8), 0);
		ck_assert_int_eq(seteuid(0), 0);
	} else if (uid == geteuid()) {
		ck_assert_int_eq(listen(peer->listener, 8), 0);
	} else {
		listen_as(peer->listener, uid);
	}
}

static const char status_text[] = "{\"schema\":\"gpupool.status/1\",\"pid\":7,\"command\":\"train\",\"devices\":[]}\n";

static struct stat_question question_of(int timeout_ms)
{
	return (struct stat_question){
		.request = "status\n",
		.schema = "status",
		.max_bytes = 1 << 20,
		.timeout_ms = timeout_ms,
	};
}

static void setup(void)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	strcpy(root, "/tmp/gpupool-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	setenv("GPUPOOL_RUNTIME_DIR", root, 1);
	setenv("TMPDIR", root, 1);
	unsetenv("XDG_RUNTIME_DIR");
	n_peers = n_asked = 0;
}

static void teardown(void)
{
	char command[128];

	for (int i = 0; i < n_peers; i++) {
		close(peers[i].listener);
		if (peers[i].client >= 0)
			close(peers[i].client);
	}
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	ck_assert_int_eq(system(command), 0);
}

static size_t count_answers(const struct stat_survey *survey)
{
	size_t n = 0;

	for (size_t i = 0; i < survey->n_processes; i++)
		n += survey->processes[i].reply != NULL;
	return n;
}

static bool has_descriptors(int n)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur >= (rlim_t)n)
		return true;
	printf("# skipped: it takes %d descriptors\n", n);
	return false;
}

START_TEST(silent_processes_take_one_timeout_together)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;
	int64_t begin_ns = now_ns;

	if (!has_descriptors(2000))
		return;
	for (int i = 0; i < 700; i++)
		add_peer(root, geteuid(), NULL, false);
	stat_survey_run(&survey, &question);
	ck_assert_int_le((now_ns - begin_ns) / 1000000, TIMEOUT_MS + 1);
	ck_assert_uint_eq(survey.n_processes, 700);
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(a_process_that_answers_is_asked_although_hundreds_are_silent)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;

	if (!has_descriptors(2000))
		return;
	for (int i = 0; i < 350; i++)
		add_peer(root, geteuid(), NULL, false);
	for (int i = 0; i < 10; i++)
		add_peer(root, geteuid(), status_text, false);
	for (int i = 0; i < 350; i++)
		add_peer(root, geteuid(), NULL, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(count_answers(&survey), 10);
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(two_thousand_own_processes_are_all_asked)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;
	char why[STAT_ERROR_MAX];

	if (!has_descriptors(4000))
		return;
	for (int i = 0; i < 2000; i++)
		add_peer(root, geteuid(), status_text, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(count_answers(&survey), 2000);
	ck_assert_int_eq(n_asked, 2000);
	ck_assert(!stat_survey_is_incomplete(&survey, why));
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(a_survey_that_is_repeated_keeps_connections_and_waits_for_silent_processes_once)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey = {0};
	int64_t begin_ns;

	add_peer(root, geteuid(), NULL, false);
	add_peer(root, geteuid(), status_text, false);
	stat_survey_again(&survey, &question);
	ck_assert_uint_eq(count_answers(&survey), 1);
	for (int i = 0; i < 3; i++) {
		begin_ns = now_ns;
		stat_survey_again(&survey, &question);
		ck_assert_uint_eq(survey.n_processes, 2);
		ck_assert_uint_eq(count_answers(&survey), 1);
		ck_assert_int_lt((now_ns - begin_ns) / 1000000, TIMEOUT_MS / 2);
	}
	/* The silent one was asked once, and has the connection of then. */
	ck_assert_int_eq(n_asked, 1 + 4);
	peers[0].rest = status_text;
	stat_survey_again(&survey, &question);
	ck_assert_uint_eq(count_answers(&survey), 2);
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(processes_for_which_there_is_no_time_make_it_incomplete)
{
	struct stat_question question = question_of(0);
	struct stat_survey survey;
	char why[STAT_ERROR_MAX];

	for (int i = 0; i < 3; i++)
		add_peer(root, geteuid(), status_text, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(survey.n_processes, 0);
	ck_assert(stat_survey_is_incomplete(&survey, why));
	ck_assert_str_eq(why, "sockets for which there was no time (3)");
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(fewer_descriptors_than_processes_are_enough)
{
	static const rlim_t limits[] = {40, 24, 3};
	struct stat_question question = question_of(TIMEOUT_MS);
	struct rlimit limit, few;
	struct stat_survey survey;

	for (int i = 0; i < 60; i++)
		add_peer(root, geteuid(), status_text, false);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = (struct rlimit){limits[_i] + (rlim_t)peers[n_peers - 1].listener, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_eq(count_answers(&survey), 60);
	stat_survey_deinit(&survey);
}
END_TEST

/* As root only: processes of others. */

START_TEST(a_foreign_process_is_asked_once_whatever_sockets_it_has)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;

	ck_assert_int_eq(chown(root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < 300; i++)
		add_peer(root, STRANGER, status_text, true);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(n_asked, 1);
	ck_assert_uint_eq(survey.n_processes, 1);
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(of_a_foreign_user_a_limited_number_of_processes_is_asked)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;
	char why[STAT_ERROR_MAX];

	ck_assert_int_eq(chown(root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < STAT_USER_PROCESSES + 10; i++)
		add_peer(root, STRANGER, status_text, false);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(n_asked, STAT_USER_PROCESSES);
	ck_assert(stat_survey_is_incomplete(&survey, why));
	ck_assert_str_eq(why, "processes beyond the share of their user (10)");
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(a_foreign_directory_is_read_up_to_a_limit_whatever_is_in_it)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;
	char path[128], why[STAT_ERROR_MAX];

	ck_assert_int_eq(chown(root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < 17000; i++) {
		snprintf(path, sizeof(path), "%s/%d", root, i);
		ck_assert_int_eq(mknod(path, S_IFREG | 0600, 0), 0);
	}
	stat_survey_run(&survey, &question);
	ck_assert(stat_survey_is_incomplete(&survey, why));
	ck_assert_str_eq(why, "directories with too many entries (1)");
	stat_survey_deinit(&survey);
}
END_TEST

/* A million of values for each of 40 answers would be gigabytes. */
START_TEST(the_values_of_a_foreign_user_are_bounded_over_all_answers)
{
	static char text[100000];
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;
	size_t n_values = 0, n = 0;
	char why[STAT_ERROR_MAX];

	n = (size_t)sprintf(text, "{\"schema\":\"gpupool.status/1\",\"x\":[");
	while (n < 90000)
		n += (size_t)sprintf(text + n, "{},");
	strcpy(text + n, "{}]}\n");
	ck_assert_int_eq(chown(root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < 40; i++)
		add_peer(root, STRANGER, text, false);
	stat_survey_run(&survey, &question);
	for (size_t i = 0; i < survey.n_processes; i++)
		n_values += json_array_size(json_object_get(survey.processes[i].reply, "x"));
	ck_assert_uint_gt(n_values, 0);
	ck_assert_uint_le(2 * n_values, STAT_USER_VALUES); /* each has a comma */
	ck_assert(stat_survey_is_incomplete(&survey, why));
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(the_bytes_of_a_foreign_user_are_bounded_over_all_answers)
{
	enum { BYTES = 1000000, N = 20 };
	static char text[BYTES + 64];
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;
	size_t n = (size_t)sprintf(text, "{\"schema\":\"gpupool.status/1\",\"x\":\"");

	memset(text + n, 'x', BYTES - n);
	strcpy(text + BYTES, "\"}\n");
	ck_assert_int_eq(chown(root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < N; i++)
		add_peer(root, STRANGER, text, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(count_answers(&survey), STAT_USER_BYTES / (BYTES + 2));
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(an_answer_has_no_more_values_than_an_honest_one_can)
{
	static char text[300000];
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;
	size_t n = (size_t)sprintf(text, "{\"schema\":\"gpupool.status/1\",\"x\":[0");

	for (int i = 0; i < 70000; i++)
		n += (size_t)sprintf(text + n, ",0");
	strcpy(text + n, "]}\n");
	add_peer(root, geteuid(), text, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(survey.n_processes, 1);
	ck_assert_str_eq(survey.processes[0].error, "gave an answer that has too many values");
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(root_connects_as_the_owner_of_the_directory)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;

	ck_assert_int_eq(chown(root, STRANGER, (gid_t)-1), 0);
	add_peer(root, STRANGER, status_text, false);
	stat_survey_run(&survey, &question);
	ck_assert_uint_eq(count_answers(&survey), 1);
	ck_assert_uint_eq(peers[0].asked_by, STRANGER);
	ck_assert_uint_eq(geteuid(), 0);
	stat_survey_deinit(&survey);
}
END_TEST

/* One device with as many series as a process can have; the test counts the lines of all of them. */
START_TEST(the_series_of_a_foreign_user_are_bounded)
{
	enum { N = 20 };
	static char text[1 << 19];
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;
	size_t n = (size_t)sprintf(text, "{\"schema\":\"gpupool.status/1\",\"devices\":["), length = 0, n_lines = 0;
	char *metrics = NULL;
	FILE *out = open_memstream(&metrics, &length);

	for (int i = 0; i < 64; i++) {
		n += (size_t)sprintf(text + n, "%s{\"index\":%d,\"used_bytes\":1,\"by_region\":[", i ? "," : "", i);
		for (int k = 0; k < 64; k++)
			n += (size_t)sprintf(text + n, "%s{\"name\":\"r%d\",\"used_bytes\":1}", k ? "," : "", k);
		n += (size_t)sprintf(text + n, "]}");
	}
	strcpy(text + n, "]}\n");
	ck_assert_int_eq(chown(root, STRANGER, (gid_t)-1), 0);
	for (int i = 0; i < N; i++)
		add_peer(root, STRANGER, text, false);
	stat_survey_run(&survey, &question);
	stat_metrics_write(out, &survey, STAT_METRICS_OPENMETRICS);
	fclose(out);
	for (const char *line = metrics; (line = strchr(line, '\n')) != NULL; line++)
		n_lines++;
	ck_assert_uint_gt(n_lines, 1000);
	ck_assert_uint_lt(n_lines, 51000);
	ck_assert_ptr_nonnull(strstr(metrics, "\ngpupool_incomplete 1\n"));
	free(metrics);
	stat_survey_deinit(&survey);
}
END_TEST

/* A /tmp of its own, so that the usual directories are only those of the test. False: not permitted here. */
static bool make_own_tmp(void)
{
	if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		mount("none", "/tmp", "tmpfs", 0, "mode=1777") == 0) {
		unsetenv("GPUPOOL_RUNTIME_DIR");
		setenv("TMPDIR", "/tmp", 1);
		return true;
	}
	printf("# skipped: a mount of its own is not permitted\n");
	return false;
}

static void make_dir(char dir[static 64], unsigned uid)
{
	snprintf(dir, 64, "/tmp/gpupool-%u", uid);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	ck_assert_int_eq(chown(dir, uid, (gid_t)-1), 0);
}

static bool has_answer_of(const struct stat_survey *survey, uid_t uid)
{
	for (size_t i = 0; i < survey->n_processes; i++)
		if (survey->processes[i].uid == uid && survey->processes[i].reply)
			return true;
	return false;
}

START_TEST(directories_without_number_hide_no_process)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct rlimit limit, few;
	struct stat_survey survey;
	char dir[64];

	if (!make_own_tmp())
		return;
	for (unsigned i = 0; i < 200; i++)
		make_dir(dir, FIRST_UID + i);
	make_dir(dir, FIRST_UID + 200);
	add_peer(dir, FIRST_UID + 200, status_text, false);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = (struct rlimit){64, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(has_answer_of(&survey, FIRST_UID + 200));
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(silent_users_leave_room_for_others)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct stat_survey survey;
	int64_t begin_ns = now_ns;
	char dir[64];

	if (!make_own_tmp())
		return;
	for (unsigned i = 0; i < N_UIDS; i++) {
		make_dir(dir, FIRST_UID + i);
		for (int k = 0; k < 8; k++)
			add_peer(dir, FIRST_UID + i, NULL, false);
	}
	make_dir(dir, FIRST_UID + N_UIDS);
	add_peer(dir, FIRST_UID + N_UIDS, status_text, false);
	stat_survey_run(&survey, &question);
	ck_assert(has_answer_of(&survey, FIRST_UID + N_UIDS));
	ck_assert_int_le((now_ns - begin_ns) / 1000000, TIMEOUT_MS + 1);
	stat_survey_deinit(&survey);
}
END_TEST

START_TEST(directories_that_cannot_be_opened_make_it_incomplete)
{
	struct stat_question question = question_of(TIMEOUT_MS);
	struct rlimit limit, none;
	struct stat_survey survey;
	char why[STAT_ERROR_MAX];
	int next_fd;

	add_peer(root, geteuid(), status_text, false);
	next_fd = dup(0);
	close(next_fd);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){(rlim_t)next_fd, limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	stat_survey_run(&survey, &question);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert(stat_survey_is_incomplete(&survey, why));
	ck_assert_ptr_nonnull(strstr(why, "too many open files"));
	stat_survey_deinit(&survey);
}
END_TEST

static TCase *make_case(void)
{
	TCase *tc = tcase_create("stat_survey");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, silent_processes_take_one_timeout_together);
	tcase_add_test(tc, a_process_that_answers_is_asked_although_hundreds_are_silent);
	tcase_add_test(tc, two_thousand_own_processes_are_all_asked);
	tcase_add_test(tc, a_survey_that_is_repeated_keeps_connections_and_waits_for_silent_processes_once);
	tcase_add_test(tc, processes_for_which_there_is_no_time_make_it_incomplete);
	tcase_add_loop_test(tc, fewer_descriptors_than_processes_are_enough, 0, 3);
	tcase_add_test(tc, an_answer_has_no_more_values_than_an_honest_one_can);
	tcase_add_test(tc, directories_that_cannot_be_opened_make_it_incomplete);
	if (geteuid() != 0) {
		printf("# skipped: processes of other users take root\n");
		return tc;
	}
	tcase_add_test(tc, a_foreign_process_is_asked_once_whatever_sockets_it_has);
	tcase_add_test(tc, of_a_foreign_user_a_limited_number_of_processes_is_asked);
	tcase_add_test(tc, a_foreign_directory_is_read_up_to_a_limit_whatever_is_in_it);
	tcase_add_test(tc, the_values_of_a_foreign_user_are_bounded_over_all_answers);
	tcase_add_test(tc, the_bytes_of_a_foreign_user_are_bounded_over_all_answers);
	tcase_add_test(tc, root_connects_as_the_owner_of_the_directory);
	tcase_add_test(tc, the_series_of_a_foreign_user_are_bounded);
	tcase_add_test(tc, directories_without_number_hide_no_process);
	tcase_add_test(tc, silent_users_leave_room_for_others);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("stat_survey");

	suite_add_tcase(suite, make_case());
	return suite_run(suite);
}
