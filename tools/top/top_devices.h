/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Devices as bars, and one of them as a plot over time. */

#include "top_model.h"
#include "top_screen.h"

/* Draws a device as a bar and, with has_numbers, a second line with the numbers. */
void top_devices_bar(const struct top_screen *screen, const struct top_device *device, int row, bool has_numbers);

/* Draws the plot on that many rows, of which the first is the title. */
void top_devices_plot(
	const struct top_screen *screen, const struct top_device *device, int row, int rows, double interval_s);
