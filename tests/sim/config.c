/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The configuration from environment variables, read at the first call. */

#include <stdlib.h>
#include <string.h>

#include "sim.h"

bool sim_parse_size(const char *text, size_t *bytes)
{
	static const char units[] = "KMGT";
	char *end;
	unsigned long long n = strtoull(text, &end, 10);
	const char *unit = *end ? strchr(units, *end) : NULL;

	if (end == text)
		return false;
	if (unit) {
		n <<= 10 * (unit - units + 1);
		end++;
	}
	if (!strcmp(end, "iB"))
		end += 2;
	*bytes = n;
	return !*end;
}

static const char *option(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static bool flag(const char *name)
{
	const char *value = option(name);

	return value && strcmp(value, "0") != 0;
}

static uint64_t number(const char *name, uint64_t default_value, uint64_t min, uint64_t max)
{
	const char *value = option(name);
	char *end;
	uint64_t n;

	if (!value)
		return default_value;
	n = strtoull(value, &end, 10);
	if (*end || n < min || n > max) {
		sim_print("%s=%s is not valid: using the default", name, value);
		return default_value;
	}
	return n;
}

static size_t size(const char *name, size_t default_value)
{
	const char *value = option(name);
	size_t bytes;

	if (!value)
		return default_value;
	if (sim_parse_size(value, &bytes))
		return bytes;
	sim_print("%s=%s is not valid: using the default", name, value);
	return default_value;
}

/* Calls row(name, length, value after '=' or NULL) for each comma-separated word of an option. */
static void each_word(const char *option_name, bool (*row)(const char *name, size_t len, const char *value))
{
	const char *word = option(option_name);

	while (word && *word) {
		size_t len = strcspn(word, ","), name_len = strcspn(word, "=,");

		if (!row(word, name_len, name_len < len ? word + name_len + 1 : NULL))
			sim_print("%s: '%.*s' is not valid and has no effect", option_name, (int)len, word);
		word += len + (word[len] == ',');
	}
}

static bool set_cost(const char *name, size_t len, const char *value)
{
	enum sim_fn fn = sim_fn_find(name, len);

	if (fn == SIM_N_FNS || !value)
		return false;
	sim.config.cost_ns[fn] = strtoull(value, NULL, 10);
	sim.config.cost_given[fn] = true;
	return true;
}

static bool set_jitter(const char *name, size_t len, const char *value)
{
	enum sim_fn fn = sim_fn_find(name, len);

	if (fn == SIM_N_FNS || !value)
		return false;
	sim.config.jitter[fn] = (unsigned)strtoul(value, NULL, 10);
	return true;
}

static bool hide(const char *name, size_t len, const char *value)
{
	bool found = false;

	for (int fn = 0; fn < SIM_N_FNS; fn++) {
		const struct sim_fn_row *row = &sim_fns[fn];

		if ((strlen(row->name) == len && !memcmp(row->name, name, len)) ||
			(strlen(row->public_name) == len && !memcmp(row->public_name, name, len)))
			found = sim.config.hidden[fn] = true;
	}
	return found && !value;
}

/* Only a function with a per-thread twin can disagree: cuGetProcAddress then returns the twin. */
static bool disagree(const char *name, size_t len, const char *value)
{
	enum sim_fn fn = sim_fn_find(name, len);

	if (fn >= SIM_N_FNS - 1 || sim_fns[fn].per_thread || !sim_fns[fn + 1].per_thread || value)
		return false;
	return sim.config.disagrees[fn] = true;
}

/* The name of an attribute is its number in cuda.h. */
static bool lack(const char *name, size_t len, const char *value)
{
	unsigned long attribute = strtoul(name, NULL, 10);

	if (!attribute || attribute >= SIM_N_ATTRIBUTES || value || len > 3)
		return false;
	sim.config.lacks[attribute / 8] |= (unsigned char)(1u << attribute % 8);
	return true;
}

/* Hides functions that are newer than the configured driver, except the lookup functions. */
static void hide_newer(void)
{
	for (int fn = 0; fn < SIM_N_FNS; fn++)
		if (sim_fns[fn].version > (int)sim.config.driver_version &&
			strcmp(sim_fns[fn].public_name, "cuGetProcAddress") != 0)
			sim.config.hidden[fn] = true;
}

void sim_config_load(void)
{
	pthread_condattr_t monotonic;

	if (sim.configured)
		return;
	sim.configured = true;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&sim.changed, &monotonic);
	sim.config.memory_bytes = size("SIMGPU_MEMORY", (size_t)16 << 30);
	sim.config.context_bytes = size("SIMGPU_CONTEXT_MEMORY", 2 * SIM_CHUNK);
	sim.config.granularity_bytes = size("SIMGPU_GRANULARITY", SIM_CHUNK);
	sim.config.addresses = size("SIMGPU_ADDRESSES", 0);
	sim.config.devices = (unsigned)number("SIMGPU_DEVICES", 1, 0, SIM_MAX_DEVICES);
	sim.config.driver_version = (unsigned)number("SIMGPU_DRIVER_VERSION", 13000, 2000, 99999);
	sim.config.deadlock_ms = number("SIMGPU_DEADLOCK_MS", 3000, 1, 3600000);
	sim.config.shared = option("SIMGPU_SHARED");
	sim.config.realtime = flag("SIMGPU_REALTIME");
	sim.config.strict = flag("SIMGPU_STRICT");
	sim.config.deinit_at_exit = flag("SIMGPU_DEINIT_AT_EXIT");
	sim.config.records_are_operations = flag("SIMGPU_RECORDS_ARE_OPERATIONS");
	for (int fn = 0; fn < SIM_N_FNS; fn++)
		sim.config.cost_ns[fn] = sim_fns[fn].cost_ns;
	each_word("SIMGPU_LATENCY", set_cost);
	each_word("SIMGPU_JITTER", set_jitter);
	each_word("SIMGPU_HIDE", hide);
	each_word("SIMGPU_DISAGREE", disagree);
	each_word("SIMGPU_LACKS", lack);
	hide_newer();
	if (option("SIMGPU_FAULT") && !sim_fault_parse(option("SIMGPU_FAULT")))
		sim_print("SIMGPU_FAULT=%s is not valid", option("SIMGPU_FAULT"));
}
