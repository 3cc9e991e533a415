/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Runs gpupool-run as its users do, on files that the test makes. Usage: test_run GPUPOOL-RUN [GPUPOOL.7
 * GPUPOOL-RUN.1]. With the man pages it also checks that they describe every option.
 */

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/config.h"
#include "common/own_pools.h"
#include "test_run.h"
#include "tests/suite.h"

static const char *man_pages[2]; /* gpupool(7), gpupool-run(1) */

START_TEST(gpupool_run_starts_the_program_with_the_library_first_and_the_options_set)
{
	char wanted[256];

	ck_assert_int_eq(RUN("--limit=0=8GiB,1=50%", "--pinned", "--log", "debug", "--", "env"), 0);
	ck_assert_str_eq(run_err, "");
	snprintf(wanted, sizeof(wanted), "LD_PRELOAD=%s/libgpupool.so\n", run_directory);
	run_check_in(run_out, wanted);
	run_check_in(run_out, "GPUPOOL_LIMIT=0=8GiB,1=50%\n");
	run_check_in(run_out, "GPUPOOL_PINNED=on\n");
	run_check_in(run_out, "GPUPOOL_LOG=debug\n");
}
END_TEST

START_TEST(gpupool_run_passes_the_arguments_and_the_exit_code_through)
{
	ck_assert_int_eq(RUN("sh", "-c", "echo \"$1\" --limit=x; exit 42", "sh", "a b"), 42);
	ck_assert_str_eq(run_out, "a b --limit=x\n");
	ck_assert_str_eq(run_err, "");
}
END_TEST

START_TEST(nvtx_ranges_become_regions_unless_a_profiler_uses_nvtx)
{
	char wanted[256];

	ck_assert_int_eq(RUN("--regions=nvtx", "env"), 0);
	ck_assert_str_eq(run_err, "");
	run_check_in(run_out, "GPUPOOL_REGIONS=nvtx\n");
	snprintf(wanted, sizeof(wanted), "NVTX_INJECTION64_PATH=%s/libgpupool.so\n", run_directory);
	run_check_in(run_out, wanted);
	ck_assert_int_eq(RUN("--regions=nvtx=step*,lib=libfft.so*:fft", "--print-env"), 0);
	run_check_in(run_out, "export NVTX_INJECTION64_PATH=");
	ck_assert_int_eq(RUN("--regions=thread=loader", "env"), 0);
	ck_assert_ptr_null(strstr(run_out, "NVTX_INJECTION64_PATH"));
	setenv("NVTX_INJECTION64_PATH", "/opt/profiler.so", 1);
	ck_assert_int_eq(RUN("--regions=nvtx", "env"), 0);
	run_check_in(run_out, "NVTX_INJECTION64_PATH=/opt/profiler.so\n");
	run_check_in(run_err, "NVTX_INJECTION64_PATH is set to another tool, /opt/profiler.so: ");
	unsetenv("NVTX_INJECTION64_PATH");
}
END_TEST

static const struct {
	const char *words[2], *wanted;
} stacks[] = {
	{{"--stacks", "env"}, "GPUPOOL_STACKS=on\n"},
	{{"--stacks=8,sample=3", "env"}, "GPUPOOL_STACKS=8,sample=3\n"},
	{{"--stacks", "8"}, "GPUPOOL_STACKS=8\n"},
	{{"--stacks", "off"}, "GPUPOOL_STACKS=off\n"},
};

START_TEST(stacks_need_no_depth_and_a_depth_may_be_a_word_of_its_own)
{
	bool is_command = strcmp(stacks[_i].words[1], "env") == 0;

	if (is_command)
		ck_assert_int_eq(RUN(stacks[_i].words[0], stacks[_i].words[1]), 0);
	else
		ck_assert_int_eq(RUN(stacks[_i].words[0], stacks[_i].words[1], "env"), 0);
	run_check_in(run_out, stacks[_i].wanted);
}
END_TEST

START_TEST(every_option_of_the_table_sets_its_variable)
{
	for (int i = 0; i < GP_OPTION_COUNT; i++) {
		const struct gp_config_option *row = &gp_config_options[i];
		char option[128], wanted[128], path[64];
		const char *value = *row->default_text ? row->default_text : path;
		snprintf(path, sizeof(path), "%s/x", run_directory);
		snprintf(option, sizeof(option), "--%s=%s", row->option, value);
		snprintf(wanted, sizeof(wanted), "%s=%s\n", row->variable, value);
		ck_assert_int_eq(RUN(option, "env"), 0);
		run_check_in(run_out, wanted);
	}
}
END_TEST

START_TEST(an_option_replaces_a_bad_value_in_the_environment)
{
	setenv("GPUPOOL_LIMIT", "4Gx", 1);
	ck_assert_int_eq(RUN("--limit=4G", "env"), 0);
	run_check_in(run_out, "GPUPOOL_LIMIT=4G\n");
	ck_assert_str_eq(run_err, "");
}
END_TEST

static const struct {
	const char *words[RUN_WORDS];
	const char *environment[2];
	const char *err;
} bad_values[] = {
	{{"--limit=4Gx", "true"}, {NULL},
		"gpupool-run: --limit: '4Gx' is not a size\n"
		"            --limit=4Gx\n"
		"                      ^  use 4G or 4GiB (1024), 4GB (1000), 50% or none\n"},
	{{"--limit", "4Gx", "true"}, {NULL},
		"gpupool-run: --limit: '4Gx' is not a size\n"
		"            --limit=4Gx\n"
		"                      ^  use 4G or 4GiB (1024), 4GB (1000), 50% or none\n"},
	{{"true"}, {"GPUPOOL_LIMIT", "0=8G,1=0"},
		"gpupool-run: GPUPOOL_LIMIT: '0=8G,1=0' is a limit of zero\n"
		"            GPUPOOL_LIMIT=0=8G,1=0\n"
		"                                 ^  use none for no limit\n"},
	{{"true"}, {"GPUPOOL_POOL", "big"},
		"gpupool-run: GPUPOOL_POOL: 'big' is not one of its values\n"
		"            GPUPOOL_POOL=big\n"
		"                         ^  none|simple|binned|split|vmm|auto\n"},
	{{"--log-file=/tmp/\xc3\xa9\x1b%x", "true"}, {NULL},
		"gpupool-run: --log-file: '/tmp/\xc3\xa9?%x' has an unknown % sequence\n"
		"            --log-file=/tmp/\xc3\xa9?%x\n"
		"                              ^  use %p process id, %h host, %r rank, %j job, %u user, "
		"%% percent sign\n"},
	{{"--log-file=/\xe2\x80\xae\xc2\x9b\x9b%x", "true"}, {NULL},
		"gpupool-run: --log-file: '/???%x' has an unknown % sequence\n"
		"            --log-file=/???%x\n"
		"                           ^  use %p process id, %h host, %r rank, %j job, %u user, "
		"%% percent sign\n"},
	{{"--limit=", "true"}, {NULL},
		"gpupool-run: --limit: '' is empty\n"
		"            --limit=\n"
		"                    ^  use 4G or 4GiB (1024), 4GB (1000), 50% or none\n"},
};

START_TEST(a_bad_option_value_is_refused_with_its_character_marked)
{
	if (bad_values[_i].environment[0])
		setenv(bad_values[_i].environment[0], bad_values[_i].environment[1], 1);
	ck_assert_int_eq(run_launcher(bad_values[_i].words), 2);
	ck_assert_str_eq(run_err, bad_values[_i].err);
	ck_assert_str_eq(run_out, "");
}
END_TEST

static const struct {
	const char *words[RUN_WORDS];
	const char *err;
} bad_usage[] = {
	{{NULL}, "there is no CMD to start"},
	{{"--"}, "there is no CMD to start"},
	{{"--limt=4G", "true"}, "there is no option '--limt=4G'; did you mean '--limit'?\n"},
	{{"--zzz", "true"}, "there is no option '--zzz'.\n"},
	{{"--l=4G", "true"}, "there is no option '--l=4G'"},
	{{"-x", "true"}, "there is no option '-x'"},
	{{"-qx", "true"}, "there is no option '-x'"},
	{{"--limit"}, "option '--limit' needs a value"},
	{{"--help=all", "true"}, "option '--help=all' takes no value"},
	{{"--print-env=1", "true"}, "option '--print-env=1' takes no value"},
};

START_TEST(wrong_usage_of_gpupool_run_is_explained)
{
	ck_assert_int_eq(run_launcher(bad_usage[_i].words), 2);
	run_check_in(run_err, bad_usage[_i].err);
	run_check_in(run_err, "\n             Next: gpupool-run ");
	ck_assert_str_eq(run_out, "");
}
END_TEST

START_TEST(gpupool_run_prints_help_and_version_on_stdout)
{
	ck_assert_int_eq(RUN("--help"), 0);
	run_check_in(run_out, "usage: gpupool-run ");
	run_check_in(run_out, "\n  --limit=LIMITS\n");
	run_check_in(run_out, "\n  --pinned[=on|off]\n");
	ck_assert_str_eq(run_err, "");
	ck_assert_int_eq(RUN("--version"), 0);
	ck_assert_str_eq(run_out, "gpupool-run " GPUPOOL_VERSION "\n");
}
END_TEST

START_TEST(an_unknown_variable_gets_a_warning_that_can_be_silenced)
{
	setenv("GPUPOOL_LIMT", "4G", 1);
	ck_assert_int_eq(RUN("true"), 0);
	ck_assert_str_eq(run_err, "gpupool-run: GPUPOOL_LIMT is not a variable of gpupool; "
				  "the nearest is GPUPOOL_LIMIT.\n");
	ck_assert_int_eq(RUN("-q", "true"), 0);
	ck_assert_str_eq(run_err, "");
}
END_TEST

START_TEST(the_printed_environment_is_quoted_for_a_shell)
{
	char command[256];
	const char *words[] = {"/bin/sh", "-c", command, NULL};

	mkdir("it's", 0755);
	snprintf(command, sizeof(command),
		"cd \"$1\" && eval \"$('%s' --library=../libgpupool.so --limit=50%% "
		"--log-file=\"/a b'c\\$d\" --print-env)\" && env",
		run_path);
	const char *all[] = {words[0], words[1], command, "sh", "it's", NULL};
	ck_assert_int_eq(run_execute(all), 0);
	run_check_in(run_out, "GPUPOOL_LIMIT=50%\n");
	run_check_in(run_out, "GPUPOOL_LOG_FILE=/a b'c$d\n");
	run_check_in(run_out, "/it's/../libgpupool.so\n");
}
END_TEST

START_TEST(print_env_checks_the_program_that_is_named)
{
	ck_assert_int_eq(RUN("--print-env"), 0);
	run_check_in(run_out, "export LD_PRELOAD='/tmp/gpupool-run-");
	ck_assert_int_eq(RUN("--print-env", "true"), 0);
	ck_assert_int_eq(RUN("--print-env", "no-such-program"), 127);
	ck_assert_str_eq(run_out, "");
}
END_TEST

START_TEST(earlier_preloaded_libraries_stay_after_the_library)
{
	static const struct {
		const char *before;
		const char *after; /* follows the library */
	} rows[] = {
		{"", ""},
		{"/lib/a.so", ":/lib/a.so"},
		{"/lib/a.so /lib/b.so:c.so", ":/lib/a.so:/lib/b.so:c.so"},
		{"::a.so: ", ":a.so"},
		{"libgpupool.so", ""},
		{"a.so:./link.so:b.so", ":a.so:b.so"},
		{"a.so:/elsewhere/libgpupool.so:b.so", ":a.so:b.so"},
		{"a.so:libgpupool.so.1", ":a.so:libgpupool.so.1"},
	};

	ck_assert_int_eq(symlink("libgpupool.so", "link.so"), 0);
	for (size_t i = 0; i < LENGTH(rows); i++) {
		char wanted[256];
		const char *words[] = {run_path, "-q", "--library=libgpupool.so", "--print-env", NULL};
		/* The launcher's own loader reports libraries that it does not find, on stderr. */
		setenv("LD_PRELOAD", rows[i].before, 1);
		ck_assert_int_eq(run_execute(words), 0);
		snprintf(wanted, sizeof(wanted), "export LD_PRELOAD='%s/libgpupool.so%s'\n", run_directory,
			rows[i].after);
		ck_assert_str_eq(run_out, wanted);
	}
}
END_TEST

START_TEST(another_preloaded_copy_of_the_library_is_replaced_with_a_warning)
{
	setenv("LD_PRELOAD", "/elsewhere/libgpupool.so", 1);
	ck_assert_int_eq(RUN("true"), 0);
	run_check_in(run_err, "gpupool-run: /elsewhere/libgpupool.so in LD_PRELOAD is another copy of the library; ");
}
END_TEST

static void make_file(const char *name)
{
	run_write_text(name, "mine");
}

static void make_link(const char *name)
{
	ck_assert_int_eq(symlink("nowhere", name), 0);
}

static void make_fifo(const char *name)
{
	ck_assert_int_eq(mkfifo(name, 0600), 0);
}

static void make_directory(const char *name)
{
	ck_assert_int_eq(mkdir(name, 0700), 0);
}

static const struct {
	const char *record;
	void (*make)(const char *name);
	const char *made, *rank;
	const char *err; /* NULL: the program starts */
} recordings[] = {
	{"rec", make_file, "other", NULL, NULL},
	{"rec", make_file, "rec", NULL, "rec: it exists, and is not overwritten.\n             Next: remove it, or "},
	{"rec", make_link, "rec", NULL, "rec: it exists, and is not overwritten.\n"},
	{"rec", make_fifo, "rec", NULL, "rec: it exists, and is not overwritten.\n"},
	{"rec", make_directory, "rec", NULL, "rec: it exists, and is not overwritten.\n"},
	{"rec.%r", make_file, "rec.4", "3", NULL},
	{"rec.%r", make_file, "rec.3", "3", "rec.3: it exists, and is not overwritten.\n"},
	{"rec.%r", make_file, "rec.no-rank", NULL, "rec.no-rank: it exists, and is not overwritten.\n"},
	{"folder/rec", make_directory, "folder", NULL, NULL},
	{"folder/rec", make_file, "other", NULL,
		"folder/rec: folder: No such file or directory.\n"
		"             Next: name a file in an existing directory"},
	{"file/rec", make_file, "file", NULL, "file/rec: file: Not a directory.\n"},
	{"/proc/rec/rec", make_file, "other", NULL, "/proc/rec/rec: /proc/rec: No such file or directory.\n"},
};

START_TEST(a_recording_that_cannot_be_made_is_refused_before_the_program_starts)
{
	const char *err = recordings[_i].err;
	char option[64];

	recordings[_i].make(recordings[_i].made);
	if (recordings[_i].rank)
		setenv("PMI_RANK", recordings[_i].rank, 1);
	snprintf(option, sizeof(option), "--record=%s", recordings[_i].record);
	ck_assert_int_eq(RUN(option, "touch", "started"), err ? 125 : 0);
	ck_assert_int_eq(access("started", F_OK), err ? -1 : 0);
	if (err) {
		run_check_in(run_err, "gpupool-run: cannot record to ");
		run_check_in(run_err, err);
	} else {
		ck_assert_str_eq(run_err, "");
	}
	ck_assert_int_eq(RUN(option, "--print-env"), err ? 125 : 0);
}
END_TEST

START_TEST(a_recording_named_by_the_variable_is_checked_like_the_option)
{
	make_file("rec");
	setenv("GPUPOOL_RECORD", "rec", 1);
	ck_assert_int_eq(RUN("true"), 125);
	run_check_in(run_err, "gpupool-run: cannot record to rec: it exists");
}
END_TEST

START_TEST(the_name_of_a_recording_is_checked_with_the_programs_process_id)
{
	char command[512];
	const char *words[] = {"/bin/sh", "-c", command, NULL};

	snprintf(command, sizeof(command), ": >rec.$$ && exec '%s' --library=libgpupool.so --record=rec.%%p true",
		run_path);
	ck_assert_int_eq(run_execute(words), 125);
	run_check_in(run_err, ": it exists, and is not overwritten.\n");
	ck_assert_int_eq(RUN("--record=rec.%p", "true"), 0);
}
END_TEST

START_TEST(existing_files_do_not_matter_if_nothing_is_recorded)
{
	make_file("file");
	ck_assert_int_eq(RUN("--log-file=file", "--report=exit:file", "true"), 0);
	ck_assert_str_eq(run_err, "");
	ck_assert_int_eq(RUN("--enable=off", "--record=file", "true"), 0);
	ck_assert_str_eq(run_err, "");
}
END_TEST

static const struct {
	const char *name;
	const char *err;
} bad_libraries[] = {
	{"missing.so", "missing.so: No such file or directory.\n             Next: say where"},
	{"with space/libgpupool.so", "its path has a space, which separates names in LD_PRELOAD.\n"},
	{"with:colon/libgpupool.so", "its path has a colon, which separates names in LD_PRELOAD.\n"},
	{"text", "text: it is not a shared library.\n"},
	{"short", "short: its headers are damaged.\n"},
	{".", ": Is a directory.\n"},
};

START_TEST(a_library_that_cannot_be_preloaded_is_refused)
{
	char option[64];
	const char *words[] = {run_path, option, "true", NULL};

	run_write_text("text", "a text that is longer than the first bytes of a program\n");
	run_write_file("short", "\177ELF\2\1\1\0\0\0\0\0\0\0\0\0", 16, 0755);
	mkdir("with space", 0755);
	run_make_library("with space/libgpupool.so");
	mkdir("with:colon", 0755);
	run_make_library("with:colon/libgpupool.so");
	snprintf(option, sizeof(option), "--library=%s", bad_libraries[_i].name);
	ck_assert_int_eq(run_execute(words), 125);
	run_check_in(run_err, "gpupool-run: cannot use ");
	run_check_in(run_err, bad_libraries[_i].err);
	run_check_in(run_err, "\n             Next: ");
}
END_TEST

START_TEST(a_symlink_gives_the_library_a_path_that_can_be_preloaded)
{
	const char *words[] = {run_path, "--library=link.so", "env", NULL};

	mkdir("with space", 0755);
	run_make_library("with space/libgpupool.so");
	ck_assert_int_eq(symlink("with space/libgpupool.so", "link.so"), 0);
	ck_assert_int_eq(run_execute(words), 0);
	run_check_in(run_out, "/link.so\n");
}
END_TEST

START_TEST(the_library_of_the_same_build_tree_is_the_default)
{
	char command[2 * PATH_MAX], wanted[PATH_MAX];
	const char *words[] = {"tree/tools/gpupool-run", "--print-env", NULL};

	snprintf(command, sizeof(command), "mkdir -p tree/tools tree/shim && cp '%s' tree/tools/gpupool-run", run_path);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(run_execute(words), 125);
	run_check_in(run_err, "/libgpupool.so: No such file or directory.\n");
	run_make_library("tree/shim/libgpupool.so");
	ck_assert_int_eq(run_execute(words), 0);
	snprintf(wanted, sizeof(wanted), "export LD_PRELOAD='%s/tree/shim/libgpupool.so'\n", run_directory);
	ck_assert_str_eq(run_out, wanted);
}
END_TEST

enum { ANOTHER_USER = 54321 };

static void open_directory(void)
{
	ck_assert_int_eq(chmod("tree/shim", 0777), 0);
}

static void open_directory_to_group(void)
{
	ck_assert_int_eq(chmod("tree/shim", 0775), 0);
}

static void open_library(void)
{
	ck_assert_int_eq(chmod("tree/shim/libgpupool.so", 0646), 0);
}

static void make_directory_a_link(void)
{
	ck_assert_int_eq(rename("tree/shim", "elsewhere"), 0);
	ck_assert_int_eq(symlink("../elsewhere", "tree/shim"), 0);
}

static void give_directory_away(void)
{
	ck_assert_int_eq(chown("tree/shim", ANOTHER_USER, ANOTHER_USER), 0);
}

static void give_library_away(void)
{
	ck_assert_int_eq(chown("tree/shim/libgpupool.so", ANOTHER_USER, ANOTHER_USER), 0);
}

/* The last two rows need root. */
static const struct {
	void (*plant)(void);
	const char *why;
} planted[] = {
	{open_directory, "tree/shim can be written to by other users.\n"},
	{open_directory_to_group, "tree/shim can be written to by other users.\n"},
	{open_library, "tree/shim/libgpupool.so can be written to by other users.\n"},
	{make_directory_a_link, "tree/shim is not a directory.\n"},
	{give_directory_away, "tree/shim belongs to a user who is neither root nor the owner of gpupool-run.\n"},
	{give_library_away,
		"tree/shim/libgpupool.so belongs to a user who is neither root nor the owner of gpupool-run.\n"},
};

START_TEST(a_default_library_that_another_user_could_have_planted_is_not_used)
{
	char command[2 * PATH_MAX];
	const char *words[] = {"tree/tools/gpupool-run", "true", NULL};

	snprintf(command, sizeof(command),
		"umask 022 && mkdir -p tree/tools tree/shim && cp '%s' tree/tools/gpupool-run", run_path);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(chmod("tree/tools/gpupool-run", 0755), 0);
	run_make_library("tree/shim/libgpupool.so");
	ck_assert_int_eq(chmod("tree/shim/libgpupool.so", 0644), 0);
	ck_assert_int_eq(run_execute(words), 0);
	planted[_i].plant();
	ck_assert_int_eq(run_execute(words), 125);
	run_check_in(run_err, "tree/shim/libgpupool.so is not used: ");
	run_check_in(run_err, planted[_i].why);
}
END_TEST

START_TEST(a_group_writable_default_library_is_used_if_gpupool_run_is_group_writable)
{
	char command[2 * PATH_MAX];
	const char *words[] = {"tree/tools/gpupool-run", "true", NULL};

	snprintf(command, sizeof(command),
		"umask 002 && mkdir -p tree/tools tree/shim && cp '%s' tree/tools/gpupool-run", run_path);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(chmod("tree/tools/gpupool-run", 0775), 0);
	run_make_library("tree/shim/libgpupool.so");
	ck_assert_int_eq(chmod("tree/shim/libgpupool.so", 0664), 0);
	ck_assert_int_eq(run_execute(words), 0);
}
END_TEST

#define COPY_LIBDIR "copy/" RUN_RELATIVE_LIBDIR

static void make_copied_installation(void)
{
	char command[2 * PATH_MAX];

	snprintf(command, sizeof(command),
		"umask 022 && mkdir -p copy/" RUN_BINDIR " " COPY_LIBDIR " && cp '%s' copy/" RUN_BINDIR
		"/gpupool-run && chmod 0755 copy/" RUN_BINDIR "/gpupool-run",
		run_path);
	ck_assert_int_eq(system(command), 0);
	run_make_library(COPY_LIBDIR "/libgpupool.so");
	ck_assert_int_eq(chmod(COPY_LIBDIR "/libgpupool.so", 0644), 0);
}

START_TEST(a_copied_installation_preloads_its_own_library)
{
	char wanted[2 * PATH_MAX];
	const char *words[] = {"copy/" RUN_BINDIR "/gpupool-run", "--print-env", NULL};
	const char *linked[] = {"link", "--print-env", NULL};

	make_copied_installation();
	snprintf(wanted, sizeof(wanted), "export LD_PRELOAD='%s/" COPY_LIBDIR "/libgpupool.so'\n", run_directory);
	ck_assert_int_eq(run_execute(words), 0);
	ck_assert_str_eq(run_out, wanted);
	ck_assert_str_eq(run_err, "");
	ck_assert_int_eq(symlink("copy/" RUN_BINDIR "/gpupool-run", "link"), 0);
	ck_assert_int_eq(run_execute(linked), 0);
	ck_assert_str_eq(run_out, wanted);
}
END_TEST

static void open_copied_directory(void)
{
	ck_assert_int_eq(chmod(COPY_LIBDIR, 0777), 0);
}

static void open_parent_of_copied_directory(void)
{
	ck_assert_int_eq(chmod(COPY_LIBDIR "/..", 0777), 0);
}

static void open_copied_library(void)
{
	ck_assert_int_eq(chmod(COPY_LIBDIR "/libgpupool.so", 0646), 0);
}

static void make_copied_directory_a_link(void)
{
	ck_assert_int_eq(rename(COPY_LIBDIR, "elsewhere"), 0);
	char target[PATH_MAX];
	snprintf(target, sizeof(target), "%s/elsewhere", run_directory);
	ck_assert_int_eq(symlink(target, COPY_LIBDIR), 0);
}

static const struct {
	void (*plant)(void);
	const char *why;
} planted_in_copy[] = {
	{open_copied_directory, "/gpupool can be written to by other users.\n"},
	{open_parent_of_copied_directory, " can be written to by other users.\n"},
	{open_copied_library, "/libgpupool.so can be written to by other users.\n"},
	{make_copied_directory_a_link, "/gpupool is not a directory.\n"},
};

START_TEST(a_library_of_a_copied_installation_that_another_user_could_have_planted_is_not_used)
{
	const char *words[] = {"copy/" RUN_BINDIR "/gpupool-run", "true", NULL};

	make_copied_installation();
	ck_assert_int_eq(run_execute(words), 0);
	planted_in_copy[_i].plant();
	ck_assert_int_eq(run_execute(words), 125);
	run_check_in(run_err, "/" COPY_LIBDIR "/libgpupool.so is not used: ");
	run_check_in(run_err, planted_in_copy[_i].why);
}
END_TEST

/* Returns the text of an item up to the next item, or NULL. */
static const char *find_item(char *page, const char *name)
{
	char wanted[64];
	char *item, *end;

	snprintf(wanted, sizeof(wanted), "\n.It %s", name);
	item = strstr(page, wanted);
	while (item && !strchr(" \n", item[strlen(wanted)]))
		item = strstr(item + 1, wanted);
	if (!item)
		return NULL;
	end = strstr(item + 1, "\n.It ");
	if (end)
		*end = '\0';
	return item;
}

START_TEST(the_man_pages_describe_every_option_and_its_default)
{
	for (int i = 0; i < GP_OPTION_COUNT; i++) {
		const struct gp_config_option *row = &gp_config_options[i];
		char name[64], wanted[64];
		run_read_text(man_pages[0], run_out);
		snprintf(name, sizeof(name), "Ev %s", row->variable);
		const char *item = find_item(run_out, name);
		ck_assert_msg(item, "expected an item for %s in %s", row->variable, man_pages[0]);
		snprintf(wanted, sizeof(wanted), "\nDefault:\n.Ql %s .", row->default_text);
		if (*row->default_text)
			run_check_in(item, wanted);
		run_read_text(man_pages[1], run_out);
		snprintf(name, sizeof(name), "Fl -%s", row->option);
		ck_assert_msg(find_item(run_out, name), "expected an item for --%s in %s", row->option, man_pages[1]);
	}
}
END_TEST

START_TEST(the_man_page_lists_every_switch_of_own_pools)
{
	run_read_text(man_pages[1], run_out);
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++) {
		const struct gp_own_pool *row = &gp_own_pools[i];
		char wanted[128];

		if (row->how == GP_OWN_POOL_NEVER)
			continue;
		snprintf(wanted, sizeof(wanted), "\n.It %s Ta Ev %s Ns = Ns Cm %.*s\n", row->framework, row->variable,
			(int)gp_own_pool_value_length(row), row->values);
		run_check_in(run_out, wanted);
	}
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, gpupool_run_starts_the_program_with_the_library_first_and_the_options_set);
	tcase_add_test(tc, gpupool_run_passes_the_arguments_and_the_exit_code_through);
	tcase_add_test(tc, nvtx_ranges_become_regions_unless_a_profiler_uses_nvtx);
	tcase_add_loop_test(tc, stacks_need_no_depth_and_a_depth_may_be_a_word_of_its_own, 0, LENGTH(stacks));
	tcase_add_test(tc, every_option_of_the_table_sets_its_variable);
	tcase_add_test(tc, an_option_replaces_a_bad_value_in_the_environment);
	ADD_ROWS(tc, bad_values, a_bad_option_value_is_refused_with_its_character_marked);
	ADD_ROWS(tc, bad_usage, wrong_usage_of_gpupool_run_is_explained);
	tcase_add_test(tc, gpupool_run_prints_help_and_version_on_stdout);
	tcase_add_test(tc, an_unknown_variable_gets_a_warning_that_can_be_silenced);
	tcase_add_test(tc, the_printed_environment_is_quoted_for_a_shell);
	tcase_add_test(tc, print_env_checks_the_program_that_is_named);
	tcase_add_test(tc, earlier_preloaded_libraries_stay_after_the_library);
	tcase_add_test(tc, another_preloaded_copy_of_the_library_is_replaced_with_a_warning);
	ADD_ROWS(tc, recordings, a_recording_that_cannot_be_made_is_refused_before_the_program_starts);
	tcase_add_test(tc, a_recording_named_by_the_variable_is_checked_like_the_option);
	tcase_add_test(tc, the_name_of_a_recording_is_checked_with_the_programs_process_id);
	tcase_add_test(tc, existing_files_do_not_matter_if_nothing_is_recorded);
	ADD_ROWS(tc, bad_libraries, a_library_that_cannot_be_preloaded_is_refused);
	tcase_add_test(tc, a_symlink_gives_the_library_a_path_that_can_be_preloaded);
	tcase_add_test(tc, the_library_of_the_same_build_tree_is_the_default);
	tcase_add_loop_test(tc, a_default_library_that_another_user_could_have_planted_is_not_used, 0,
		(int)LENGTH(planted) - (geteuid() == 0 ? 0 : 2));
	if (geteuid() != 0)
		printf("# skipped: a library of another user needs root\n");
	tcase_add_test(tc, a_copied_installation_preloads_its_own_library);
	tcase_add_loop_test(tc, a_library_of_a_copied_installation_that_another_user_could_have_planted_is_not_used, 0,
		LENGTH(planted_in_copy));
	tcase_add_test(tc, a_group_writable_default_library_is_used_if_gpupool_run_is_group_writable);
	if (man_pages[0]) {
		tcase_add_test(tc, the_man_pages_describe_every_option_and_its_default);
		tcase_add_test(tc, the_man_page_lists_every_switch_of_own_pools);
	}
}

int main(int argc, char **argv)
{
	Suite *suite;
	TCase *tc;

	if (argc == 2 && !strcmp(argv[1], "--count-signals"))
		return run_count_signals();
	signal(SIGHUP, SIG_DFL); /* commands inherit it, and nohup(1) ignores it */
	suite = suite_create("run");
	tc = tcase_create("run");
	if (argc != 2 && argc != 4) {
		fprintf(stderr, "usage: test_run GPUPOOL-RUN [GPUPOOL.7 GPUPOOL-RUN.1]\n");
		return EXIT_FAILURE;
	}
	run_path = realpath(argv[1], NULL);
	for (int i = 0; i < argc - 2; i++)
		man_pages[i] = realpath(argv[i + 2], NULL);
	suite_add_tcase(suite, tc);
	run_add_fixture(tc);
	add_tests(tc);
	run_add_program_tests(tc);
	run_add_wait_tests(tc);
	run_add_compare_tests(tc);
	run_add_pools_tests(tc);
	return suite_run(suite);
}
