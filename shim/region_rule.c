/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * GPUPOOL_REGIONS: which region a thread is in that has entered none. The first rule that fits counts. A thread's name
 * is looked at once, at its first allocation; who is calling is looked at each time.
 */

#include <sys/prctl.h>

#include "caller.h"
#include "region.h"

enum { THREAD_NAME_MAX = 16, LOOKED_AT = 1 << GP_REGION_RULES_MAX };

_Static_assert((int)GP_REGION_TEXT_MAX == (int)GP_REGION_NAME_MAX, "what a rule names is a name");

bool gp_region_has_rules, gp_region_has_caller_rules;

static const struct gp_config_regions *rules;

/* By the numbers of files: a bit for each rule that fits it, and LOOKED_AT. */
static _Atomic uint32_t fits_of[GP_CALLERS_MAX + 1];

static _Thread_local struct {
	bool is_known, has_name;
	int id;
	char name[THREAD_NAME_MAX + 1];
} by_thread __attribute__((tls_model("initial-exec")));

void gp_region_init(const struct gp_config_regions *regions)
{
	rules = regions;
	gp_region_has_caller_rules = gp_config_regions_has(regions, GP_REGION_BY_LIBRARY);
	gp_region_has_rules = gp_region_has_caller_rules || gp_config_regions_has(regions, GP_REGION_BY_THREAD);
}

static uint32_t look_at(uint32_t caller)
{
	const char *name = gp_caller_name(caller);
	uint32_t fits = LOOKED_AT;

	for (unsigned i = 0; name && i < rules->n; i++)
		if (rules->rules[i].way == GP_REGION_BY_LIBRARY &&
		    gp_region_pattern_fits(rules->rules[i].pattern, name))
			fits |= UINT32_C(1) << i;
	return fits;
}

/* The rules that fit a file. */
static uint32_t fits_of_caller(uint32_t caller)
{
	uint32_t fits = atomic_load_explicit(&fits_of[caller], memory_order_relaxed);

	if (gp_unlikely(!fits)) {
		fits = look_at(caller);
		atomic_store_explicit(&fits_of[caller], fits, memory_order_relaxed);
	}
	return fits;
}

static int id_of(const struct gp_region_rule *rule, const char *met)
{
	char name[GP_REGION_NAME_MAX];
	size_t n = 0;

	if (*rule->name)
		return gp_region_find_or_add(rule->name);
	for (; met[n] && n + 1 < sizeof(name); n++)
		name[n] = (char)(met[n] < ' ' || met[n] > '~' ? '?' : met[n]);
	name[n] = '\0';
	return n ? gp_region_find_or_add(name) : GP_REGION_NONE;
}

static const char *thread_name(void)
{
	if (!by_thread.has_name)
		(void)prctl(PR_GET_NAME, by_thread.name, 0, 0, 0);
	by_thread.has_name = true;
	return by_thread.name;
}

/* Who is calling is looked at once: who asks again may be told less. */
static int find(uint32_t caller)
{
	uint32_t fits = fits_of_caller(caller);

	for (unsigned i = 0; i < rules->n; i++) {
		const struct gp_region_rule *rule = &rules->rules[i];

		if (fits >> i & 1)
			return id_of(rule, gp_caller_name(caller));
		if (rule->way == GP_REGION_BY_THREAD && gp_region_pattern_fits(rule->pattern, thread_name()))
			return id_of(rule, thread_name());
	}
	return GP_REGION_NONE;
}

int gp_region_by_rule(void)
{
	if (gp_region_has_caller_rules)
		return find(gp_caller_now());
	if (gp_region_has_rules && !by_thread.is_known) {
		by_thread.id = find(0);
		by_thread.is_known = true;
	}
	return by_thread.id;
}
