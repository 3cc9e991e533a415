/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The checks that come before a start are the same functions, whose messages become lines. Beyond them, two probes show
 * what only a process can: which driver the loader finds, and whether the library gets into a program and serves an
 * allocation there.
 */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "doctor_host.h"
#include "doctor_program.h"
#include "run_doctor.h"
#include "run_pools.h"
#include "run_preload.h"
#include "run_probe.h"
#include "run_record.h"

static void report_variable(void *arg, const struct gp_config_report *report)
{
	char line[GP_CONFIG_MESSAGE_SIZE];

	gp_config_report_format(report, line, sizeof(line));
	run_error(NULL, "%s.", line);
}

/* Names the settings with which memory of the program cannot move, so that the option has no effect. */
static void check_moves(const struct gp_config *config, const char *option, const char *cannot)
{
	if (config->pool != GP_CONFIG_POOL_VMM && config->pool != GP_CONFIG_POOL_AUTO)
		run_error("set GPUPOOL_POOL to vmm or auto.",
			"%s has no effect with GPUPOOL_POOL=%s: memory of that pool type cannot %s.", option,
			config->text[GP_OPTION_POOL], cannot);
	else if (config->backend != GP_CONFIG_BACKEND_DEVICE)
		run_error("unset GPUPOOL_BACKEND.", "%s has no effect with GPUPOOL_BACKEND=%s.", option,
			config->text[GP_OPTION_BACKEND]);
	else if (gp_config_debug_is_on(&config->debug))
		run_error("unset one of them.", "%s has no effect with GPUPOOL_DEBUG.", option);
}

static void check_settings(struct doctor *doctor, struct gp_config *config)
{
	unsigned n = 0;

	doctor_listen(doctor, "settings");
	(void)gp_config_load(config, environ, report_variable, NULL);
	if (!config->is_enabled)
		run_error("unset GPUPOOL, or set it to on.", "gpupool is switched off by GPUPOOL.");
	if (config->own_pools == GP_CONFIG_OWN_POOLS_OFF)
		(void)run_pools_off();
	(void)run_record_check(config);
	if (config->sleep_idle_ms != GP_CONFIG_SLEEP_OFF)
		check_moves(config, "GPUPOOL_SLEEP", "sleep");
	if (config->spill_bytes)
		check_moves(config, "GPUPOOL_SPILL", "move to the host");
	if (config->spill_bytes && *config->record_file)
		run_error("unset one of them.", "GPUPOOL_SPILL has no effect with GPUPOOL_RECORD.");
	for (int i = 0; i < GP_OPTION_COUNT; i++)
		n += config->source[i] == GP_CONFIG_ENVIRONMENT || config->source[i] == GP_CONFIG_FILE;
	if (doctor_heard_nothing(doctor))
		doctor_good(doctor, "settings", "%u of %d are set, and can be read", n, GP_OPTION_COUNT);
}

static bool check_library(struct doctor *doctor, const char *path, struct run_elf *ret_elf)
{
	enum run_status status;

	status = run_library_check(path, ret_elf);
	if (doctor_heard_nothing(doctor))
		doctor_good(doctor, "library", "%s", path);
	return status == RUN_OK;
}

static void check_hook(struct doctor *doctor)
{
	char *hook;

	doctor_listen(doctor, "hook");
	hook = run_hook_default();
	if (access(hook, R_OK) < 0)
		run_error("install gpupool again.", "%s is missing: --own-pools=off cannot be used.", hook);
	if (doctor_heard_nothing(doctor))
		doctor_good(doctor, "hook", "%s", hook);
	free(hook);
}

static void check_preload(struct doctor *doctor, const char *library, bool is_allocating)
{
	char *value = run_preload_value(library, getenv("LD_PRELOAD"));
	struct run_probe probe;

	run_probe(value, is_allocating, &probe);
	doctor_preload(doctor, library, &probe);
	free(value);
}

static void print_end(const struct doctor *doctor)
{
	if (doctor->n_todo)
		printf("%u thing%s to do, %u good\n", doctor->n_todo, doctor->n_todo == 1 ? "" : "s", doctor->n_good);
	else if (!run_is_quiet)
		printf("all %u are good\n", doctor->n_good);
}

enum run_status run_doctor(const char *library, const char *command)
{
	static struct gp_config config;
	struct doctor doctor = {0};
	struct run_probe driver;
	struct run_elf elf;
	bool has_library;
	char *path;

	check_settings(&doctor, &config);
	doctor_versions(&doctor);
	doctor_listen(&doctor, "library");
	path = library ? run_library_absolute(library) : run_library_default();
	has_library = check_library(&doctor, path, &elf);
	check_hook(&doctor);
	run_probe("", false, &driver);
	doctor_driver(&doctor, &driver);
	if (has_library) {
		check_preload(&doctor, path, config.is_enabled && driver.n_devices > 0);
		doctor_others(&doctor, path);
	}
	if (has_library && command)
		doctor_program(&doctor, command, &elf, driver.driver_version);
	if (command)
		doctor_frameworks(&doctor, command);
	doctor_socket(&doctor, &config);
	doctor_limits(&doctor);
	doctor_container(&doctor);
	print_end(&doctor);
	free(path);
	if (fflush(stdout) == EOF)
		return RUN_FAILED;
	return doctor.n_todo ? RUN_TODO : RUN_OK;
}
