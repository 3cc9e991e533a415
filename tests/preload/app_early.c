/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "app_driver.h"
#include "lib_early.h"

static void early(void)
{
	lib_early();
	app_start();
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"early", early},
	{0},
};
