/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name);
