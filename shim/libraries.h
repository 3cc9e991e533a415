/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Libraries that let somebody outside CUDA's order touch device memory first: MPI, UCX and libfabric hand it to network
 * cards. Looks for them when libraries were loaded since the last look; cheap otherwise.
 */
void gp_libraries_look(void);
