/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ctl_proto.h"
#include "tests/suite.h"

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

static char root[64];

static void setup(void)
{
	strcpy(root, "/tmp/gpupool-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	ck_assert_int_eq(system(command), 0);
}

static const char *in_root(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

static const struct {
	const char *line;
	int n;
	const char *words[4];
} lines[] = {
	{"", 0, {0}},
	{"  \t ", 0, {0}},
	{"status", 1, {"status"}},
	{"reclaim 0 pinned\r", 3, {"reclaim", "0", "pinned"}},
	{"\t blocks   100  ", 2, {"blocks", "100"}},
	{"a b c d", 4, {"a", "b", "c", "d"}},
	{"a b c d e", -E2BIG, {0}},
};

START_TEST(a_request_line_is_split_into_words)
{
	char line[64], *words[4];
	int n;

	strcpy(line, lines[_i].line);
	n = gp_ctl_split(line, words, 4);
	ck_assert_int_eq(n, lines[_i].n);
	for (int i = 0; i < n; i++)
		ck_assert_str_eq(words[i], lines[_i].words[i]);
}
END_TEST

START_TEST(every_command_is_found_by_its_name)
{
	for (int i = 0; i < GP_CTL_N_COMMANDS; i++) {
		const struct gp_ctl_command_row *row = &gp_ctl_commands[i];

		ck_assert_int_eq(gp_ctl_command_find(row->name), i);
		ck_assert_int_le(row->min_words, row->max_words);
		ck_assert_int_lt(row->max_words, GP_CTL_WORDS_MAX);
		ck_assert_uint_gt(strlen(row->help), 0);
	}
	ck_assert_int_eq(gp_ctl_command_find("statu"), GP_CTL_N_COMMANDS);
	ck_assert_int_eq(gp_ctl_command_find(""), GP_CTL_N_COMMANDS);
}
END_TEST

static const struct {
	struct gp_ctl_dirs dirs;
	unsigned nth;
	int error;
	const char *path;
} dirs[] = {
	{{"/run/mine", "/run/user/7", NULL, 7}, 0, 0, "/run/mine"},
	{{"/run/mine///", NULL, NULL, 7}, 0, 0, "/run/mine"},
	{{"/", NULL, NULL, 7}, 0, 0, "/"},
	{{NULL, NULL, NULL, 7}, 0, -ENOENT, NULL},
	{{"", NULL, NULL, 7}, 0, -ENOENT, NULL},
	{{"mine", NULL, NULL, 7}, 0, -EINVAL, NULL},
	{{NULL, "/run/user/7", NULL, 7}, 2, 0, "/run/user/7/gpupool"},
	{{NULL, NULL, NULL, 7}, 2, -ENOENT, NULL},
	{{NULL, "user/7", NULL, 7}, 2, -EINVAL, NULL},
	{{NULL, NULL, NULL, 7}, 3, 0, "/tmp/gpupool-7"},
	{{NULL, NULL, "", 7}, 3, 0, "/tmp/gpupool-7"},
	{{NULL, NULL, "tmp", 7}, 3, 0, "/tmp/gpupool-7"},
	{{NULL, NULL, "/var/tmp", 7}, 3, 0, "/var/tmp/gpupool-7"},
	{{NULL, NULL, NULL, 4294967294u}, 3, 0, "/tmp/gpupool-4294967294"},
	{{NULL, NULL, "/a/directory/whose/name/is/longer/than/what/we/have", 7}, 3, -ENAMETOOLONG, NULL},
	{{"/run/mine", "/run/user/7", "/tmp", 7}, 4, -ERANGE, NULL},
	{{NULL, "/run/user/7", NULL, 7, "/run/gpupool"}, 1, 0, "/run/gpupool/7"},
	{{"/run/mine", NULL, NULL, 7, "/run/gpupool"}, 1, -ENOENT, NULL},
	{{"", NULL, NULL, 7, "/run/gpupool"}, 1, 0, "/run/gpupool/7"},
	{{NULL, NULL, NULL, 7, NULL}, 1, -ENOENT, NULL},
};

START_TEST(the_candidate_socket_directories_come_in_order)
{
	char path[32];

	ck_assert_int_eq(gp_ctl_dir(&dirs[_i].dirs, dirs[_i].nth, path, sizeof(path)), dirs[_i].error);
	if (!dirs[_i].error)
		ck_assert_str_eq(path, dirs[_i].path);
}
END_TEST

static const struct {
	mode_t mode;
	int error;
} modes[] = {
	{0700, 0},
	{0500, 0},
	{01700, 0},
	{0750, -EPERM},
	{0710, -EPERM},
	{0701, -EPERM},
	{0777, -EPERM},
	{01777, -EPERM},
};

START_TEST(a_socket_directory_open_to_other_users_is_refused)
{
	int fd;

	ck_assert_int_eq(mkdir(in_root("dir"), 0700), 0);
	ck_assert_int_eq(chmod(in_root("dir"), modes[_i].mode), 0);
	fd = gp_ctl_dir_open(in_root("dir"), geteuid(), true);
	if (modes[_i].error)
		ck_assert_int_eq(fd, modes[_i].error);
	else
		ck_assert_int_ge(fd, 0);
}
END_TEST

START_TEST(a_new_socket_directory_is_private_under_every_umask)
{
	struct stat st;
	int fd;

	umask(0);
	ck_assert_int_eq(gp_ctl_dir_open(in_root("dir"), geteuid(), false), -ENOENT);
	fd = gp_ctl_dir_open(in_root("dir"), geteuid(), true);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(stat(in_root("dir"), &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
}
END_TEST

START_TEST(a_symlink_as_socket_directory_is_refused)
{
	struct gp_ctl_dirs link = {.uid = geteuid()};
	char path[GP_CTL_PATH_MAX];

	ck_assert_int_eq(mkdir(in_root("dir"), 0700), 0);
	ck_assert_int_eq(symlink("dir", in_root("link")), 0);
	ck_assert_int_eq(gp_ctl_dir_open(in_root("link"), geteuid(), true), -ELOOP);
	link.runtime_dir = in_root("link/");
	ck_assert_int_eq(gp_ctl_dir(&link, 0, path, sizeof(path)), 0);
	ck_assert_int_eq(gp_ctl_dir_open(path, geteuid(), true), -ELOOP);
}
END_TEST

START_TEST(a_file_as_socket_directory_is_refused)
{
	ck_assert_int_ge(open(in_root("file"), O_CREAT | O_WRONLY, 0600), 0);
	ck_assert_int_eq(gp_ctl_dir_open(in_root("file"), geteuid(), true), -ENOTDIR);
}
END_TEST

START_TEST(a_socket_directory_of_another_user_is_refused)
{
	ck_assert_int_eq(mkdir(in_root("dir"), 0700), 0);
	ck_assert_int_eq(gp_ctl_dir_open(in_root("dir"), geteuid() + 1, true), -EPERM);
}
END_TEST

START_TEST(the_first_usable_socket_directory_is_found)
{
	struct gp_ctl_dirs choice = {.uid = geteuid()};
	char bad[128], tmp[128], path[GP_CTL_PATH_MAX], expected[256];

	ck_assert_int_eq(mkdir(in_root("open"), 0700), 0);
	ck_assert_int_eq(chmod(in_root("open"), 0755), 0);
	snprintf(bad, sizeof(bad), "%s/open", root);
	snprintf(tmp, sizeof(tmp), "%s", root);
	choice.runtime_dir = bad;
	choice.xdg_runtime_dir = "/nowhere/at/all";
	choice.tmp_dir = tmp;
	ck_assert_int_ge(gp_ctl_dir_find(&choice, path, sizeof(path)), 0);
	snprintf(expected, sizeof(expected), "%s/gpupool-%u", root, (unsigned)geteuid());
	ck_assert_str_eq(path, expected);
	choice.tmp_dir = "/nowhere";
	ck_assert_int_eq(gp_ctl_dir_find(&choice, path, sizeof(path)), -ENOENT);
}
END_TEST

static const struct {
	int error;
	mode_t mode;
	unsigned other_uid;
	const char *text; /* follows the directory's name */
} explanations[] = {
	{-EPERM, 0700, 1, " belongs to another user (uid "},
	{-EPERM, 0755, 0, " is open to other users (mode 0755)"},
	{-EROFS, 0700, 0, " cannot be used: the file system is read-only"},
	{-EACCES, 0700, 0, " cannot be used: permission denied"},
	{-ELOOP, 0700, 0, " is a symbolic link"},
	{-EIO, 0700, 0, " cannot be used (error 5)"},
};

START_TEST(an_unusable_socket_directory_is_explained)
{
	char text[256], owner[32], expected[1024];

	ck_assert_int_eq(mkdir(in_root("dir"), 0700), 0);
	ck_assert_int_eq(chmod(in_root("dir"), explanations[_i].mode), 0);
	gp_ctl_dir_explain(
		in_root("dir"), geteuid() + explanations[_i].other_uid, explanations[_i].error, text, sizeof(text));
	snprintf(owner, sizeof(owner), "%u)", (unsigned)geteuid());
	snprintf(expected, sizeof(expected), "%s%s%s", in_root("dir"), explanations[_i].text,
		explanations[_i].other_uid ? owner : "");
	ck_assert_str_eq(text, expected);
}
END_TEST

START_TEST(a_socket_path_of_200_characters_fits_an_address)
{
	char path[300], name[GP_CTL_NAME_MAX];
	struct sockaddr_un address;
	socklen_t length;
	int dir_fd, server, client;

	memset(path, 'x', sizeof(path));
	memcpy(path, root, strlen(root));
	path[strlen(root)] = '/';
	path[200] = '\0';
	dir_fd = gp_ctl_dir_open(path, geteuid(), true);
	ck_assert_int_ge(dir_fd, 0);
	gp_ctl_name_format(name, INT32_MAX, UINT64_MAX);
	ck_assert_int_eq(gp_ctl_address(dir_fd, name, &address, &length), 0);
	server = socket(AF_UNIX, SOCK_STREAM, 0);
	client = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(server, (struct sockaddr *)&address, length), 0);
	ck_assert_int_eq(listen(server, 1), 0);
	ck_assert_int_eq(connect(client, (struct sockaddr *)&address, length), 0);
	memset(path, 'n', 120);
	path[120] = '\0';
	ck_assert_int_eq(gp_ctl_address(dir_fd, path, &address, &length), -ENAMETOOLONG);
}
END_TEST

static const struct {
	const char *name;
	int pid;
	uint64_t start;
} names[] = {
	{"1.2.sock", 1, 2},
	{"41822.18446744073709551615.sock", 41822, UINT64_MAX},
	{"2147483647.0.sock", 2147483647, 0},
	{"", 0, 0},
	{"1.2", 0, 0},
	{"1.2.sock.new", 0, 0},
	{".1.2.sock.new", 0, 0},
	{"0.2.sock", 0, 0},
	{"-1.2.sock", 0, 0},
	{"+1.2.sock", 0, 0},
	{" 1.2.sock", 0, 0},
	{"01.2.sock", 0, 0},
	{"1.02.sock", 0, 0},
	{"1..sock", 0, 0},
	{"2147483648.2.sock", 0, 0},
	{"1.18446744073709551616.sock", 0, 0},
	{"99999999999999999999999.2.sock", 0, 0},
	{"../1.2.sock", 0, 0},
};

START_TEST(only_socket_file_names_in_canonical_form_are_parsed)
{
	pid_t pid = -1;
	uint64_t start = 77;
	char canonical[GP_CTL_NAME_MAX];

	ck_assert_int_eq(gp_ctl_name_parse(names[_i].name, &pid, &start), names[_i].pid != 0);
	if (!names[_i].pid) {
		ck_assert_int_eq(pid, -1);
		ck_assert_uint_eq(start, 77);
		return;
	}
	ck_assert_int_eq(pid, names[_i].pid);
	ck_assert_uint_eq(start, names[_i].start);
	gp_ctl_name_format(canonical, pid, start);
	ck_assert_str_eq(canonical, names[_i].name);
}
END_TEST

START_TEST(the_start_time_and_state_of_a_process_are_read_until_it_ends)
{
	uint64_t own, same, child_start;
	char state;
	pid_t child;

	ck_assert_int_eq(gp_ctl_process_stat(0, &own, &state), 0);
	ck_assert_int_eq(state, 'R');
	ck_assert_int_eq(gp_ctl_process_stat(getpid(), &same, &state), 0);
	ck_assert_uint_eq(own, same);
	child = fork();
	if (child == 0) {
		raise(SIGSTOP);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, NULL, WUNTRACED), child);
	ck_assert_int_eq(gp_ctl_process_stat(child, &child_start, &state), 0);
	ck_assert_int_eq(state, 'T');
	ck_assert_uint_ge(child_start, own);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert_int_lt(gp_ctl_process_stat(child, &child_start, &state), 0);
}
END_TEST

/* The program's name may contain the characters that separate the fields. */
START_TEST(a_hostile_process_name_does_not_shift_the_fields_of_proc_stat)
{
	uint64_t before, after;
	char state;
	int fd;

	ck_assert_int_eq(gp_ctl_process_stat(0, &before, &state), 0);
	fd = open("/proc/self/comm", O_WRONLY);
	ck_assert_int_eq(write(fd, ") Z 1 2 3 (", 11), 11);
	ck_assert_int_eq(gp_ctl_process_stat(0, &after, &state), 0);
	ck_assert_int_eq(state, 'R');
	ck_assert_uint_eq(after, before);
}
END_TEST

static const struct {
	const char *schema, *name;
	unsigned major;
} schemas[] = {
	{"gpupool.status/1", "status", 1},
	{"gpupool.status-list/12", "status-list", 12},
	{"gpupool.status", NULL, 0},
	{"gpupool.status/", NULL, 0},
	{"gpupool.status/1x", NULL, 0},
	{"gpupool.status/-1", NULL, 0},
	{"gpupool.status/99999999999", NULL, 0},
	{"gpupool./1", NULL, 0},
	{"gpupool.a-name-that-is-longer-than-what-we-have/1", NULL, 0},
	{"other.status/1", NULL, 0},
	{"gp/ool.status/1", NULL, 0},
	{"", NULL, 0},
};

START_TEST(a_schema_is_parsed_into_its_name_and_major_version)
{
	char name[GP_CTL_SCHEMA_MAX];
	unsigned major;

	ck_assert_int_eq(gp_ctl_schema_parse(schemas[_i].schema, name, &major), schemas[_i].name != NULL);
	if (!schemas[_i].name)
		return;
	ck_assert_str_eq(name, schemas[_i].name);
	ck_assert_uint_eq(major, schemas[_i].major);
}
END_TEST

static Suite *proto_suite(void)
{
	Suite *suite = suite_create("ctl_proto");
	TCase *tc = tcase_create("proto");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, a_request_line_is_split_into_words, 0, ROWS(lines));
	tcase_add_test(tc, every_command_is_found_by_its_name);
	tcase_add_loop_test(tc, the_candidate_socket_directories_come_in_order, 0, ROWS(dirs));
	tcase_add_loop_test(tc, a_socket_directory_open_to_other_users_is_refused, 0, ROWS(modes));
	tcase_add_test(tc, a_new_socket_directory_is_private_under_every_umask);
	tcase_add_test(tc, a_symlink_as_socket_directory_is_refused);
	tcase_add_test(tc, a_file_as_socket_directory_is_refused);
	tcase_add_test(tc, a_socket_directory_of_another_user_is_refused);
	tcase_add_test(tc, the_first_usable_socket_directory_is_found);
	tcase_add_loop_test(tc, an_unusable_socket_directory_is_explained, 0, ROWS(explanations));
	tcase_add_test(tc, a_socket_path_of_200_characters_fits_an_address);
	tcase_add_loop_test(tc, only_socket_file_names_in_canonical_form_are_parsed, 0, ROWS(names));
	tcase_add_test(tc, the_start_time_and_state_of_a_process_are_read_until_it_ends);
	tcase_add_test(tc, a_hostile_process_name_does_not_shift_the_fields_of_proc_stat);
	tcase_add_loop_test(tc, a_schema_is_parsed_into_its_name_and_major_version, 0, ROWS(schemas));
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(proto_suite());
}
