/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "app_blocks.h"

#include <dlfcn.h>

static uint32_t value_of(unsigned nth)
{
	return 100 + nth;
}

void app_make_blocks(CUdeviceptr *blocks, const size_t *sizes, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		blocks[i] = app_alloc(sizes[i]);
		app_fill(NULL, blocks[i], sizes[i], value_of(i));
	}
}

size_t app_count_wrong_blocks(const CUdeviceptr *blocks, const size_t *sizes, unsigned n)
{
	size_t wrong = 0;

	for (unsigned i = 0; i < n; i++)
		wrong += app_count_wrong(NULL, blocks[i], sizes[i], value_of(i));
	return wrong;
}

uint64_t app_device_bytes(int device)
{
	size_t (*allocated)(int device) = (size_t(*)(int))dlsym(RTLD_DEFAULT, "simgpu_allocated_bytes");

	return allocated ? allocated(device) : 0;
}

void app_fault(const char *text)
{
	bool (*inject)(const char *spec) = (bool (*)(const char *))dlsym(RTLD_DEFAULT, "simgpu_fault");
	char function[64], spec[128];
	unsigned nth;
	int error;

	if (inject && text && sscanf(text, "%63s %u %d", function, &nth, &error) == 3) {
		snprintf(spec, sizeof(spec), "%s:%u=%d", function, (unsigned)app_calls(function) + nth, error);
		(void)inject(spec);
	} else if (inject && !text) {
		(void)inject(NULL);
	}
}
