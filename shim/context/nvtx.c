/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A thread that pushes a range enters a region. A range that no rule names changes nothing. The pushes and pops of each
 * domain form a separate stack, and the thread is in the regions of all of these stacks.
 *
 * Push and pop return the value that they return without a tool, NVTX_NOT_TRACKED. The handles of domains and of
 * registered strings differ from those without a tool: they are not NULL, and only gpupool uses them.
 */

#include "nvtx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "region.h"
#include "shim/base/fork.h"

enum { TEXTS_MAX = 4096 };

/* A registered string or the name of a domain. It lives as long as the process. Only the first 63 characters count. */
struct text {
	struct text *next;
	char name[GP_REGION_NAME_MAX];
};

struct list {
	struct text *first;
	unsigned n;
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct list texts, domains; /* under the lock */

/* Copies a name in the form of a region's name: cut to the maximum length, with '?' for characters outside ASCII. */
static void copy_name(char name[static GP_REGION_NAME_MAX], const char *text)
{
	size_t n = 0;

	for (; text && text[n] && n + 1 < GP_REGION_NAME_MAX; n++)
		name[n] = (char)(text[n] < ' ' || text[n] > '~' ? '?' : text[n]);
	name[n] = '\0';
}

static void copy_wide_name(char name[static GP_REGION_NAME_MAX], const wchar_t *text)
{
	size_t n = 0;

	for (; text && text[n] && n + 1 < GP_REGION_NAME_MAX; n++)
		name[n] = (char)(text[n] < L' ' || text[n] > L'~' ? '?' : text[n]);
	name[n] = '\0';
}

/* Returns the list's entry for a name, adding it if needed. NULL if the list is full or there is no host memory. */
static struct text *intern(struct list *list, const char *name)
{
	struct text *text;
	int saved_errno = errno;

	gp_mutex_lock(&lock);
	for (text = list->first; text && strcmp(text->name, name) != 0;)
		text = text->next;
	if (!text && list->n < TEXTS_MAX && (text = malloc(sizeof(*text)))) {
		strcpy(text->name, name);
		text->next = list->first;
		list->first = text;
		list->n++;
	}
	gp_mutex_unlock(&lock);
	errno = saved_errno;
	return text;
}

static bool is_named(const char *name)
{
	const struct gp_config_regions *regions = &gp_state.config.regions;

	for (unsigned i = 0; i < regions->n; i++)
		if (regions->rules[i].way == GP_REGION_BY_NVTX &&
			gp_region_pattern_matches(regions->rules[i].pattern, name))
			return true;
	return false;
}

static int push(const void *domain, const char *name)
{
	int saved_errno = errno;

	(void)gp_region_push(domain, *name && is_named(name) ? name : NULL);
	errno = saved_errno;
	return NVTX_NOT_TRACKED;
}

static int domain_push_ex(const void *domain, const struct nvtx_attributes *attributes)
{
	const struct text *registered;
	char name[GP_REGION_NAME_MAX] = "";

	if (!attributes || attributes->bytes < sizeof(*attributes))
		return push(domain, name);
	switch (attributes->message_type) {
	case NVTX_MESSAGE_ASCII:
		copy_name(name, attributes->message);
		break;
	case NVTX_MESSAGE_WIDE:
		copy_wide_name(name, attributes->message);
		break;
	case NVTX_MESSAGE_REGISTERED:
		registered = attributes->message;
		copy_name(name, registered ? registered->name : NULL);
		break;
	default:
		break;
	}
	return push(domain, name);
}

static int domain_pop(const void *domain)
{
	int saved_errno = errno;

	(void)gp_region_pop(domain);
	errno = saved_errno;
	return NVTX_NOT_TRACKED;
}

/* The address of this object stands for the domain of ranges that have no domain. */
static const char no_domain;

static int push_ex(const struct nvtx_attributes *attributes)
{
	return domain_push_ex(&no_domain, attributes);
}

static int push_a(const char *text)
{
	char name[GP_REGION_NAME_MAX];

	copy_name(name, text);
	return push(&no_domain, name);
}

static int push_w(const wchar_t *text)
{
	char name[GP_REGION_NAME_MAX];

	copy_wide_name(name, text);
	return push(&no_domain, name);
}

static int pop(void)
{
	return domain_pop(&no_domain);
}

/* The functions of the NVTX header pass NULL for a range without a domain. */
static const void *or_no_domain(const void *domain)
{
	return domain ? domain : &no_domain;
}

static int push_in(const void *domain, const struct nvtx_attributes *attributes)
{
	return domain_push_ex(or_no_domain(domain), attributes);
}

static int pop_in(const void *domain)
{
	return domain_pop(or_no_domain(domain));
}

static void *register_a(const void *domain, const char *text)
{
	char name[GP_REGION_NAME_MAX];

	copy_name(name, text);
	return intern(&texts, name);
}

static void *register_w(const void *domain, const wchar_t *text)
{
	char name[GP_REGION_NAME_MAX];

	copy_wide_name(name, text);
	return intern(&texts, name);
}

static void *create_a(const char *text)
{
	char name[GP_REGION_NAME_MAX];

	copy_name(name, text);
	return intern(&domains, name);
}

static void *create_w(const wchar_t *text)
{
	char name[GP_REGION_NAME_MAX];

	copy_wide_name(name, text);
	return intern(&domains, name);
}

static const struct row {
	int module;
	unsigned number;
	nvtx_function function;
} rows[] = {
	{NVTX_MODULE_CORE, NVTX_RANGE_PUSH_EX, (nvtx_function)push_ex},
	{NVTX_MODULE_CORE, NVTX_RANGE_PUSH_A, (nvtx_function)push_a},
	{NVTX_MODULE_CORE, NVTX_RANGE_PUSH_W, (nvtx_function)push_w},
	{NVTX_MODULE_CORE, NVTX_RANGE_POP, (nvtx_function)pop},
	{NVTX_MODULE_DOMAINS, NVTX_DOMAIN_RANGE_PUSH_EX, (nvtx_function)push_in},
	{NVTX_MODULE_DOMAINS, NVTX_DOMAIN_RANGE_POP, (nvtx_function)pop_in},
	{NVTX_MODULE_DOMAINS, NVTX_DOMAIN_REGISTER_STRING_A, (nvtx_function)register_a},
	{NVTX_MODULE_DOMAINS, NVTX_DOMAIN_REGISTER_STRING_W, (nvtx_function)register_w},
	{NVTX_MODULE_DOMAINS, NVTX_DOMAIN_CREATE_A, (nvtx_function)create_a},
	{NVTX_MODULE_DOMAINS, NVTX_DOMAIN_CREATE_W, (nvtx_function)create_w},
};

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

static bool is_wanted(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	int saved_errno = errno;
	bool is_on;

	gp_fork_on_child(&child);
	is_on = gp_state_is_enabled() && gp_config_regions_has(&gp_state.config.regions, GP_REGION_BY_NVTX);
	errno = saved_errno;
	return is_on;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(nvtx_get_table *get_table)
{
	const struct nvtx_callbacks *callbacks = is_wanted() ? get_table(NVTX_TABLE_CALLBACKS) : NULL;

	if (!callbacks || callbacks->bytes < sizeof(*callbacks))
		return 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		nvtx_function **functions = NULL;
		unsigned n = 0;

		if (callbacks->get_module(rows[i].module, &functions, &n) && rows[i].number < n &&
			functions[rows[i].number])
			*functions[rows[i].number] = rows[i].function;
	}
	return 1;
}
