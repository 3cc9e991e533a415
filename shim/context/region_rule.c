/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * GPUPOOL_REGIONS: rules that put a thread into a region if it has not entered one itself. The first rule that matches
 * counts. A thread's name is read once, at its first allocation. The calling module is checked at each allocation.
 */

#include "region_rule.h"

#include <sys/prctl.h>

#include "region.h"
#include "shim/trace/module.h"

enum { THREAD_NAME_MAX = 16, CHECKED = 1 << GP_REGION_RULES_MAX };

_Static_assert((int)GP_REGION_TEXT_MAX == (int)GP_REGION_NAME_MAX, "a rule's text fits a region's name");

bool gp_region_has_rules, gp_region_has_caller_rules;

/* For each calling module, by number: a bit for each rule that matches it, and CHECKED. 0: not checked yet. */
static _Atomic uint32_t matches_of[GP_MODULES_MAX + 1];

static _Thread_local struct {
	bool is_known, has_name;
	int id;
	char name[THREAD_NAME_MAX + 1];
} by_thread __attribute__((tls_model("initial-exec")));

void gp_regions_start(void)
{
	const struct gp_config_regions *regions = &gp_state.config.regions;

	gp_region_has_caller_rules = gp_config_regions_has(regions, GP_REGION_BY_LIBRARY);
	gp_region_has_rules = gp_region_has_caller_rules || gp_config_regions_has(regions, GP_REGION_BY_THREAD);
}

static uint32_t match_caller(uint32_t caller)
{
	const struct gp_config_regions *rules = &gp_state.config.regions;
	const char *name = gp_module_name(caller);
	uint32_t matches = CHECKED;

	for (unsigned i = 0; name && i < rules->n; i++)
		if (rules->rules[i].way == GP_REGION_BY_LIBRARY &&
			gp_region_pattern_matches(rules->rules[i].pattern, name))
			matches |= UINT32_C(1) << i;
	return matches;
}

/* Returns the bits of the rules that match a calling module. */
static uint32_t matches_of_caller(uint32_t caller)
{
	uint32_t matches = atomic_load_explicit(&matches_of[caller], memory_order_relaxed);

	if (gp_unlikely(!matches)) {
		matches = match_caller(caller);
		atomic_store_explicit(&matches_of[caller], matches, memory_order_relaxed);
	}
	return matches;
}

static int id_for(const struct gp_region_rule *rule, const char *matched)
{
	char name[GP_REGION_NAME_MAX];
	size_t n = 0;

	if (*rule->name)
		return gp_region_find_or_add(rule->name);
	for (; matched[n] && n + 1 < sizeof(name); n++)
		name[n] = (char)(matched[n] < ' ' || matched[n] > '~' ? '?' : matched[n]);
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

/*
 * Returns the region of the first rule that matches. The calling module is a parameter, so that it is found only once:
 * a second lookup might not know it, and the region would have no name.
 */
static int find(uint32_t caller)
{
	const struct gp_config_regions *rules = &gp_state.config.regions;
	uint32_t matches = matches_of_caller(caller);

	for (unsigned i = 0; i < rules->n; i++) {
		const struct gp_region_rule *rule = &rules->rules[i];

		if (matches >> i & 1)
			return id_for(rule, gp_module_name(caller));
		if (rule->way == GP_REGION_BY_THREAD && gp_region_pattern_matches(rule->pattern, thread_name()))
			return id_for(rule, thread_name());
	}
	return GP_REGION_NONE;
}

int gp_region_by_rule(void)
{
	if (gp_region_has_caller_rules)
		return find(gp_module_now());
	if (gp_region_has_rules && !by_thread.is_known) {
		by_thread.id = find(0);
		by_thread.is_known = true;
	}
	return by_thread.id;
}
