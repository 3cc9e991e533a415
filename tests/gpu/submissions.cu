/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Calls every family of runtime functions that submit work or a wait to the GPU. Before and after each family it frees
 * a block. Then it prints "family NAME" and waits for a line on stdin, so that the test can read which frees recorded a
 * fence. The first line belongs to no family: nothing is submitted before its two frees.
 *
 * A family that this machine lacks is skipped ("without NAME: why").
 */

#include "gpu.h"

#include <cstring>

static const size_t BYTES = 64 << 20; /* size of the block; too large for a thread cache */
static const size_t TOUCHED = 1 << 20;
static const size_t WIDTH = 1024, HEIGHT = 256;

__device__ char symbol[1024];

__global__ void touch(char *p)
{
	p[threadIdx.x] = 1;
}

static char *source, *pageable, *pinned;
static cudaStream_t stream;
static cudaEvent_t event;
static cudaArray_t array;

static void on_host(void *unused)
{
	(void)unused;
}

static void on_stream(cudaStream_t, cudaError_t, void *unused)
{
	(void)unused;
}

static cudaMemcpy3DParms box(char *p)
{
	cudaMemcpy3DParms copy = {};

	copy.srcPtr = make_cudaPitchedPtr(source, WIDTH, WIDTH, HEIGHT);
	copy.dstPtr = make_cudaPitchedPtr(p, WIDTH, WIDTH, HEIGHT);
	copy.extent = make_cudaExtent(WIDTH, HEIGHT, 1);
	copy.kind = cudaMemcpyDeviceToDevice;
	return copy;
}

static cudaError_t launch_with_attributes(char *p)
{
	cudaLaunchConfig_t config = {};

	config.gridDim = dim3(1);
	config.blockDim = dim3(32);
	config.stream = stream;
	return cudaLaunchKernelEx(&config, touch, p);
}

static cudaError_t launch_cooperative(char *p)
{
	void *arguments[] = {&p};

	return cudaLaunchCooperativeKernel((const void *)touch, dim3(1), dim3(32), arguments, 0, stream);
}

static cudaError_t launch(char *p, cudaStream_t where)
{
	touch<<<1, 32, 0, where>>>(p);
	return cudaGetLastError();
}

static cudaError_t copy_box(char *p)
{
	cudaMemcpy3DParms copy = box(p);

	return cudaMemcpy3D(&copy);
}

static cudaError_t copy_box_async(char *p)
{
	cudaMemcpy3DParms copy = box(p);

	return cudaMemcpy3DAsync(&copy, stream);
}

static cudaError_t fill_box(char *p)
{
	return cudaMemset3D(make_cudaPitchedPtr(p, WIDTH, WIDTH, HEIGHT), 1, make_cudaExtent(WIDTH, HEIGHT, 1));
}

static const struct family {
	const char *name;
	cudaError_t (*submit)(char *p);
} families[] = {
#define FAMILY(name, call)                         \
	{                                          \
		name, [](char *p) -> cudaError_t { \
			(void)p;                   \
			return call;               \
		}                                  \
	}
	FAMILY("kernel", launch(p, 0)),
	FAMILY("kernel on a stream", launch(p, stream)),
	FAMILY("kernel on the thread's own stream", launch(p, cudaStreamPerThread)),
	{"kernel with attributes", launch_with_attributes},
	{"cooperative kernel", launch_cooperative},
	FAMILY("graph", cudaGraphLaunch(gpu_fill_graph(p, 0, TOUCHED), stream)),
	FAMILY("host function", cudaLaunchHostFunc(stream, on_host, NULL)),
	FAMILY("callback", cudaStreamAddCallback(stream, on_stream, NULL, 0)),
	FAMILY("wait for an event", cudaStreamWaitEvent(stream, event, 0)),
	FAMILY("copy to the device", cudaMemcpy(p, pageable, TOUCHED, cudaMemcpyHostToDevice)),
	FAMILY("small copy to the device", cudaMemcpy(p, pageable, 256, cudaMemcpyHostToDevice)),
	FAMILY("copy of pinned memory", cudaMemcpy(p, pinned, TOUCHED, cudaMemcpyHostToDevice)),
	FAMILY("copy from the device", cudaMemcpy(pageable, p, TOUCHED, cudaMemcpyDeviceToHost)),
	FAMILY("copy on the device", cudaMemcpy(p, source, TOUCHED, cudaMemcpyDeviceToDevice)),
	FAMILY("copy of any kind", cudaMemcpy(p, source, TOUCHED, cudaMemcpyDefault)),
	FAMILY("peer copy", cudaMemcpyPeer(p, 0, source, 0, TOUCHED)),
	FAMILY("asynchronous copy to the device", cudaMemcpyAsync(p, pinned, TOUCHED, cudaMemcpyHostToDevice, stream)),
	FAMILY("asynchronous copy of pageable memory",
		cudaMemcpyAsync(p, pageable, TOUCHED, cudaMemcpyHostToDevice, stream)),
	FAMILY("asynchronous copy from the device",
		cudaMemcpyAsync(pinned, p, TOUCHED, cudaMemcpyDeviceToHost, stream)),
	FAMILY("asynchronous copy on the device",
		cudaMemcpyAsync(p, source, TOUCHED, cudaMemcpyDeviceToDevice, stream)),
	FAMILY("asynchronous peer copy", cudaMemcpyPeerAsync(p, 0, source, 0, TOUCHED, stream)),
	FAMILY("copy of rows", cudaMemcpy2D(p, WIDTH, source, WIDTH, 512, HEIGHT, cudaMemcpyDeviceToDevice)),
	FAMILY("copy of rows to the device",
		cudaMemcpy2D(p, WIDTH, pageable, WIDTH, 512, HEIGHT, cudaMemcpyHostToDevice)),
	FAMILY("asynchronous copy of rows",
		cudaMemcpy2DAsync(p, WIDTH, source, WIDTH, 512, HEIGHT, cudaMemcpyDeviceToDevice, stream)),
	{"copy of a box", copy_box},
	{"asynchronous copy of a box", copy_box_async},
	FAMILY("copy to an array", cudaMemcpy2DToArray(array, 0, 0, p, WIDTH, WIDTH, HEIGHT, cudaMemcpyDeviceToDevice)),
	FAMILY("copy from an array",
		cudaMemcpy2DFromArray(p, WIDTH, array, 0, 0, WIDTH, HEIGHT, cudaMemcpyDeviceToDevice)),
	FAMILY("copy to a symbol", cudaMemcpyToSymbol(symbol, p, sizeof(symbol), 0, cudaMemcpyDeviceToDevice)),
	FAMILY("copy from a symbol", cudaMemcpyFromSymbol(p, symbol, sizeof(symbol), 0, cudaMemcpyDeviceToDevice)),
	FAMILY("asynchronous copy to a symbol",
		cudaMemcpyToSymbolAsync(symbol, p, sizeof(symbol), 0, cudaMemcpyDeviceToDevice, stream)),
	FAMILY("fill", cudaMemset(p, 1, TOUCHED)),
	FAMILY("asynchronous fill", cudaMemsetAsync(p, 1, TOUCHED, stream)),
	FAMILY("fill of rows", cudaMemset2D(p, WIDTH, 1, 512, HEIGHT)),
	FAMILY("asynchronous fill of rows", cudaMemset2DAsync(p, WIDTH, 1, 512, HEIGHT, stream)),
	{"fill of a box", fill_box},
};

/* Prints the line, and waits for the answer of the test, which has read the counters by then. */
static bool report_family(const char *name)
{
	char line[64];

	printf("family %s\n", name);
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) != NULL;
}

static char *allocate()
{
	char *p;

	CHECK(cudaMalloc(&p, BYTES));
	return p;
}

int main()
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<char>();

	gpu_require();
	pageable = (char *)calloc(1, TOUCHED);
	CHECK(cudaMallocHost(&pinned, TOUCHED));
	CHECK(cudaMalloc(&source, TOUCHED));
	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaEventCreate(&event));
	CHECK(cudaMallocArray(&array, &format, WIDTH, HEIGHT));
	for (const family &each : families) { /* loads the code, and makes other one-time calls of the runtime */
		char *p = allocate();

		(void)each.submit(p);
		CHECK(cudaDeviceSynchronize());
		CHECK(cudaFree(p));
	}
	(void)cudaGetLastError();
	CHECK(cudaFree(allocate()));
	if (!report_family("nothing"))
		return 1;
	for (const family &each : families) {
		char *p = allocate();
		cudaError_t r;

		CHECK(cudaFree(p));
		if (!report_family("nothing"))
			return 1;
		p = allocate();
		r = each.submit(p);
		CHECK(cudaFree(p));
		if (r)
			printf("without %s: %s\n", each.name, cudaGetErrorName(cudaGetLastError()));
		else if (!report_family(each.name))
			return 1;
	}
	CHECK(cudaDeviceSynchronize());
	printf("end\n");
	return 0;
}
