/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

int lib_plugin_use(unsigned rounds); /* 0 if all went well */
