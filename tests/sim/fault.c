/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Injected faults: `name:WHEN=CODE`, separated by commas, where WHEN is N (the N-th call), N+ (from
 * the N-th call on) or every/K (each K-th call). Calls count from the start of the process.
 */

#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct fault {
	enum sim_fn fn;
	enum { ONCE, FROM, EVERY } when;
	uint64_t n;
	CUresult code;
};

static struct fault *faults;
static unsigned n_faults, faults_capacity;

static bool parse_one(const char *text, size_t len, struct fault *fault)
{
	size_t name_len = strcspn(text, ":");
	const char *when = text + name_len + 1;
	char *end;

	if (name_len >= len)
		return false;
	fault->fn = sim_fn_find(text, name_len);
	fault->when = ONCE;
	if (!strncmp(when, "every/", 6)) {
		fault->when = EVERY;
		when += 6;
	}
	fault->n = strtoull(when, &end, 10);
	if (*end == '+' && fault->when == ONCE) {
		fault->when = FROM;
		end++;
	}
	if (fault->fn == SIM_N_FNS || !fault->n || *end != '=')
		return false;
	fault->code = (CUresult)strtol(end + 1, &end, 10);
	return fault->code > 0 && end == text + len;
}

bool sim_fault_parse(const char *spec)
{
	while (*spec) {
		size_t len = strcspn(spec, ",");
		struct fault fault;

		if (!parse_one(spec, len, &fault))
			return false;
		sim_grow(&faults, &faults_capacity, n_faults + 1, sizeof(*faults));
		faults[n_faults++] = fault;
		spec += len + (spec[len] == ',');
	}
	return true;
}

static bool is_due(const struct fault *fault, uint64_t nth)
{
	switch (fault->when) {
	case ONCE:
		return nth == fault->n;
	case FROM:
		return nth >= fault->n;
	case EVERY:
		return nth % fault->n == 0;
	}
	return false;
}

CUresult sim_fault_due(enum sim_fn fn, uint64_t nth)
{
	for (unsigned i = n_faults; i-- > 0;) /* the fault that was added last has precedence */
		if (faults[i].fn == fn && is_due(&faults[i], nth))
			return faults[i].code;
	return CUDA_SUCCESS;
}

bool simgpu_fault(const char *spec)
{
	bool ok = true;

	pthread_mutex_lock(&sim.lock);
	sim_config_load();
	if (spec)
		ok = sim_fault_parse(spec);
	else
		n_faults = 0;
	pthread_mutex_unlock(&sim.lock);
	return ok;
}
