/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Output for scripts and monitoring systems: fields as CSV, a check line with an exit code, and labels. */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ctl_proto.h"
#include "stat_peer.h"

/* Compares the output. PID in the expected text stands for the process id. */
static void check_out(const char *expected, pid_t pid)
{
	char text[4096];
	int length = 0;

	for (const char *sign; (sign = strstr(expected, "PID")) != NULL; expected = sign + 3)
		length += snprintf(text + length, sizeof(text) - (size_t)length, "%.*s%d", (int)(sign - expected),
			expected, (int)pid);
	snprintf(text + length, sizeof(text) - (size_t)length, "%s", expected);
	ck_assert_str_eq(stat_out, text);
}

static const struct {
	const char *words[STAT_WORDS];
	const char *out;
} queries[] = {
	{{"list", "--query=pid,used_bytes,pool", "--format=csv"},
		"pid, used_bytes [B], pool\nPID, 805306368 B, split\n"},
	{{"list", "--query=used_bytes,hits,command"},
		"used_bytes [B], hits, command\n805306368 B, 999, python train.py\n"},
	{{"list", "--query=pid,uptime_ns", "--format=csv,noheader"}, "PID, 11520000000000 ns\n"},
	{{"list", "--query=uptime_ns", "--format=csv,nounits"}, "uptime_ns\n11520000000000\n"},
	{{"status", "--query=device,limit_bytes,device_free_bytes", "--format=csv,noheader,nounits"},
		"0, [N/A], 15128363008\n"},
	{{"status", "--query=device,uuid", "--format=csv,noheader"}, "0, [N/A]\n"},
	{{"status", "--query=device, outside_bytes", "--format=csv,nounits,noheader"}, "0, 484790272\n"},
	{{"status", "--format=csv,noheader,nounits"},
		"PID, 0, 805306368, 484442112, 2097152, 1291845632, [N/A], 15128363008\n"},
	{{"list", "--query=user,labels", "--format=csv,noheader", "--watch=0.01", "--count=2"}, "root, \nroot, \n"},
};

START_TEST(queried_fields_are_printed_as_csv)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(stat_execute(geteuid(), queries[_i].words), 0);
	if (!strstr(queries[_i].out, "root") || geteuid() == 0)
		check_out(queries[_i].out, pid);
	ck_assert_str_eq(stat_err, "");
}
END_TEST

START_TEST(a_csv_value_that_contains_a_separator_is_quoted)
{
	peer_start(PEER_ANSWERS, "{\"schema\":\"gpupool.status/2\",\"command\":\"a, \\\"b\\\"\\n\\u001b[2J\"}");
	ck_assert_int_eq(STAT("list", "--query=command,used_bytes", "--format=csv,noheader,nounits"), 0);
	ck_assert_str_eq(stat_out, "\"a, \"\"b\"\"??[2J\", 0\n");
	ck_assert_int_eq(STAT("list", "--query=used_bytes,command,pool", "--format=csv,noheader,nounits"), 0);
	ck_assert_str_eq(stat_out, "0,\"a, \"\"b\"\"??[2J\", ?\n");
}
END_TEST

static const struct {
	const char *command, *out;
} formulas[] = {
	{"=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0, 0\n"},
	{"+1", "'+1, 0\n"},
	{"-bash", "'-bash, 0\n"},
	{"@SUM(1,2)", "\"'@SUM(1,2)\", 0\n"},
	{"a=b", "a=b, 0\n"},
};

START_TEST(a_csv_value_that_a_spreadsheet_would_evaluate_gets_an_apostrophe)
{
	char status[128];

	snprintf(status, sizeof(status), "{\"schema\":\"gpupool.status/2\",\"command\":\"%s\"}", formulas[_i].command);
	peer_start(PEER_ANSWERS, status);
	ck_assert_int_eq(STAT("list", "--query=command,used_bytes", "--format=csv,noheader,nounits"), 0);
	ck_assert_str_eq(stat_out, formulas[_i].out);
}
END_TEST

static const struct {
	const char *words[STAT_WORDS];
	const char *err;
	int exit;
} mistakes[] = {
	{{"list", "--query=pid,frob"}, "--query: there is no field 'frob'.\n", 2},
	{{"list", "--query=device"}, "--query: there is no field 'device'.\n", 2},
	{{"list", "--query="}, "--query: there is no field ''.\n", 2},
	{{"list", "--query=pid", "--format=xml"}, "--format: 'xml' is not a known format.\n", 2},
	{{"list", "--query=pid", "--format=noheader"}, "--format: 'noheader' is not a known format.\n", 2},
	{{"list", "--query=pid", "--json"}, "--query cannot be used with --json.\n", 2},
	{{"list", "--query=pid", "-q"}, "--query cannot be used with -q.\n", 2},
	{{"blocks", "--query=pid"}, "blocks does not take --query.\n", 2},
	{{"check", "--warn=frob=3"}, "--warn: 'frob=3' is not a level.\n", 3},
	{{"check", "--watch=1", "--warn=frob=3"}, "--warn: 'frob=3' is not a level.\n", 3},
	{{"check", "--crit=total=x"}, "--crit: 'total=x' is not a level.\n", 3},
	{{"check", "--crit=ooms=5%"}, "--crit: 'ooms=5%' is not a level.\n", 3},
	{{"check", "--crit="}, "", 3},
	{{"check", "--zzz"}, "there is no option '--zzz'.\n", 3},
	{{"--zzz", "check"}, "there is no option '--zzz'.\n", 3},
	{{"--timeout", "x", "check"}, "--timeout: 'x' is not a number of seconds from 0.001 to 86400.\n", 3},
	{{"check", "x"}, "'x' is not a process id.\n", 3},
};

START_TEST(malformed_queries_and_check_levels_are_refused)
{
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(stat_execute(geteuid(), mistakes[_i].words), mistakes[_i].exit);
	stat_check_in(stat_err, mistakes[_i].err);
	ck_assert_str_eq(stat_out, "");
}
END_TEST

/*
 * The process uses 768 MiB of the 1.20 GiB that it has taken from a device of 15.7 GiB, of which 1.65 GiB are
 * in use. It has no limit. It had two out-of-memory errors of the device, and two of pinned memory.
 */
#define OOMS "pid PID device 0 ooms 2 reaches 1; pid PID pinned ooms 2 reaches 1 | '"
static const struct {
	const char *words[STAT_WORDS];
	const char *out;
	int exit;
} checks[] = {
	{{"check"}, "GPUPOOL WARNING - " OOMS, 1},
	{{"check", "--warn=ooms=3"}, "GPUPOOL OK - 1 process | '", 0},
	{{"check", "--warn=4%"}, "GPUPOOL WARNING - pid PID device 0 used 768 MiB reaches 645 MiB; " OOMS, 1},
	{{"check", "--warn=total=5%"}, "GPUPOOL WARNING - pid PID device 0 total 1.20 GiB reaches 806 MiB; " OOMS, 1},
	{{"check", "--warn=5%,ooms=3", "--crit=total=1GiB"},
		"GPUPOOL CRITICAL - pid PID device 0 total 1.20 GiB reaches 1.00 GiB | '", 2},
	{{"check", "--crit=ooms=2"},
		"GPUPOOL CRITICAL - pid PID device 0 ooms 2 reaches 2; pid PID pinned ooms 2 reaches 2 | '", 2},
	{{"check", "--warn=ooms=3,used=1GiB,cached=1GiB,pending=1GiB,outside=1GiB,device=11%"},
		"GPUPOOL OK - 1 process | '", 0},
	{{"check", "--warn=device=10%,ooms=3"},
		"GPUPOOL WARNING - pid PID device 0 device 1.65 GiB reaches 1.57 GiB | '", 1},
	{{"check", "--warn=outside=400MiB,ooms=3"},
		"GPUPOOL WARNING - pid PID device 0 outside 462 MiB reaches 400 MiB | '", 1},
};

#define CHECK "{\"schema\":\"gpupool.check/1\",\"state\":\""

static const struct {
	const char *words[STAT_WORDS];
	const char *out;
	int exit;
} json_checks[] = {
	{{"check", "--json", "--warn=ooms=3"},
		CHECK "OK\",\"code\":0,\"n_processes\":1,\"text\":\"\",\"problems\":[]}\n", 0},
	{{"check", "--json", "--crit=ooms=2"},
		CHECK "CRITICAL\",\"code\":2,\"n_processes\":1,\"text\":\"pid PID device 0 ooms 2 reaches 2; "
		      "pid PID pinned ooms 2 reaches 2\",\"problems\":["
		      "{\"state\":\"CRITICAL\",\"pid\":PID,\"device\":0,\"what\":\"ooms\","
		      "\"value\":2,\"level\":2},"
		      "{\"state\":\"CRITICAL\",\"pid\":PID,\"device\":null,\"what\":\"ooms\","
		      "\"value\":2,\"level\":2}]}\n",
		2},
};

START_TEST(check_can_report_problems_as_json)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(stat_execute(geteuid(), json_checks[_i].words), json_checks[_i].exit);
	check_out(json_checks[_i].out, pid);
}
END_TEST

START_TEST(check_reports_in_json_that_there_is_no_process)
{
	ck_assert_int_eq(STAT("check", "--json"), 3);
	ck_assert_str_eq(stat_out, CHECK
		"UNKNOWN\",\"code\":3,\"n_processes\":0,\"text\":\"no process with gpupool\",\"problems\":["
		"{\"state\":\"UNKNOWN\",\"pid\":null,\"device\":null,\"what\":null,\"value\":null,\"level\":null}]}\n");
}
END_TEST

START_TEST(check_levels_determine_the_exit_code)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char *bar;

	ck_assert_int_eq(stat_execute(geteuid(), checks[_i].words), checks[_i].exit);
	bar = strstr(stat_out, "| '");
	ck_assert_ptr_nonnull(bar);
	ck_assert_ptr_eq(strchr(stat_out, '\n'), stat_out + strlen(stat_out) - 1);
	bar[3] = '\0';
	check_out(checks[_i].out, pid);
	ck_assert_str_eq(stat_err, "");
}
END_TEST

START_TEST(check_performance_data_has_levels_and_bounds)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char expected[256];

	ck_assert_int_eq(STAT("check", "--warn=total=50%,ooms=3", "--crit=total=8GiB"), 0);
	snprintf(expected, sizeof(expected),
		"| 'pid %d device 0 total'=1291845632B;8452499456;8589934592;0;16904998912 'pid %d device 0 used'=",
		(int)pid, (int)pid);
	stat_check_in(stat_out, expected);
	stat_check_in(stat_out, " ooms'=2;3;;0\n");
}
END_TEST

#define PROCESS(total, used, unpooled, limit, ooms)                                                     \
	"{\"schema\":\"gpupool.status/2\",\"devices\":[{\"index\":0,\"total_bytes\":" #total            \
	",\"cached_bytes\":0,\"used_bytes\":" #used ",\"unpooled_bytes\":" #unpooled ",\"ooms\":" #ooms \
	",\"limit_bytes\":" #limit ",\"device_total_bytes\":9000}],\"pinned\":{\"ooms\":0}}"

static const struct {
	const char *answer, *out;
	int exit;
} judged[] = {
	{PROCESS(1000, 0, 0, 1000, 0), "GPUPOOL OK - 1 process | '", 0}, /* all of it cached */
	{PROCESS(1000, 799, 0, 1000, 0), "GPUPOOL OK - 1 process | '", 0},
	{PROCESS(1000, 800, 0, 1000, 0), "GPUPOOL WARNING - pid PID device 0 used 800 B reaches 800 B | '", 1},
	{PROCESS(1000, 100, 850, 1000, 0), "GPUPOOL CRITICAL - pid PID device 0 used 950 B reaches 950 B | '", 2},
	{PROCESS(8000, 1000, 0, null, 0), "GPUPOOL OK - 1 process | '", 0}, /* a share of the device */
	{PROCESS(8000, 7500, 0, null, 0), "GPUPOOL WARNING - pid PID device 0 used 7.32 KiB reaches 7.03 KiB | '", 1},
	{PROCESS(1000, 0, 0, 1000, 1), "GPUPOOL WARNING - pid PID device 0 ooms 1 reaches 1 | '", 1},
};

START_TEST(a_check_judges_used_memory_and_warns_at_the_first_out_of_memory)
{
	pid_t pid = peer_start(PEER_ANSWERS, judged[_i].answer);
	char *bar;

	ck_assert_int_eq(STAT("check"), judged[_i].exit);
	bar = strstr(stat_out, "| '");
	ck_assert_ptr_nonnull(bar);
	bar[3] = '\0';
	check_out(judged[_i].out, pid);
}
END_TEST

/* Reports the maximum number of devices, and checks that each appears once on a complete line. */
START_TEST(check_performance_data_has_every_device)
{
	char answer[16384] = "{\"schema\":\"gpupool.status/2\",\"devices\":[", *at;
	pid_t pid;
	int n = 0;

	for (int i = 0; i < 70; i++)
		snprintf(answer + strlen(answer), sizeof(answer) - strlen(answer),
			"%s{\"index\":%d,\"total_bytes\":%d,\"used_bytes\":1,\"ooms\":0,\"device_total_bytes\":99}",
			i ? "," : "", i < 66 ? i : 0, i ? 1 : 98);
	strcat(answer, "]}");
	pid = peer_start(PEER_ANSWERS, answer);
	ck_assert_int_eq(STAT("check", "--warn=total=98B", "--crit=total=99B", stat_word(pid)), 1);
	snprintf(answer, sizeof(answer), "GPUPOOL WARNING - pid %d device 0 total 98 B reaches 98 B |", (int)pid);
	ck_assert_ptr_eq(strstr(stat_out, answer), stat_out);
	for (at = stat_out; (at = strstr(at, " 'pid ")); at++)
		n++;
	ck_assert_int_eq(n, 64 * 3);
	snprintf(answer, sizeof(answer), " 'pid %d device 63 ooms'=0;1;;0\n", (int)pid);
	ck_assert_str_eq(strstr(stat_out, " 'pid") ? stat_out + strlen(stat_out) - strlen(answer) : "", answer);
}
END_TEST

START_TEST(a_socket_directory_whose_name_is_not_valid_text_works)
{
	char dir[128];

	snprintf(dir, sizeof(dir), "%s/a\xff\033", peer_dir);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	peer_exec(dir);
	setenv("GPUPOOL_RUNTIME_DIR", dir, 1);
	ck_assert_int_eq(STAT("list", "--json"), 0);
	stat_check_in(stat_out, "/a?"
				"?/");
}
END_TEST

START_TEST(a_silent_process_makes_a_check_unknown_unless_another_reaches_a_level)
{
	pid_t silent;

	ck_assert_int_eq(STAT("check"), 3);
	ck_assert_str_eq(stat_out, "GPUPOOL UNKNOWN - no process with gpupool\n");
	peer_start(PEER_ANSWERS, NULL);
	silent = peer_start(PEER_SILENT, NULL);
	ck_assert_int_eq(STAT("check", "--timeout=0.2", "--warn=ooms=3"), 3);
	stat_check_in(stat_out, "GPUPOOL UNKNOWN - pid ");
	stat_check_in(stat_out, " did not answer within 0.2 s. | '");
	ck_assert_int_eq(STAT("check", "--timeout=0.2", "--warn=1%"), 1);
	stat_check_in(stat_out, "; pid ");
	peer_kill(silent);
	ck_assert_int_eq(STAT("check", stat_word(silent)), 3);
	stat_check_in(stat_out, " does not exist.\n");
}
END_TEST

START_TEST(an_error_text_of_a_process_cannot_break_the_check_line)
{
	peer_start(
		PEER_ANSWERS, "{\"schema\":\"gpupool.error/1\",\"reason\":\"failed\",\"error\":\"a|b\\n\\u001b[2J\"}");
	ck_assert_int_eq(STAT("check"), 3);
	stat_check_in(stat_out, " says: a/b??[2J\n");
}
END_TEST

START_TEST(job_and_rank_labels_come_from_the_environment_of_the_process)
{
	char dir[128];

	setenv("SLURM_JOB_ID", "8812\033[2J", 1);
	setenv("SLURM_PROCID", "3", 1);
	setenv("HOSTNAME", "train-0", 1);
	snprintf(dir, sizeof(dir), "%s", peer_dir);
	peer_exec(dir);
	unsetenv("SLURM_JOB_ID");
	unsetenv("SLURM_PROCID");
	ck_assert_int_eq(STAT("list"), 0);
	stat_check_in(stat_out, "  JOB                  COMMAND\n");
	stat_check_in(stat_out, "  job 8812?[2J rank 3  python train.py\n");
	ck_assert_int_eq(STAT("list", "--json"), 0);
	stat_check_in(stat_out, "\"labels\":{\"job\":\"8812?[2J\",\"rank\":\"3\"},");
	ck_assert_int_eq(STAT("list", "--query=labels", "--format=csv,noheader"), 0);
	ck_assert_str_eq(stat_out, "job 8812?[2J rank 3\n");
}
END_TEST

/* Process ids differ between containers: here the id belongs to an unrelated process. */
START_TEST(a_process_that_only_shares_a_pid_does_not_get_the_job_of_another)
{
	char other[160];
	pid_t pid;

	setenv("SLURM_JOB_ID", "8812", 1);
	pid = peer_exec(peer_dir);
	unsetenv("SLURM_JOB_ID");
	snprintf(other, sizeof(other), "%s/%d.1.sock", peer_dir, (int)pid);
	ck_assert_int_eq(rename(peer_socket(pid), other), 0);
	ck_assert_int_eq(STAT("list", "--query=pid,labels", "--format=csv,noheader"), 0);
	check_out("PID, \n", pid);
	ck_assert_int_eq(STAT("list", "--json"), 0);
	stat_check_in(stat_out, "\"labels\":{},");
	ck_assert_int_eq(STAT("metrics"), 0);
	ck_assert_ptr_null(strstr(stat_out, "8812"));
}
END_TEST

START_TEST(metrics_label_jobs_and_ranks_with_the_usual_names)
{
	setenv("SLURM_JOB_ID", "8812", 1);
	setenv("PMIX_RANK", "3", 1);
	setenv("POD_NAME", "train-\"0\\\n", 1);
	setenv("POD_NAMESPACE", "ml", 1);
	peer_exec(peer_dir);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(STAT("metrics", i ? "--to=prometheus" : "--to=openmetrics"), 0);
		stat_check_in(stat_out, ",version=\"0.1.0\",hpc_job=\"8812\",rank=\"3\",pod=\"train-\\\"0\\\\?\","
					"namespace=\"ml\"} 1\n");
	}
}
END_TEST

START_TEST(a_pod_label_comes_from_the_host_name_under_kubernetes)
{
	setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
	setenv("HOSTNAME", "train-0", 1);
	peer_exec(peer_dir);
	ck_assert_int_eq(STAT("list", "--json"), 0);
	stat_check_in(stat_out, "\"labels\":{\"pod\":\"train-0\"},");
}
END_TEST

enum { CROWD = 200 };

/* Plays a job of many ranks: no process answers before all were asked. */
static _Noreturn void play_many_ranks(int ready)
{
	int fds[CROWD], dir_fd = open(peer_dir, O_PATH);
	char name[GP_CTL_NAME_MAX], request[16];
	struct sockaddr_un address;
	socklen_t length;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < CROWD; i++) {
		fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
		gp_ctl_name_format(name, 1000 + i, 1);
		gp_ctl_address(dir_fd, name, &address, &length);
		if (bind(fds[i], (struct sockaddr *)&address, length) != 0 || listen(fds[i], 8) != 0)
			_exit(1);
	}
	if (write(ready, "", 1) != 1)
		_exit(1);
	for (int i = 0; i < CROWD; i++)
		fds[i] = accept(fds[i], NULL, NULL);
	for (int i = 0; i < CROWD; i++)
		if (read(fds[i], request, sizeof(request)) <= 0)
			_exit(1);
	for (int i = 0; i < CROWD; i++)
		dprintf(fds[i], "%s\n", peer_status);
	for (;;)
		pause();
}

START_TEST(all_processes_are_asked_at_the_same_time)
{
	int ready[2], n = 0;
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0)
		play_many_ranks(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	ck_assert_int_eq(STAT("list", "--query=command", "--format=csv,noheader"), 0);
	ck_assert_str_eq(stat_err, "");
	for (const char *line = stat_out; (line = strchr(line, '\n')); line++)
		n++;
	ck_assert_int_eq(n, CROWD);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, queried_fields_are_printed_as_csv, 0, LENGTH(queries));
	tcase_add_test(tc, a_csv_value_that_contains_a_separator_is_quoted);
	tcase_add_loop_test(tc, a_csv_value_that_a_spreadsheet_would_evaluate_gets_an_apostrophe, 0, LENGTH(formulas));
	tcase_add_loop_test(tc, malformed_queries_and_check_levels_are_refused, 0, LENGTH(mistakes));
	tcase_add_loop_test(tc, check_levels_determine_the_exit_code, 0, LENGTH(checks));
	tcase_add_loop_test(tc, check_can_report_problems_as_json, 0, LENGTH(json_checks));
	tcase_add_test(tc, check_reports_in_json_that_there_is_no_process);
	tcase_add_loop_test(tc, a_check_judges_used_memory_and_warns_at_the_first_out_of_memory, 0,
		(int)(sizeof(judged) / sizeof(*judged)));
	tcase_add_test(tc, check_performance_data_has_levels_and_bounds);
	tcase_add_test(tc, check_performance_data_has_every_device);
	tcase_add_test(tc, a_socket_directory_whose_name_is_not_valid_text_works);
	tcase_add_test(tc, a_silent_process_makes_a_check_unknown_unless_another_reaches_a_level);
	tcase_add_test(tc, an_error_text_of_a_process_cannot_break_the_check_line);
	tcase_add_test(tc, job_and_rank_labels_come_from_the_environment_of_the_process);
	tcase_add_test(tc, a_process_that_only_shares_a_pid_does_not_get_the_job_of_another);
	tcase_add_test(tc, metrics_label_jobs_and_ranks_with_the_usual_names);
	tcase_add_test(tc, a_pod_label_comes_from_the_host_name_under_kubernetes);
	tcase_add_test(tc, all_processes_are_asked_at_the_same_time);
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_script", add);
}
