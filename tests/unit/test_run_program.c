/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Programs that gpupool-run starts, and programs that it refuses. */

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "test_run.h"

START_TEST(missing_and_not_executable_programs_get_different_exit_codes)
{
	static const struct {
		const char *command;
		int status;
		const char *err;
	} rows[] = {
		{"no-such-program", 127, "no-such-program was not found in PATH.\n"},
		{"./no-such-program", 127, "./no-such-program cannot be started: No such file"},
		{"./plain", 126, "./plain is not executable.\n"},
		{"plain", 126, "bin/plain is not executable.\n"},
		{".", 126, "gpupool-run: . is a directory.\n"},
		{"..", 126, "gpupool-run: .. is a directory.\n"},
		{"./", 126, "./ is a directory.\n"},
		{"./plain/x", 127, "./plain/x cannot be started: Not a directory"},
		{"", 127, "gpupool-run: the name of CMD is empty.\n"},
		{"\xc2\x9b\xe2\x80\xaex", 127, "gpupool-run: ??x was not found in PATH.\n"},
	};

	mkdir("bin", 0755);
	run_write_file("plain", "x", 1, 0644);
	run_write_file("bin/plain", "x", 1, 0644);
	setenv("PATH", "/usr/bin:bin", 1);
	for (size_t i = 0; i < LENGTH(rows); i++) {
		ck_assert_msg(RUN(rows[i].command) == rows[i].status, "'%s': expected exit status %d: %s",
			rows[i].command, rows[i].status, run_err);
		run_check_in(run_err, rows[i].err);
		run_check_in(run_err, "\n             Next: ");
	}
}
END_TEST

START_TEST(gpupool_run_searches_the_path_as_execvp_does)
{
	run_write_text("here", "#!/bin/sh\necho here\n");
	setenv("PATH", "/nonexistent:", 1);
	ck_assert_int_eq(RUN("here"), 0);
	ck_assert_str_eq(run_out, "here\n");
	mkdir("bin", 0755);
	run_write_file("bin/here", "x", 1, 0644);
	setenv("PATH", "bin:.:/bin", 1);
	ck_assert_int_eq(RUN("here"), 0);
	ck_assert_str_eq(run_out, "here\n");
	unsetenv("PATH");
	ck_assert_int_eq(RUN("true"), 0);
}
END_TEST

/* An ELF file that consists of headers only. The checks read nothing else, and the file is never started. */
struct made_elf {
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	char loader[32];
};

static void make_elf(struct made_elf *elf, const char *loader)
{
	struct made_elf like_us;
	int fd = open("/proc/self/exe", O_RDONLY);

	ck_assert_int_eq(read(fd, &like_us.header, sizeof(like_us.header)), sizeof(like_us.header));
	close(fd);
	memset(elf, 0, sizeof(*elf));
	memcpy(elf->header.e_ident, like_us.header.e_ident, EI_NIDENT);
	elf->header.e_machine = like_us.header.e_machine;
	elf->header.e_type = ET_DYN;
	elf->header.e_phoff = offsetof(struct made_elf, segment);
	elf->header.e_phentsize = sizeof(elf->segment);
	elf->header.e_phnum = 1;
	elf->segment.p_type = PT_INTERP;
	elf->segment.p_offset = offsetof(struct made_elf, loader);
	elf->segment.p_filesz = strlen(loader) + 1;
	snprintf(elf->loader, sizeof(elf->loader), "%s", loader);
}

static void make_static(struct made_elf *elf)
{
	elf->segment.p_type = PT_LOAD;
}

static void make_static_without_segments(struct made_elf *elf)
{
	elf->header.e_phnum = 0;
	elf->header.e_type = ET_EXEC;
}

static void make_musl(struct made_elf *elf)
{
	strcpy(elf->loader, "/lib/ld-musl-x86_64.so.1");
	elf->segment.p_filesz = strlen(elf->loader) + 1;
}

static void make_other_machine(struct made_elf *elf)
{
	elf->header.e_machine = EM_PPC64;
}

static void make_32_bit(struct made_elf *elf)
{
	elf->header.e_ident[EI_CLASS] = ELFCLASS32;
	elf->header.e_machine = EM_386;
	((Elf32_Ehdr *)&elf->header)->e_phnum = 0;
}

static void make_other_byte_order(struct made_elf *elf)
{
	elf->header.e_ident[EI_DATA] ^= ELFDATA2LSB ^ ELFDATA2MSB;
}

static void make_missing_loader(struct made_elf *elf)
{
	strcpy(elf->loader, "/nonexistent/ld.so");
	elf->segment.p_filesz = strlen(elf->loader) + 1;
}

static void make_object(struct made_elf *elf)
{
	elf->header.e_type = ET_REL;
}

static void make_bad_class(struct made_elf *elf)
{
	elf->header.e_ident[EI_CLASS] = 77;
}

static void make_segments_far_away(struct made_elf *elf)
{
	elf->header.e_phoff = UINT64_MAX - 8;
}

static void make_segments_past_the_end(struct made_elf *elf)
{
	elf->header.e_phoff = 4096;
}

static void make_many_segments(struct made_elf *elf)
{
	elf->header.e_phnum = UINT16_MAX;
}

static void make_odd_segments(struct made_elf *elf)
{
	elf->header.e_phentsize = 7;
}

static void make_loader_far_away(struct made_elf *elf)
{
	elf->segment.p_offset = UINT64_MAX;
}

static void make_loader_endless(struct made_elf *elf)
{
	elf->segment.p_filesz = UINT64_MAX;
}

static void make_loader_unterminated(struct made_elf *elf)
{
	elf->segment.p_filesz--;
}

static const struct {
	void (*change)(struct made_elf *elf);
	int status;
	const char *err;
} elves[] = {
	{make_static, 125, "./prog is statically linked: LD_PRELOAD cannot reach it.\n"},
	{make_static_without_segments, 125, "./prog is statically linked"},
	{make_musl, 125, "./prog uses the C library musl (/lib/ld-musl-x86_64.so.1);"},
	{make_other_machine, 125, "./prog is a 64-bit ppc64 program; libgpupool.so is 64-bit "},
	{make_32_bit, 125, "./prog is a 32-bit x86 program; libgpupool.so is 64-bit "},
	{make_other_byte_order, 125, "./prog is a 64-bit, other byte order program; "},
	{make_missing_loader, 127, "./prog needs the loader /nonexistent/ld.so: No such file"},
	{make_object, 126, "./prog is an ELF file, but not a program.\n"},
	{make_bad_class, 126, "./prog cannot be read as a program: its headers are damaged.\n"},
	{make_segments_far_away, 126, "its headers are damaged.\n"},
	{make_segments_past_the_end, 126, "its headers are damaged.\n"},
	{make_many_segments, 126, "its headers are damaged.\n"},
	{make_odd_segments, 126, "its headers are damaged.\n"},
	{make_loader_far_away, 126, "its headers are damaged.\n"},
	{make_loader_endless, 126, "its headers are damaged.\n"},
	{make_loader_unterminated, 126, "its headers are damaged.\n"},
};

START_TEST(a_program_that_preloading_cannot_reach_is_refused)
{
	struct made_elf elf;

	make_elf(&elf, "/bin/sh");
	elves[_i].change(&elf);
	run_write_file("prog", &elf, sizeof(elf), 0755);
	ck_assert_int_eq(RUN("./prog"), elves[_i].status);
	run_check_in(run_err, elves[_i].err);
	run_check_in(run_err, "\n             Next: ");
}
END_TEST

START_TEST(a_truncated_program_file_is_refused_or_left_to_the_kernel)
{
	struct made_elf elf;

	make_elf(&elf, "/nonexistent/ld.so");
	for (size_t size = 0; size < offsetof(struct made_elf, loader) + 19; size += 5) {
		run_write_file("prog", &elf, size, 0755);
		int status = RUN("./prog");
		/* Too short to be ELF: the kernel refuses it, or execvp() gives it to the shell. */
		if (size >= EI_NIDENT)
			ck_assert_msg(status == 126, "%zu bytes: expected exit status 126, got %d: %s", size, status,
				run_err);
		ck_assert_int_ne(status, 125);
	}
}
END_TEST

static bool are_rights_granted(void)
{
	struct statvfs fs;

	ck_assert_int_eq(statvfs(".", &fs), 0);
	return !(fs.f_flag & ST_NOSUID) && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
}

START_TEST(a_setuid_program_is_refused_unless_it_changes_no_user_or_group)
{
	ck_assert_int_eq(system("cp /bin/true ./prog && chmod 4755 ./prog"), 0);
	ck_assert_msg(RUN("./prog") == 0, "expected exit status 0: %s", run_err);
	/* Only root can make a program of another user, and setuid must take effect here. */
	if (getuid() != 0 || !are_rights_granted())
		return;
	ck_assert_int_eq(system("chown 1 ./prog && chmod 4755 ./prog"), 0);
	ck_assert_int_eq(RUN("./prog"), 125);
	run_check_in(run_err, "./prog is setuid: the loader ignores LD_PRELOAD for it.\n"
			      "             Next: if it starts CMD, ");
	ck_assert_int_eq(system("chown 0:1 ./prog && chmod 2755 ./prog"), 0);
	ck_assert_int_eq(RUN("./prog"), 125);
	run_check_in(run_err, "./prog is setgid: ");
	ck_assert_int_eq(system("chmod 2745 ./prog"), 0);
	ck_assert_int_eq(RUN("./prog"), 0);
}
END_TEST

/* The program is linked to a library under the sanitizer's name, and prints the variable. */
static const struct {
	const char *before, *after;
} asan_options[] = {
	{NULL, "verify_asan_link_order=0\n"},
	{"", "verify_asan_link_order=0\n"},
	{"detect_leaks=0", "detect_leaks=0:verify_asan_link_order=0\n"},
	{"verify_asan_link_order=1:detect_leaks=0", "verify_asan_link_order=1:detect_leaks=0\n"},
};

START_TEST(a_program_with_the_address_sanitizer_runs_without_its_link_order_check)
{
	if (asan_options[_i].before)
		setenv("ASAN_OPTIONS", asan_options[_i].before, 1);
	else
		unsetenv("ASAN_OPTIONS");
	ck_assert_msg(RUN(NEEDS_ASAN) == 0, "expected exit status 0: %s", run_err);
	ck_assert_str_eq(run_out, asan_options[_i].after);
	run_write_text("script", "#!" NEEDS_ASAN "\n");
	ck_assert_int_eq(RUN("./script"), 0);
	ck_assert_str_eq(run_out, asan_options[_i].after);
}
END_TEST

START_TEST(print_env_prints_asan_options_only_if_the_program_needs_them)
{
	unsetenv("ASAN_OPTIONS");
	ck_assert_int_eq(RUN("--print-env", NEEDS_ASAN), 0);
	run_check_in(run_out, "export ASAN_OPTIONS='verify_asan_link_order=0'\n");
	ck_assert_int_eq(RUN("--print-env", "/bin/sh"), 0);
	ck_assert_ptr_null(strstr(run_out, "ASAN_OPTIONS"));
}
END_TEST

START_TEST(a_program_that_is_executable_but_not_readable_is_started)
{
	ck_assert_int_eq(system("cp /bin/true ./prog && chmod 0111 ./prog"), 0);
	ck_assert_int_eq(RUN("./prog"), 0);
	ck_assert_str_eq(run_err, "");
}
END_TEST

static const struct {
	const char *text;
	int status;
	const char *err;
} scripts[] = {
	{"#!/bin/sh\nexit 42\n", 42, ""},
	{"#! \t/bin/sh \t-e \t\nexit 42\n", 42, ""},
	{"#!/usr/bin/env sh\nexit 42\n", 42, ""},
	{"#!/usr/bin/env -S A=1 sh -e\nexit $((41 + A))\n", 42, ""},
	{"exit 42\n", 42, ""},
	{"#!\nexit 42\n", 42, ""},
	{"#!./inner\nexit 1\n", 42, ""},
	{"", 0, ""},
	{"#!/nonexistent/sh\n", 127, "interpreter '/nonexistent/sh' cannot be started: No such"},
	{"#!/tmp\n", 126, "interpreter '/tmp' cannot be started: Permission denied"},
	{"#!./static -x\n", 125, "./static is statically linked"},
	{"#!./inner-static\n", 125, "./static is statically linked"},
	{"#!/usr/bin/env ./static\n", 125, "./static is statically linked"},
	{"#!/usr/bin/env -S A=1 ./static -x\n", 125, "./static is statically linked"},
	{"#!./prog\n", 126, "too deep for the kernel"},
};

START_TEST(a_script_is_checked_through_to_its_interpreter)
{
	struct made_elf elf;

	make_elf(&elf, "/bin/sh");
	make_static(&elf);
	run_write_file("static", &elf, sizeof(elf), 0755);
	run_write_text("inner", "#!/bin/sh\nexit 42\n");
	run_write_text("inner-static", "#!./static\n");
	run_write_text("prog", scripts[_i].text);
	ck_assert_msg(RUN("./prog") == scripts[_i].status, "expected exit status %d: %s", scripts[_i].status, run_err);
	if (*scripts[_i].err)
		run_check_in(run_err, scripts[_i].err);
	else
		ck_assert_str_eq(run_err, "");
}
END_TEST

START_TEST(a_program_that_may_drop_the_environment_for_cmd_gets_a_warning)
{
	ck_assert_int_eq(system("cp /bin/true ./docker && cp /bin/true ./dockerd"), 0);
	ck_assert_int_eq(RUN("./docker"), 0);
	ck_assert_str_eq(run_err,
		"gpupool-run: docker may not pass LD_PRELOAD on to CMD, which would then run without gpupool.\n"
		"             Next: put gpupool-run right before CMD:  docker ... gpupool-run CMD\n");
	ck_assert_int_eq(RUN("-q", "./docker"), 0);
	ck_assert_str_eq(run_err, "");
	ck_assert_int_eq(RUN("./dockerd"), 0);
	ck_assert_str_eq(run_err, "");
}
END_TEST

void run_add_program_tests(TCase *tc)
{
	tcase_add_test(tc, missing_and_not_executable_programs_get_different_exit_codes);
	tcase_add_test(tc, gpupool_run_searches_the_path_as_execvp_does);
	tcase_add_loop_test(tc, a_program_that_preloading_cannot_reach_is_refused, 0, LENGTH(elves));
	tcase_add_test(tc, a_truncated_program_file_is_refused_or_left_to_the_kernel);
	tcase_add_test(tc, a_setuid_program_is_refused_unless_it_changes_no_user_or_group);
	tcase_add_loop_test(tc, a_program_with_the_address_sanitizer_runs_without_its_link_order_check, 0,
		(int)LENGTH(asan_options));
	tcase_add_test(tc, print_env_prints_asan_options_only_if_the_program_needs_them);
	tcase_add_test(tc, a_program_that_is_executable_but_not_readable_is_started);
	tcase_add_loop_test(tc, a_script_is_checked_through_to_its_interpreter, 0, LENGTH(scripts));
	tcase_add_test(tc, a_program_that_may_drop_the_environment_for_cmd_gets_a_warning);
}
