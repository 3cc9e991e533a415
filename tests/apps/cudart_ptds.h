/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Maps names to the variants for per-thread default streams, as the SDK's header does. */

#define cudaMemcpy              cudaMemcpy_ptds
#define cudaMemcpyAsync         cudaMemcpyAsync_ptsz
#define cudaMemset              cudaMemset_ptds
#define cudaMemsetAsync         cudaMemsetAsync_ptsz
#define cudaMallocAsync         cudaMallocAsync_ptsz
#define cudaFreeAsync           cudaFreeAsync_ptsz
#define cudaMallocFromPoolAsync cudaMallocFromPoolAsync_ptsz
#define cudaStreamSynchronize   cudaStreamSynchronize_ptsz
#define cudaStreamQuery         cudaStreamQuery_ptsz
#define cudaStreamWaitEvent     cudaStreamWaitEvent_ptsz
#define cudaStreamBeginCapture  cudaStreamBeginCapture_ptsz
#define cudaStreamEndCapture    cudaStreamEndCapture_ptsz
#define cudaStreamIsCapturing   cudaStreamIsCapturing_ptsz
#define cudaEventRecord         cudaEventRecord_ptsz
