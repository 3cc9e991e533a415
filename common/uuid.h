/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <string.h>

/*
 * The forms of a device's UUID: as nvidia-smi prints it for whole GPUs (for MIG instances it prints another prefix),
 * and as gpupool processes send it to each other.
 */
#define GP_UUID_SHOWN "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
#define GP_UUID_SENT  "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

enum { GP_UUID_TEXT_MAX = sizeof(GP_UUID_SHOWN) };

/* Writes the UUID in one of these forms. Returns the text. */
static inline const char *gp_uuid_format(
	char text[static GP_UUID_TEXT_MAX], const unsigned char uuid[static 16], const char *form)
{
	strcpy(text, form);
	for (char *at = text; (at = strchr(at, 'x')); at += 2) {
		at[0] = "0123456789abcdef"[*uuid >> 4];
		at[1] = "0123456789abcdef"[*uuid++ & 15];
	}
	return text;
}
