/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "thread.h"

struct entered {
	int id;
	char name[GP_REGION_NAME_MAX];
};

/* What the thread is in, the outermost first. */
struct stack {
	unsigned depth;
	struct entered entered[GP_REGION_NESTED_MAX];
};

_Thread_local int gp_region_current __attribute__((tls_model("initial-exec")));
static _Thread_local struct stack *stack __attribute__((tls_model("initial-exec")));

/* Names come and never go, so who reads one that there is needs no lock. */
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static char names[GP_REGIONS_MAX][GP_REGION_NAME_MAX];
static _Atomic int n_names;

int gp_region_count(void)
{
	return atomic_load_explicit(&n_names, memory_order_acquire);
}

const char *gp_region_name(int id)
{
	return names[id - 1];
}

int gp_region_find(const char *name)
{
	int n = gp_region_count(), i = 0;

	while (i < n && strcmp(names[i], name) != 0)
		i++;
	return i < n ? i + 1 : GP_REGION_NONE;
}

static int find_or_add(const char *name)
{
	int id, n;

	gp_mutex_lock(&lock);
	id = gp_region_find(name);
	n = gp_region_count();
	if (!id && n < GP_REGIONS_MAX) {
		strcpy(names[n], name);
		id = n + 1;
		atomic_store_explicit(&n_names, id, memory_order_release);
	}
	gp_mutex_unlock(&lock);
	return id;
}

static struct entered *top(void)
{
	return stack && stack->depth ? &stack->entered[gp_min(stack->depth, GP_REGION_NESTED_MAX) - 1] : NULL;
}

static void go_to_top(void)
{
	gp_thread_go_to_region(top() ? top()->id : GP_REGION_NONE);
}

int gp_region_resolve(void)
{
	static _Atomic bool is_told;
	int id = find_or_add(top()->name);

	if (!id && !atomic_exchange(&is_told, true))
		gp_log(GP_LOG_WARN, "there are %d regions already: '%s' and other new ones have no cache of their own",
			GP_REGIONS_MAX, top()->name);
	top()->id = id;
	go_to_top();
	return id;
}

static bool is_name(const char *name)
{
	size_t length = name ? strnlen(name, GP_REGION_NAME_MAX) : 0;

	if (!length || length == GP_REGION_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if (name[i] < ' ' || name[i] > '~')
			return false;
	return true;
}

int gp_region_begin(const char *name)
{
	int id;

	if (!is_name(name))
		return -EINVAL;
	if (!stack)
		stack = gp_thread_exists() ? calloc(1, sizeof(*stack)) : NULL;
	if (!stack)
		return -ENOMEM;
	if (stack->depth++ >= GP_REGION_NESTED_MAX)
		return 0;
	id = gp_region_find(name);
	top()->id = id ? id : GP_REGION_UNKNOWN;
	strcpy(top()->name, name);
	go_to_top();
	return 0;
}

bool gp_region_end(void)
{
	if (!stack || !stack->depth)
		return false;
	stack->depth--;
	go_to_top();
	return true;
}

void gp_region_thread_ends(void)
{
	free(stack);
	stack = NULL;
	gp_region_current = GP_REGION_NONE;
}

void gp_region_after_fork_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}
