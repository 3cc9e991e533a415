/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory exported as a dma-buf, for other devices. */

#include <unistd.h>

#include "test_sim.h"

static CUresult export(CUdeviceptr ptr, size_t bytes)
{
	int fd = -1;
	CUresult r = cuMemGetHandleForAddressRange(&fd, ptr, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	if (!r)
		ck_assert_int_eq(close(fd), 0);
	return r;
}

START_TEST(a_dma_buf_must_consist_of_whole_host_pages)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	CUdeviceptr large, small;

	test_start();
	large = test_alloc(4 * MIB + page);
	ok(export(large, 4 * MIB + page));
	ok(export(large + 3 * page, 5 * page));
	fails(export(large + page / 2, page), CUDA_ERROR_INVALID_VALUE);
	fails(export(large, page + page / 2), CUDA_ERROR_INVALID_VALUE);
	fails(export(large, 0), CUDA_ERROR_INVALID_VALUE);
	fails(export(large + page, 4 * MIB + page), CUDA_ERROR_INVALID_VALUE);
	/* The first small block begins where its chunk does, and the next block begins 512 bytes after it. */
	small = test_alloc(512);
	ck_assert_uint_eq(small % page, 0);
	small = test_alloc(2 * page);
	fails(export(small, page), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemFree_v2(large));
	fails(export(large, page), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(a_device_without_dma_buf_support_refuses_the_export)
{
	int can = 1;

	test_start_with("SIMGPU_LACKS", "124");
	ok(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
	ck_assert_int_eq(can, 0);
	fails(export(test_alloc(4 * MIB), 4 * MIB), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

static TCase *dmabuf_cases(void)
{
	TCase *tc = tcase_create("dma-bufs");

	tcase_add_test(tc, a_dma_buf_must_consist_of_whole_host_pages);
	tcase_add_test(tc, a_device_without_dma_buf_support_refuses_the_export);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {dmabuf_cases};

	return test_run("simulated GPU: dma-bufs", cases, 1);
}
