/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Changes that only root can make to a process: another user, another root directory or other namespaces. */

#include <dirent.h>
#include <grp.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest.h"

enum { NOBODY = 65534 };

static void become_other_user(void)
{
	printf("groups %d, ", setgroups(0, NULL));
	printf("group %d, ", setresgid(NOBODY, NOBODY, NOBODY));
	printf("user %d\n", setresuid(NOBODY, NOBODY, NOBODY));
}

static bool is_root(const char *task)
{
	char path[300], line[256];
	unsigned user = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Uid: %*u %u", &user) == 1)
			break;
	if (file)
		fclose(file);
	return user == 0;
}

/* All threads must have changed their user, also those that the program does not know. */
static void count_roots(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *entry;
	unsigned n = 0;

	while (tasks && (entry = readdir(tasks)))
		n += entry->d_name[0] != '.' && is_root(entry->d_name);
	if (tasks)
		closedir(tasks);
	printf("threads of root: %u\n", n);
}

static void drop_before(void)
{
	if (chmod(".", 0711) || mkdir("tmp", 0700) || chmod("tmp", 01777))
		exit(80);
	become_other_user();
	app_start();
	guest_use("nobody");
	app_report_driver();
}

static void drop_after(void)
{
	app_start();
	guest_use("root");
	become_other_user();
	guest_use("nobody");
	count_roots();
}

static void enter_root(void)
{
	if (mkdir("root", 0755) || chroot("root") || chdir("/"))
		exit(81);
}

static void root_before(void)
{
	app_start();
	enter_root();
	guest_use("in its root");
	printf("%u files\n", guest_count_entries("/"));
	app_report_driver();
}

static void root_after(void)
{
	app_start();
	guest_use("before");
	enter_root();
	guest_use("in its root");
	printf("%u files\n", guest_count_entries("/"));
}

/* The child is the first process of its namespace, while /proc still shows the others. */
static void namespaces(void)
{
	int child;

	app_result("unshare", unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC));
	fflush(stdout);
	child = fork();
	if (child == 0) {
		printf("process %d\n", (int)getpid());
		app_start();
		guest_use("alone");
		app_report_driver();
		exit(14);
	}
	guest_wait("the first", child);
}

static void user_namespace(void)
{
	app_result("unshare", unshare(CLONE_NEWUSER));
	printf("user %d\n", (int)getuid());
	app_start();
	guest_use("a user without a name");
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"drop-before", drop_before},
	{"drop-after", drop_after},
	{"root-before", root_before},
	{"root-after", root_after},
	{"namespaces", namespaces},
	{"user-namespace", user_namespace},
	{0},
};
