/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Views by job: gpupool-stat list --by and oom --job. */

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/oom_name.h"
#include "stat_peer.h"
#include "tests/suite.h"

static void set_or_clear(const char *name, const char *value)
{
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
}

/* Starts a process with these labels, of which NULL stands for none. */
static pid_t start(const char *job, const char *rank, const char *pod, const char *namespace)
{
	pid_t pid;

	set_or_clear("SLURM_JOB_ID", job);
	set_or_clear("SLURM_PROCID", rank);
	set_or_clear("POD_NAME", pod);
	set_or_clear("POD_NAMESPACE", namespace);
	pid = peer_exec(peer_dir);
	set_or_clear("SLURM_JOB_ID", NULL);
	set_or_clear("SLURM_PROCID", NULL);
	set_or_clear("POD_NAME", NULL);
	set_or_clear("POD_NAMESPACE", NULL);
	return pid;
}

/* Checks that a line begins with the first text and contains the second one. */
static void check_line(const char *begin, const char *part)
{
	const char *line = stat_out;

	while (line && strncmp(line, begin, strlen(begin)) != 0)
		line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
	ck_assert_msg(line && *line, "no line begins with '%s' in:\n%s", begin, stat_out);
	ck_assert_msg(memmem(line, strcspn(line, "\n"), part, strlen(part)), "'%s' is not in '%.*s'", part,
		(int)strcspn(line, "\n"), line);
}

START_TEST(list_by_job_adds_up_the_processes_of_each_job_and_device)
{
	const char *last;

	start("8812", "0", NULL, NULL);
	start("8812", "1", NULL, NULL);
	start("977", NULL, NULL, NULL);
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(STAT("list", "--by=job"), 0);
	ck_assert_int_eq(strncmp(stat_out, "JOB   USER  ", 12), 0);
	check_line("8812  ", "0           2  1.50 GiB  924 MiB  2.41 GiB  ");
	check_line("977   ", "0           1   768 MiB  462 MiB  1.20 GiB  ");
	check_line("-     ", "0           1   768 MiB  462 MiB  1.20 GiB  ");
	/* Numbers are in their order, and processes without a job come last. */
	ck_assert(strstr(stat_out, "\n977") < strstr(stat_out, "\n8812"));
	last = strrchr(stat_out, '-');
	ck_assert(last > strstr(stat_out, "\n8812"));
}
END_TEST

START_TEST(list_by_user_has_one_row_for_each_device_of_a_user)
{
	start("8812", "0", NULL, NULL);
	start("977", NULL, NULL, NULL);
	ck_assert_int_eq(STAT("list", "--by=user"), 0);
	ck_assert_int_eq(strncmp(stat_out, "USER  DEVICE  PROCS ", 20), 0);
	stat_check_in(stat_out, "  0           2  1.50 GiB  924 MiB  2.41 GiB  ");
}
END_TEST

START_TEST(list_by_pod_has_the_namespace_and_keeps_the_end_of_a_long_name)
{
	start(NULL, NULL, "train-0", "research");
	start(NULL, NULL, "a-name-that-is-longer-than-any-column-of-the-table-0", "research");
	start(NULL, NULL, NULL, "lonely");
	ck_assert_int_eq(STAT("list", "--by=pod"), 0);
	check_line("research/train-0  ", "0           1 ");
	check_line("..-longer-than-any-column-of-the-table-0  ", "0           1 ");
	/* The third process names a namespace and no pod. */
	check_line("-     ", "0           1 ");
}
END_TEST

START_TEST(json_of_groups_has_their_processes_and_devices)
{
	pid_t one = start("8812", "0", NULL, NULL), other = start("8812", "1", NULL, NULL);
	json_t *list, *group, *device;

	ck_assert_int_eq(STAT("list", "--by=job", "--json"), 0);
	list = json_loads(stat_out, 0, NULL);
	ck_assert_str_eq(json_string_value(json_object_get(list, "schema")), "gpupool.list-by/1");
	ck_assert_uint_eq(json_array_size(json_object_get(list, "errors")), 0);
	ck_assert_uint_eq(json_array_size(json_object_get(list, "groups")), 1);
	group = json_array_get(json_object_get(list, "groups"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(group, "job")), "8812");
	ck_assert_int_eq(json_integer_value(json_object_get(group, "uid")), geteuid());
	ck_assert_uint_eq(json_array_size(json_object_get(group, "pids")), 2);
	ck_assert_int_eq(
		json_integer_value(json_array_get(json_object_get(group, "pids"), 0)), one < other ? one : other);
	ck_assert_int_eq(
		json_integer_value(json_array_get(json_object_get(group, "pids"), 1)), one < other ? other : one);
	device = json_array_get(json_object_get(group, "devices"), 0);
	ck_assert_int_eq(json_integer_value(json_object_get(device, "n_processes")), 2);
	ck_assert_int_eq(json_integer_value(json_object_get(device, "used_bytes")), 2 * 805306368LL);
	ck_assert_int_eq(json_integer_value(json_object_get(device, "unused_bytes")), 2 * 486539264LL);
	ck_assert_int_eq(json_integer_value(json_object_get(device, "total_bytes")), 2 * 1291845632LL);
	json_decref(list);
	start(NULL, NULL, "train-0", NULL);
	ck_assert_int_eq(STAT("list", "--by=pod", "--json"), 0);
	stat_check_in(stat_out, "{\"namespace\":null,\"pod\":\"train-0\",\"uid\":");
	stat_check_in(stat_out, "{\"namespace\":null,\"pod\":null,\"uid\":");
}
END_TEST

#define DEVICE(index, uuid, used, total)                                                                          \
	"{\"index\":" #index ",\"uuid\":\"GPU-" #uuid "-0\",\"used_bytes\":" #used ",\"cached_bytes\":1048576,\"" \
	"total_bytes\":" #total "}"
#define STATUS_OF(command, devices) \
	"{\"schema\":\"gpupool.status/2\",\"command\":\"" command "\",\"devices\":[" devices "]}"

/* Each rank may see its own device as device 0, and two ranks may number the same device differently. */
START_TEST(devices_of_a_group_are_distinguished_by_their_uuids)
{
	peer_start(PEER_ANSWERS, STATUS_OF("one", DEVICE(0, 11111111, 1048576, 2097152)));
	peer_start(PEER_ANSWERS, STATUS_OF("two", DEVICE(1, 11111111, 2097152, 4194304)));
	peer_start(PEER_ANSWERS, STATUS_OF("three", DEVICE(0, 22222222, 4194304, 8388608)));
	peer_start(PEER_ANSWERS, STATUS_OF("four", ""));
	ck_assert_int_eq(STAT("list", "--by=job"), 0);
	stat_check_in(stat_out, "  0 GPU-11111111      2  3.00 MiB  2.00 MiB  6.00 MiB  ");
	stat_check_in(stat_out, "  0 GPU-22222222      1  4.00 MiB  1.00 MiB  8.00 MiB  ");
	stat_check_in(stat_out, " two\n");
	stat_check_in(stat_out, "  -                   1         -         -         -  ");
	ck_assert_ptr_null(strstr(stat_out, " one\n"));
}
END_TEST

START_TEST(control_characters_in_a_job_never_reach_the_terminal)
{
	start("\033[2J8812", NULL,
		"\xe2\x80\xae"
		"pod",
		"\177");
	ck_assert_int_eq(STAT("list", "--by=job"), 0);
	check_line("?[2J8812  ", " 1 ");
	ck_assert_int_eq(STAT("list", "--by=pod"), 0);
	for (const char *c = stat_out; *c; c++)
		ck_assert((*c >= ' ' && *c != '\177') || *c == '\n');
	ck_assert_int_eq(STAT("oom", "--job=\033[2J8812"), 0);
	ck_assert_ptr_null(strchr(stat_out, '\033'));
	ck_assert_ptr_null(strchr(stat_err, '\033'));
}
END_TEST

static const struct {
	const char *words[STAT_WORDS];
	const char *err;
} mistakes[] = {
	{{"list", "--by=site"}, "--by: processes cannot be grouped by 'site'."},
	{{"list", "--by="}, "--by: processes cannot be grouped by ''."},
	{{"list", "--by=Job"}, "--by: processes cannot be grouped by 'Job'."},
	{{"list", "--by"}, "option '--by' needs a value."},
	{{"list", "--by=job", "-q"}, "list takes either --by or -q."},
	{{"list", "--by=job", "--query=pid"}, "list takes either --by or --query."},
	{{"list", "--by=job", "--format=csv"}, "list takes either --by or --format."},
	{{"leaks", "--by=job"}, "--by: blocks cannot be grouped by 'job'."},
	{{"status", "--by=job"}, "status does not take --by."},
	{{"oom", "--job="}, "--job: '' is not the name of a job."},
	{{"oom", "--job=1", "7"}, "oom takes either --job or process ids or a file."},
	{{"oom", "--job=1", "file"}, "oom takes either --job or process ids or a file."},
	{{"list", "--job=1"}, "list does not take --job."},
};

START_TEST(a_malformed_view_by_job_is_refused_with_advice)
{
	peer_start(PEER_ANSWERS, NULL);
	stat_check_refused(mistakes[_i].words, mistakes[_i].err);
}
END_TEST

START_TEST(list_by_job_without_processes_says_so)
{
	ck_assert_int_eq(STAT("list", "--by=job"), 3);
	ck_assert_str_eq(stat_out, "");
	stat_check_in(stat_err, "no gpupool processes");
	ck_assert_int_eq(STAT("list", "--by=job", "--json"), 3);
	ck_assert_str_eq(stat_out, "{\"schema\":\"gpupool.list-by/1\",\"groups\":[],\"errors\":[]}\n");
}
END_TEST

/* Returns the id of a process that has ended. */
static pid_t ended(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	return pid;
}

/* Saves a report as a process does that ends afterwards. labels: the JSON, with a comma behind it, or "". */
static pid_t save_report(const char *labels, const char *command, long seconds)
{
	const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
	char name[GP_CTL_NAME_MAX], path[256], text[1024];
	pid_t pid = ended();
	int fd;

	snprintf(text, sizeof(text),
		"{\"schema\":\"gpupool.oom/2\",\"pid\":%d,\"command\":\"%s\",%s\"n_ooms\":2,\"last\":{\"age_ns\":0,"
		"\"time\":%ld,\"kind\":\"device\",\"device\":0,\"requested_bytes\":1048576,\"cause\":\"full\"}}",
		(int)pid, command, labels, seconds);
	gp_oom_name_format(name, pid, 1);
	snprintf(path, sizeof(path), "%s/%s", peer_dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(futimens(fd, times), 0);
	close(fd);
	return pid;
}

START_TEST(oom_of_a_job_lists_live_and_ended_processes_of_that_job_only)
{
	pid_t live = start("8812", "0", NULL, NULL), other = start("977", "0", NULL, NULL);
	pid_t older = save_report("\"labels\":{\"job\":\"8812\",\"rank\":\"1\"},", "rank-one", 1000000000);
	pid_t newer = save_report("\"labels\":{\"job\":\"8812\",\"rank\":\"2\"},", "rank-two", 1000000100);
	pid_t foreign = save_report("\"labels\":{\"job\":\"88\",\"rank\":\"1\"},", "foreign", 1000000000);
	pid_t unlabelled = save_report("", "unlabelled", 1000000000);
	char begin[32];

	ck_assert_int_eq(STAT("oom", "--job=8812"), 0);
	stat_check_in(stat_out, "RANK  USER  STATE ");
	snprintf(begin, sizeof(begin), "%*d  0  ", 0, (int)live);
	stat_check_in(stat_out, "  running  ");
	stat_check_in(stat_out, "  ended    ");
	stat_check_in(stat_out, "1.00 GiB  full   ");
	stat_check_in(stat_out, "rank-one\n");
	stat_check_in(stat_out, "rank-two\n");
	/* The newest error comes first. */
	ck_assert(strstr(stat_out, "rank-two") < strstr(stat_out, "rank-one"));
	ck_assert_ptr_null(strstr(stat_out, "foreign"));
	ck_assert_ptr_null(strstr(stat_out, "unlabelled"));
	stat_check_in(stat_out, "gpupool-stat oom PID shows all of a report.\n");
	ck_assert_int_eq(STAT("oom", "--job=8812", "--json"), 0);
	stat_check_in(stat_out, "{\"schema\":\"gpupool.oom-list/2\",\"processes\":[{");
	snprintf(begin, sizeof(begin), "\"pid\":%d,", (int)older);
	stat_check_in(stat_out, begin);
	snprintf(begin, sizeof(begin), "\"pid\":%d,", (int)newer);
	stat_check_in(stat_out, begin);
	snprintf(begin, sizeof(begin), "\"pid\":%d,", (int)foreign);
	ck_assert_ptr_null(strstr(stat_out, begin));
	snprintf(begin, sizeof(begin), "\"pid\":%d,", (int)unlabelled);
	ck_assert_ptr_null(strstr(stat_out, begin));
	ck_assert_int_gt(other, 0);
}
END_TEST

START_TEST(oom_of_a_job_with_one_report_shows_it_in_full)
{
	pid_t pid = save_report("\"labels\":{\"job\":\"8812\",\"rank\":\"1\"},", "rank-one", 1000000000);
	char title[64];

	ck_assert_int_eq(STAT("oom", "--job", "8812"), 0);
	snprintf(title, sizeof(title), "pid %d has ended: rank-one\n2 out-of-memory errors", (int)pid);
	stat_check_in(stat_out, title);
}
END_TEST

#define NO_OOM "{\"schema\":\"gpupool.oom/2\",\"pid\":7,\"n_ooms\":0,\"last\":null}"

START_TEST(oom_of_an_unknown_job_says_so_with_exit_code_3)
{
	start("977", "0", NULL, NULL);
	ck_assert_int_eq(STAT("oom", "--job=8812"), 3);
	ck_assert_str_eq(stat_out, "");
	stat_check_in(stat_err, "no process and no saved report of job 8812 was found.\n");
	stat_check_in(stat_err, "Next: ");
	ck_assert_int_eq(STAT("oom", "--job=8812", "--json"), 3);
	stat_check_in(stat_out, "{\"schema\":\"gpupool.oom-list/2\",\"processes\":[],");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, list_by_job_adds_up_the_processes_of_each_job_and_device);
	tcase_add_test(tc, list_by_user_has_one_row_for_each_device_of_a_user);
	tcase_add_test(tc, list_by_pod_has_the_namespace_and_keeps_the_end_of_a_long_name);
	tcase_add_test(tc, json_of_groups_has_their_processes_and_devices);
	tcase_add_test(tc, devices_of_a_group_are_distinguished_by_their_uuids);
	tcase_add_test(tc, control_characters_in_a_job_never_reach_the_terminal);
	tcase_add_loop_test(tc, a_malformed_view_by_job_is_refused_with_advice, 0, LENGTH(mistakes));
	tcase_add_test(tc, list_by_job_without_processes_says_so);
	tcase_add_test(tc, oom_of_a_job_lists_live_and_ended_processes_of_that_job_only);
	tcase_add_test(tc, oom_of_a_job_with_one_report_shows_it_in_full);
	tcase_add_test(tc, oom_of_an_unknown_job_says_so_with_exit_code_3);
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_jobs", add);
}
