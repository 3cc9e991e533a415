/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "region.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "thread.h"

struct entered {
	const void *owner;
	int id;
	unsigned n_reentries; /* times that the owner entered it again while inside, as a recursive function does */
	char name[GP_REGION_NAME_MAX];
};

/* The regions that the thread has entered, the outermost first. */
struct stack {
	unsigned depth;
	struct entered entered[GP_REGION_NESTED_MAX];
};

_Thread_local int gp_region_current __attribute__((tls_model("initial-exec")));
static _Thread_local struct stack *stack __attribute__((tls_model("initial-exec")));

/* Names are never changed or removed, so reading an existing name needs no lock. The lock is taken to add one. */
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

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

int gp_region_find_or_add(const char *name)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	static _Atomic bool is_limit_logged;
	int id, n;

	gp_fork_on_child(&child);
	gp_mutex_lock(&lock);
	id = gp_region_find(name);
	n = gp_region_count();
	if (!id && n < GP_REGIONS_MAX) {
		strcpy(names[n], name);
		id = n + 1;
		atomic_store_explicit(&n_names, id, memory_order_release);
	}
	gp_mutex_unlock(&lock);
	if (!id && !atomic_exchange(&is_limit_logged, true))
		gp_log(GP_LOG_WARN,
			"there are %d regions already: '%s' and later ones share the cache for code outside regions",
			GP_REGIONS_MAX, name);
	return id;
}

/* Returns the innermost entry with a name, or NULL if there is none. */
static struct entered *innermost(void)
{
	unsigned n = stack ? gp_min(stack->depth, GP_REGION_NESTED_MAX) : 0;

	while (n && !*stack->entered[n - 1].name)
		n--;
	return n ? &stack->entered[n - 1] : NULL;
}

/* Switches to the innermost region. Outside of all regions, a rule may decide at the next allocation. */
static void apply_innermost(void)
{
	int outside = gp_region_has_rules ? GP_REGION_UNKNOWN : GP_REGION_NONE;

	gp_thread_go_to_region(innermost() ? innermost()->id : outside);
}

int gp_region_resolve(void)
{
	int id = innermost() ? innermost()->id : gp_region_by_rule();

	if (id == GP_REGION_UNKNOWN)
		id = innermost()->id = gp_region_find_or_add(innermost()->name);
	if (id != gp_region_current)
		gp_thread_go_to_region(id);
	return id;
}

bool gp_region_is_name(const char *name)
{
	size_t length = name ? strnlen(name, GP_REGION_NAME_MAX) : 0;

	if (!length || length == GP_REGION_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if (name[i] < ' ' || name[i] > '~')
			return false;
	return true;
}

/* Returns the last entry if it has this owner and name, so that it can be entered again; otherwise NULL. */
static struct entered *find_same(const void *owner, const char *name)
{
	unsigned depth = stack->depth;
	struct entered *last = depth && depth <= GP_REGION_NESTED_MAX ? &stack->entered[depth - 1] : NULL;

	return last && last->owner == owner && last->n_reentries != UINT_MAX && strcmp(last->name, name) == 0 ? last
													      : NULL;
}

static void enter(const void *owner, const char *name)
{
	struct entered *entered = &stack->entered[stack->depth];
	int id = *name ? gp_region_find(name) : GP_REGION_NONE;

	*entered = (struct entered){.owner = owner, .id = id ? id : GP_REGION_UNKNOWN};
	strcpy(entered->name, name);
}

int gp_region_push(const void *owner, const char *name)
{
	struct entered *same;

	if (!stack)
		stack = gp_thread_ensure() ? calloc(1, sizeof(*stack)) : NULL;
	if (!stack)
		return -ENOMEM;
	same = find_same(owner, name ? name : "");
	if (same) {
		same->n_reentries++;
		return 0;
	}
	if (stack->depth < GP_REGION_NESTED_MAX)
		enter(owner, name ? name : "");
	stack->depth++;
	apply_innermost();
	return 0;
}

/* Returns the owner's last entry, or NULL. */
static struct entered *find_last(const void *owner)
{
	unsigned i = stack->depth;

	while (i && stack->entered[i - 1].owner != owner)
		i--;
	return i ? &stack->entered[i - 1] : NULL;
}

static void leave(struct entered *entered)
{
	struct entered *end = &stack->entered[stack->depth--];

	memmove(entered, entered + 1, (size_t)(end - (entered + 1)) * sizeof(*entered));
	apply_innermost();
}

bool gp_region_pop(const void *owner)
{
	struct entered *last;

	/* Levels beyond GP_REGION_NESTED_MAX have no recorded owner and changed nothing, so only count them down. */
	if (stack && stack->depth > GP_REGION_NESTED_MAX) {
		stack->depth--;
		return true;
	}
	last = stack ? find_last(owner) : NULL;
	if (!last)
		return false;
	if (last->n_reentries)
		last->n_reentries--;
	else
		leave(last);
	return true;
}

void gp_region_thread_ends(void)
{
	free(stack);
	stack = NULL;
	gp_region_current = GP_REGION_NONE;
}
