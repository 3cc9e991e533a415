/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_number.h"

#include <errno.h>
#include <stdlib.h>

bool stat_number_parse(const char *text, uint64_t max, uint64_t *ret_value)
{
	unsigned long long value;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || value > max)
		return false;
	*ret_value = value;
	return true;
}
