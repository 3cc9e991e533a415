/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The page of a group, with real processes as members, which are killed, stopped, forked or run another program. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>

#include "shim/base/group_page.h"
#include "tests/suite.h"

#define FILE_NAME "name-test.group"
#define MIB       GP_MIB

enum { KEY = 77, LIMIT = 1000, RACERS = 4, RACE_STEPS = 150000, JOIN_MS = 100 };

static char directory[] = "/dev/shm/gpupool-group-XXXXXX";
static int dir_fd = -1;
static struct gp_group group;

static void make_directory(void)
{
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir_fd, 0);
	memset(&group, 0, sizeof(group));
	gp_mutex_init(&group.lock, GP_RANK_LEAF);
}

static void remove_directory(void)
{
	char command[64];

	close(dir_fd);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	ck_assert_int_eq(system(command), 0);
}

static int program_fd = -1; /* a file of the program, for the number that the library moves from; -1: none */
static int taken_fd = -1;   /* that number */

/* The library's call, beside which the program closes that number and gets it for its file. */
int fcntl(int fd, int command, ...)
{
	va_list args;
	void *argument;
	int r;

	va_start(args, command);
	argument = va_arg(args, void *);
	va_end(args);
	r = (int)syscall(SYS_fcntl, fd, command, argument);
	if (command == F_DUPFD_CLOEXEC && program_fd >= 0)
		taken_fd = dup2(program_fd, fd);
	return r;
}

static unsigned join(uint64_t limit)
{
	int row;

	ck_assert_int_eq(gp_group_join(&group, dir_fd, FILE_NAME), 0);
	row = gp_group_use_device(&group, KEY, limit);
	ck_assert_int_ge(row, 0);
	return (unsigned)row;
}

static void must(bool is_true)
{
	if (!is_true)
		_exit(9);
}

/* A child that joins, reserves, tells its parent, and then does what `then` does. */
static pid_t start_member(uint64_t bytes, void (*then)(void))
{
	int ready[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct gp_group *joined = &group;
		int row;

		gp_group_forget(joined);
		must(!gp_group_join(joined, dir_fd, FILE_NAME));
		row = gp_group_use_device(joined, KEY, LIMIT);
		must(row >= 0 && gp_group_charge(joined, (unsigned)row, bytes));
		if (then)
			then();
		must(write(ready[1], "r", 1) == 1);
		for (;;)
			pause();
	}
	ck_assert_int_gt(pid, 0);
	close(ready[1]);
	/* A child that runs another program closes the pipe, which tells the parent as well. */
	ck_assert_int_ge(read(ready[0], &byte, 1), 0);
	close(ready[0]);
	return pid;
}

static void end_member(pid_t pid)
{
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static void lose_slot(void)
{
	atomic_store(&group.page->members[group.slot].token, 0);
}

START_TEST(a_process_joins_beside_the_lock_of_a_slot_that_its_member_has_lost)
{
	pid_t other = start_member(600, lose_slot);
	unsigned row = join(LIMIT);

	ck_assert_uint_eq(group.slot, 1);
	ck_assert_uint_eq(gp_group_left(&group, row), LIMIT);
	end_member(other);
}
END_TEST

static void *charge_while_cancelled(void *ret)
{
	pthread_cancel(pthread_self());
	errno = 4321;
	*(bool *)ret = gp_group_charge(&group, 0, 600) && errno == 4321;
	pthread_testcancel();
	return NULL;
}

START_TEST(a_charge_is_not_cancelled_and_keeps_errno_while_it_takes_the_memory_of_an_ended_member)
{
	unsigned row = join(LIMIT);
	bool is_granted = false;
	pthread_t thread;
	void *result;

	end_member(start_member(600, NULL));
	ck_assert_uint_eq(row, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, charge_while_cancelled, &is_granted), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert(is_granted);
	ck_assert_uint_eq(gp_group_left(&group, row), 400);
}
END_TEST

static unsigned interrupted_row;
static pthread_t joiner;
static _Atomic bool has_joined_again;

static void *lose_slot_and_join_again(void *arg)
{
	const unsigned *row = arg;

	lose_slot();
	(void)gp_group_left(&group, *row);
	atomic_store(&has_joined_again, true);
	return NULL;
}

/*
 * Runs in the middle of the call that touches the page first: the process loses its slot and gets another one, unless
 * that has to wait for the end of the call.
 */
static void join_again_in_the_middle(int signal)
{
	const struct timespec millisecond = {.tv_nsec = 1000000};

	(void)signal;
	must(!mprotect(group.page, sizeof(*group.page), PROT_READ | PROT_WRITE));
	must(!pthread_create(&joiner, NULL, lose_slot_and_join_again, &interrupted_row));
	for (int ms = 0; ms < JOIN_MS && !atomic_load(&has_joined_again); ms++)
		nanosleep(&millisecond, NULL);
}

START_TEST(memory_given_back_while_the_process_joins_again_is_subtracted_once)
{
	const struct sigaction action = {.sa_handler = join_again_in_the_middle};
	struct sigaction before;

	interrupted_row = join(LIMIT);
	ck_assert(gp_group_charge(&group, interrupted_row, 100));
	ck_assert_int_eq(sigaction(SIGSEGV, &action, &before), 0);
	ck_assert_int_eq(mprotect(group.page, sizeof(*group.page), PROT_NONE), 0);
	gp_group_uncharge(&group, interrupted_row, 40);
	ck_assert_int_eq(pthread_join(joiner, NULL), 0);
	ck_assert_int_eq(sigaction(SIGSEGV, &before, NULL), 0);
	ck_assert_uint_eq(gp_group_left(&group, interrupted_row), LIMIT - 60);
}
END_TEST

START_TEST(memory_of_a_member_is_missing_to_the_other_members)
{
	unsigned row = join(LIMIT);
	pid_t other = start_member(600, NULL);

	ck_assert_uint_eq(gp_group_left(&group, row), 400);
	ck_assert(!gp_group_charge(&group, row, 401));
	ck_assert(gp_group_charge(&group, row, 400));
	ck_assert_uint_eq(gp_group_left(&group, row), 0);
	gp_group_uncharge(&group, row, 150);
	ck_assert_uint_eq(gp_group_left(&group, row), 150);
	end_member(other);
}
END_TEST

START_TEST(a_killed_member_gives_its_share_back_while_it_is_a_zombie)
{
	unsigned row = join(LIMIT);
	pid_t other = start_member(600, NULL);
	siginfo_t info;

	ck_assert_int_eq(kill(other, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)other, &info, WEXITED | WNOWAIT), 0); /* it stays a zombie */
	ck_assert(gp_group_charge(&group, row, LIMIT));
	ck_assert_int_eq(waitpid(other, NULL, 0), other);
}
END_TEST

static void fork_a_child_that_stays(void)
{
	if (fork() == 0) {
		gp_group_forget(&group);
		sleep(30);
		_exit(0);
	}
}

static void fork_a_child_without_handlers(void)
{
	if (fork() == 0) {
		sleep(30);
		_exit(0);
	}
}

static void (*const forks[])(void) = {fork_a_child_that_stays, fork_a_child_without_handlers};

START_TEST(a_forked_child_does_not_keep_the_share_of_a_killed_member)
{
	unsigned row = join(LIMIT);
	pid_t other = start_member(600, forks[_i]);

	end_member(other);
	ck_assert(gp_group_charge(&group, row, LIMIT));
}
END_TEST

START_TEST(a_forked_child_of_a_member_is_no_member)
{
	unsigned row = join(LIMIT);
	int status;
	pid_t child;

	ck_assert(gp_group_charge(&group, row, 300));
	child = fork();
	if (child == 0) {
		must(!gp_group_charge(&group, row, 1)); /* without the handler */
		gp_group_uncharge(&group, row, 300);
		gp_group_forget(&group);
		must(!gp_group_charge(&group, row, 1));
		must(!gp_group_join(&group, dir_fd, FILE_NAME));
		must(gp_group_use_device(&group, KEY, LIMIT) == (int)row);
		must(gp_group_left(&group, row) == 700);
		must(gp_group_charge(&group, row, 700));
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(gp_group_left(&group, row), 700);
}
END_TEST

static void run_another_program(void)
{
	execl("/bin/sleep", "sleep", "30", (char *)NULL);
}

START_TEST(a_member_that_runs_another_program_gives_its_share_back)
{
	unsigned row = join(LIMIT);
	pid_t other = start_member(600, run_another_program);

	ck_assert(gp_group_charge(&group, row, LIMIT));
	end_member(other);
}
END_TEST

static void close_all(void)
{
	close(group.fd);
}

START_TEST(a_member_that_closes_all_its_descriptors_keeps_its_share)
{
	unsigned row = join(LIMIT);
	int ready[2];
	pid_t other;

	ck_assert_int_eq(pipe(ready), 0);
	other = start_member(600, close_all);
	ck_assert(!gp_group_charge(&group, row, 401));
	ck_assert(gp_group_charge(&group, row, 400));
	end_member(other);
}
END_TEST

/* Another file gets the number of the closed one. */
START_TEST(a_file_that_the_program_puts_at_the_first_number_stays_open)
{
	struct stat program, found;

	program_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)join(LIMIT);
	ck_assert_int_ge(taken_fd, 0);
	ck_assert_int_ne(taken_fd, group.fd);
	ck_assert_int_eq(fstat(program_fd, &program), 0);
	ck_assert_int_eq(fstat(taken_fd, &found), 0);
	ck_assert_uint_eq(found.st_ino, program.st_ino);
}
END_TEST

START_TEST(a_member_locks_its_own_file_again_and_no_other_file_of_the_program)
{
	unsigned row;
	int other, status;
	pid_t child;

	snprintf(group.path, sizeof(group.path), "%s/" FILE_NAME, directory);
	row = join(LIMIT);
	close(group.fd);
	other = openat(dir_fd, "other", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(dup3(other, group.fd, O_CLOEXEC), group.fd);
	ck_assert(gp_group_charge(&group, row, 600));
	ck_assert(!gp_group_charge(&group, row, 600));
	ck_assert_int_ne(group.fd, other);
	child = fork();
	if (child == 0) {
		struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

		must(!fcntl(other, F_GETLK, &lock) && lock.l_type == F_UNLCK);
		lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
		must(!fcntl(group.fd, F_GETLK, &lock) && lock.l_type == F_WRLCK && lock.l_pid == getppid());
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
}
END_TEST

static void stop(void)
{
	(void)kill(getpid(), SIGSTOP);
}

START_TEST(a_stopped_member_keeps_its_share_and_delays_no_other_member)
{
	unsigned row = join(LIMIT);
	int status;
	pid_t other = fork();

	if (other == 0) {
		gp_group_forget(&group);
		must(!gp_group_join(&group, dir_fd, FILE_NAME));
		must(gp_group_use_device(&group, KEY, LIMIT) >= 0 && gp_group_charge(&group, row, 600));
		stop();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(other, &status, WUNTRACED), other);
	ck_assert(WIFSTOPPED(status));
	ck_assert(!gp_group_charge(&group, row, 401));
	ck_assert(gp_group_charge(&group, row, 400));
	end_member(other);
}
END_TEST

START_TEST(the_lowest_limit_of_the_living_members_holds)
{
	unsigned row = join(4000);
	pid_t other = start_member(600, NULL);
	struct gp_group_view view;

	ck_assert_uint_eq(gp_group_left(&group, row), LIMIT - 600);
	gp_group_view(&group, row, &view);
	ck_assert_uint_eq(view.limit_bytes, LIMIT);
	ck_assert_uint_eq(view.reserved_bytes, 600);
	ck_assert_uint_eq(view.n_members, 2);
	ck_assert_int_eq(view.holders[0].pid, other);
	ck_assert(!view.holders[0].is_self && view.holders[1].is_self);
	end_member(other);
	ck_assert_uint_eq(gp_group_left(&group, row), 4000);
}
END_TEST

START_TEST(devices_have_sums_of_their_own_up_to_the_number_of_rows)
{
	unsigned row = join(LIMIT);
	int other = gp_group_use_device(&group, KEY + 1, LIMIT);

	ck_assert_int_ne(other, (int)row);
	ck_assert(gp_group_charge(&group, row, LIMIT));
	ck_assert(gp_group_charge(&group, (unsigned)other, LIMIT));
	for (uint64_t key = KEY + 2; key < KEY + GP_GROUP_DEVICES; key++)
		ck_assert_int_ge(gp_group_use_device(&group, key, LIMIT), 0);
	ck_assert_int_eq(gp_group_use_device(&group, KEY + GP_GROUP_DEVICES, LIMIT), -ENOSPC);
	ck_assert_int_eq(gp_group_use_device(&group, KEY, LIMIT), (int)row);
}
END_TEST

/* A count of what all racers hold, apart from the page. */
struct witness {
	_Atomic uint64_t held, most, n_ready, n_granted[RACERS];
};

static void race(struct witness *witness, unsigned racer, uint64_t limit)
{
	uint64_t seed = racer * UINT64_C(0x9e3779b97f4a7c15) + 1, held = 0;
	int row;

	gp_group_forget(&group);
	must(!gp_group_join(&group, dir_fd, FILE_NAME));
	row = gp_group_use_device(&group, KEY, limit);
	atomic_fetch_add(&witness->n_ready, 1);
	while (atomic_load(&witness->n_ready) < RACERS)
		gp_yield(0);
	for (unsigned n = 0; n < RACE_STEPS; n++) {
		uint64_t bytes, all, most;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		bytes = seed % limit + 1;
		if (held && seed >> 61) {
			gp_pause(); /* holds it for some time, in which others would see a sum that is too large */
		} else if (held) {
			atomic_fetch_sub(&witness->held, held);
			gp_group_uncharge(&group, (unsigned)row, held);
			held = 0;
		} else if (gp_group_charge(&group, (unsigned)row, bytes)) {
			held = bytes;
			all = atomic_fetch_add(&witness->held, bytes) + bytes;
			most = atomic_load(&witness->most);
			while (all > most && !atomic_compare_exchange_weak(&witness->most, &most, all))
				;
			atomic_fetch_add(&witness->n_granted[racer], 1);
		}
	}
	atomic_fetch_sub(&witness->held, held); /* the end of the process gives it back */
	_exit(0);
}

static const uint64_t race_limits[] = {1, 100, 1 << 20};

START_TEST(members_that_reserve_at_once_never_hold_more_than_the_limit_and_all_get_some)
{
	struct witness *witness =
		mmap(NULL, sizeof(*witness), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned row = join(race_limits[_i]);
	pid_t racers[RACERS];
	int status;

	for (unsigned i = 0; i < RACERS; i++) {
		racers[i] = fork();
		if (racers[i] == 0)
			race(witness, i, race_limits[_i]);
	}
	for (unsigned i = 0; i < RACERS; i++) {
		ck_assert_int_eq(waitpid(racers[i], &status, 0), racers[i]);
		ck_assert_int_eq(status, 0);
		ck_assert_uint_gt(atomic_load(&witness->n_granted[i]), 0);
	}
	ck_assert_uint_le(atomic_load(&witness->most), race_limits[_i]);
	ck_assert_uint_eq(gp_group_left(&group, row), race_limits[_i]);
	munmap(witness, sizeof(*witness));
}
END_TEST

/* Members that are killed while they reserve and release leave nothing behind, whatever they were doing. */
START_TEST(members_killed_at_any_instant_leave_no_share)
{
	unsigned row = join(LIMIT);

	for (useconds_t n = 0; n < 40; n++) {
		pid_t pid = fork();

		if (pid == 0) {
			gp_group_forget(&group);
			must(!gp_group_join(&group, dir_fd, FILE_NAME));
			must(gp_group_use_device(&group, KEY, LIMIT) >= 0);
			for (;;)
				if (gp_group_charge(&group, row, 7))
					gp_group_uncharge(&group, row, 7);
		}
		usleep(n * 50);
		end_member(pid);
		ck_assert_uint_eq(gp_group_left(&group, row), LIMIT);
	}
}
END_TEST

static void make_file(mode_t mode, size_t bytes, uint64_t magic)
{
	int fd = openat(dir_fd, FILE_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	if (bytes >= sizeof(magic))
		ck_assert_int_eq(pwrite(fd, &magic, sizeof(magic), 0), sizeof(magic));
	close(fd);
}

static void squat_link(void)
{
	make_file(0600, 0, 0);
	ck_assert_int_eq(renameat(dir_fd, FILE_NAME, dir_fd, "target"), 0);
	ck_assert_int_eq(symlinkat("target", dir_fd, FILE_NAME), 0);
}

static void squat_second_name(void)
{
	make_file(0600, 0, 0);
	ck_assert_int_eq(linkat(dir_fd, FILE_NAME, dir_fd, "second", 0), 0);
}

static void squat_directory(void)
{
	ck_assert_int_eq(mkdirat(dir_fd, FILE_NAME, 0700), 0);
}

static void squat_pipe(void)
{
	ck_assert_int_eq(mkfifoat(dir_fd, FILE_NAME, 0600), 0);
}

static void squat_readable(void)
{
	make_file(0644, 0, 0);
}

static void squat_short(void)
{
	make_file(0600, 100, 0);
}

static void squat_foreign(void)
{
	make_file(0600, sizeof(struct gp_group_page), 1234);
}

static const struct {
	void (*squat)(void);
	int error;
} squats[] = {
	{squat_link, -ELOOP},
	{squat_second_name, -EPERM},
	{squat_directory, -EISDIR},
	{squat_pipe, -EPERM},
	{squat_readable, -EPERM},
	{squat_short, -EPROTO},
	{squat_foreign, -EPROTO},
};

START_TEST(a_file_that_is_not_the_users_own_page_is_refused_and_left_alone)
{
	struct stat before, after;

	squats[_i].squat();
	ck_assert_int_eq(fstatat(dir_fd, FILE_NAME, &before, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert_int_eq(gp_group_join(&group, dir_fd, FILE_NAME), squats[_i].error);
	ck_assert_ptr_null(group.page);
	ck_assert_int_eq(fstatat(dir_fd, FILE_NAME, &after, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert_int_eq(before.st_ino, after.st_ino);
	ck_assert_int_eq(before.st_size, after.st_size);
}
END_TEST

START_TEST(a_file_of_another_user_is_refused)
{
	if (geteuid() != 0)
		return; /* only root can make one */
	make_file(0600, 0, 0);
	ck_assert_int_eq(fchownat(dir_fd, FILE_NAME, 65534, 65534, 0), 0);
	ck_assert_int_eq(gp_group_join(&group, dir_fd, FILE_NAME), -EPERM);
}
END_TEST

static const size_t unfinished[] = {0, sizeof(struct gp_group_page)};

START_TEST(a_file_whose_maker_was_killed_is_finished_by_the_next_member)
{
	make_file(0600, unfinished[_i], 0);
	ck_assert_uint_eq(gp_group_left(&group, join(LIMIT)), LIMIT);
}
END_TEST

START_TEST(a_page_on_a_disk_is_refused)
{
	char path[] = "/tmp/gpupool-group-XXXXXX";
	struct statfs fs;
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(path));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!statfs(path, &fs) && (unsigned)fs.f_type != TMPFS_MAGIC && (unsigned)fs.f_type != RAMFS_MAGIC)
		ck_assert_int_eq(gp_group_join(&group, fd, FILE_NAME), -EOPNOTSUPP);
	(void)unlinkat(fd, FILE_NAME, 0);
	close(fd);
	rmdir(path);
}
END_TEST

START_TEST(a_sweep_removes_files_without_members_only)
{
	pid_t other = start_member(1, NULL);

	ck_assert_int_eq(renameat(dir_fd, FILE_NAME, dir_fd, "name-used.group"), 0);
	make_file(0600, sizeof(struct gp_group_page), 0);
	ck_assert_int_eq(renameat(dir_fd, FILE_NAME, dir_fd, "name-stale.group"), 0);
	make_file(0600, 0, 0);
	ck_assert_int_eq(renameat(dir_fd, FILE_NAME, dir_fd, "notes"), 0);
	(void)join(LIMIT);
	gp_group_sweep(dir_fd, FILE_NAME);
	ck_assert_int_eq(faccessat(dir_fd, "name-used.group", F_OK, 0), 0);
	ck_assert_int_eq(faccessat(dir_fd, "notes", F_OK, 0), 0);
	ck_assert_int_eq(faccessat(dir_fd, FILE_NAME, F_OK, 0), 0);
	ck_assert_int_ne(faccessat(dir_fd, "name-stale.group", F_OK, 0), 0);
	end_member(other);
	gp_group_sweep(dir_fd, FILE_NAME);
	ck_assert_int_ne(faccessat(dir_fd, "name-used.group", F_OK, 0), 0);
}
END_TEST

static const struct {
	const char *kind, *text, *name;
} names[] = {
	{"name", "train", "name-train.group"},
	{"job", "12[3].server/../x", "job-12_3_.server_.._x.group"},
};

START_TEST(a_name_cannot_lead_out_of_the_directory)
{
	char name[GP_GROUP_FILE_MAX], text[200];

	gp_group_file_format(name, names[_i].kind, names[_i].text);
	ck_assert_str_eq(name, names[_i].name);
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	gp_group_file_format(name, "job", text);
	ck_assert_uint_lt(strlen(name), GP_GROUP_FILE_MAX);
	ck_assert_str_eq(name + strlen(name) - strlen(GP_GROUP_SUFFIX), GP_GROUP_SUFFIX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("group_page");
	TCase *tc = tcase_create("group_page");

	if (access("/dev/shm", W_OK)) {
		puts("1..0 # SKIP no directory in memory");
		return 77;
	}
	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, make_directory, remove_directory);
	tcase_add_test(tc, a_process_joins_beside_the_lock_of_a_slot_that_its_member_has_lost);
	tcase_add_test(tc, a_charge_is_not_cancelled_and_keeps_errno_while_it_takes_the_memory_of_an_ended_member);
	tcase_add_test(tc, memory_given_back_while_the_process_joins_again_is_subtracted_once);
	tcase_add_test(tc, memory_of_a_member_is_missing_to_the_other_members);
	tcase_add_test(tc, a_killed_member_gives_its_share_back_while_it_is_a_zombie);
	ADD_ROWS(tc, forks, a_forked_child_does_not_keep_the_share_of_a_killed_member);
	tcase_add_test(tc, a_forked_child_of_a_member_is_no_member);
	tcase_add_test(tc, a_member_that_runs_another_program_gives_its_share_back);
	tcase_add_test(tc, a_member_that_closes_all_its_descriptors_keeps_its_share);
	tcase_add_test(tc, a_file_that_the_program_puts_at_the_first_number_stays_open);
	tcase_add_test(tc, a_member_locks_its_own_file_again_and_no_other_file_of_the_program);
	tcase_add_test(tc, a_stopped_member_keeps_its_share_and_delays_no_other_member);
	tcase_add_test(tc, the_lowest_limit_of_the_living_members_holds);
	tcase_add_test(tc, devices_have_sums_of_their_own_up_to_the_number_of_rows);
	ADD_ROWS(tc, race_limits, members_that_reserve_at_once_never_hold_more_than_the_limit_and_all_get_some);
	tcase_add_test(tc, members_killed_at_any_instant_leave_no_share);
	ADD_ROWS(tc, squats, a_file_that_is_not_the_users_own_page_is_refused_and_left_alone);
	tcase_add_test(tc, a_file_of_another_user_is_refused);
	ADD_ROWS(tc, unfinished, a_file_whose_maker_was_killed_is_finished_by_the_next_member);
	tcase_add_test(tc, a_page_on_a_disk_is_refused);
	tcase_add_test(tc, a_sweep_removes_files_without_members_only);
	ADD_ROWS(tc, names, a_name_cannot_lead_out_of_the_directory);
	return suite_run(suite);
}
