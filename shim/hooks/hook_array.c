/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * CUDA arrays are passed through to the driver, and counted by the size of their elements, without the driver's
 * padding.
 */

#include "shim/driver/driver_table.h"
#include "unpooled_alloc.h"

/*
 * Ranges of CUarray_format. elements: formats whose elements have a fixed number of bits, whatever the number of
 * channels. channels: formats with 16 or 32 bits for each channel. In all other formats a channel has 8 bits.
 */
static const struct {
	unsigned char first, last, bits;
} elements[] =
	{
		{0x50, 0x50, 32}, /* 10:10:10:2 */
		{0x91, 0x92, 4},  /* BC1 */
		{0x93, 0x96, 8},  /* BC2, BC3 */
		{0x97, 0x98, 4},  /* BC4 */
		{0x99, 0x9e, 8},  /* BC5 to BC7 */
		{0x9f, 0xa1, 24}, /* P010, P016 */
		{0xa2, 0xa2, 16}, /* NV16 */
		{0xa3, 0xa4, 32}, /* P210, P216 */
		{0xa5, 0xa5, 16}, /* YUY2 */
		{0xa6, 0xa9, 32}, /* Y210, Y216, AYUV, Y410 */
		{0xb0, 0xb0, 12}, /* NV12 */
		{0xb1, 0xb1, 64}, /* Y416 */
		{0xb2, 0xb2, 24}, /* Y444, planar */
		{0xb3, 0xb3, 48},
		{0xb4, 0xb4, 24}, /* YUV444, semi-planar */
		{0xb5, 0xb5, 48},
},
  channels[] = {
	  {0x02, 0x02, 16}, /* integers */
	  {0x03, 0x03, 32},
	  {0x09, 0x09, 16},
	  {0x0a, 0x0a, 32},
	  {0x10, 0x10, 16}, /* floats */
	  {0x20, 0x20, 32},
	  {0xc3, 0xc5, 16}, /* normalised integers */
	  {0xc9, 0xcb, 16},
};

static unsigned element_bits(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++)
		if (d->Format >= elements[i].first && d->Format <= elements[i].last)
			return elements[i].bits;
	for (size_t i = 0; i < sizeof(channels) / sizeof(channels[0]); i++)
		if (d->Format >= channels[i].first && d->Format <= channels[i].last)
			return channels[i].bits * d->NumChannels;
	return 8 * d->NumChannels;
}

/*
 * Returns the bytes of all levels. Returns 0 for arrays that get their memory mapped later, and for sizes that
 * overflow.
 */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
	bool is_layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t width = d->Width, height = gp_max(d->Height, 1), depth = gp_max(d->Depth, 1);
	uint64_t bits = element_bits(d), sum = 0;

	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	for (unsigned i = 0; i < levels && i < 64; i++) {
		uint64_t n;

		if (__builtin_mul_overflow(width, height, &n) || __builtin_mul_overflow(n, depth, &n) ||
			__builtin_mul_overflow(n, bits, &n) || __builtin_add_overflow(sum, n, &sum))
			return 0;
		width = gp_max(width / 2, 1);
		height = gp_max(height / 2, 1);
		depth = is_layered ? depth : gp_max(depth / 2, 1);
	}
	return sum / 8;
}

struct array {
	void *array; /* CUarray * or CUmipmappedArray * */
	const void *descriptor;
	unsigned levels;
	uint64_t id;
};

static CUresult call_array(void *arg)
{
	struct array *a = arg;
	CUresult r = gp_real.cuArrayCreate_v2(a->array, a->descriptor);

	a->id = r ? 0 : (uint64_t)(uintptr_t) * (CUarray *)a->array;
	return r;
}

static CUresult call_array_3d(void *arg)
{
	struct array *a = arg;
	CUresult r = gp_real.cuArray3DCreate_v2(a->array, a->descriptor);

	a->id = r ? 0 : (uint64_t)(uintptr_t) * (CUarray *)a->array;
	return r;
}

static CUresult call_mipmapped(void *arg)
{
	struct array *a = arg;
	CUresult r = gp_real.cuMipmappedArrayCreate(a->array, a->descriptor, a->levels);

	a->id = r ? 0 : (uint64_t)(uintptr_t) * (CUmipmappedArray *)a->array;
	return r;
}

static CUresult alloc_array(
	struct array *a, enum gp_unpooled_kind kind, const CUDA_ARRAY3D_DESCRIPTOR *d, CUresult (*call)(void *))
{
	struct gp_unpooled allocation = {
		.kind = kind,
		.bytes = a->array ? array_bytes(d, a->levels) : 0,
		.device = GP_UNPOOLED_CURRENT,
		.end = GP_UNPOOLED_ENDS_WITH_CONTEXT,
		.call = call,
		.arg = a,
		.id = &a->id,
	};

	return gp_unpooled_alloc(&allocation);
}

CUresult hook_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
	struct array a = {.array = array, .descriptor = descriptor, .levels = 1};
	CUDA_ARRAY3D_DESCRIPTOR d = {0};

	if (!descriptor)
		return gp_real.cuArrayCreate_v2(array, descriptor);
	d.Width = descriptor->Width;
	d.Height = descriptor->Height;
	d.Format = descriptor->Format;
	d.NumChannels = descriptor->NumChannels;
	return alloc_array(&a, GP_UNPOOLED_ARRAY, &d, call_array);
}

CUresult hook_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
	struct array a = {.array = array, .descriptor = descriptor, .levels = 1};

	if (!descriptor)
		return gp_real.cuArray3DCreate_v2(array, descriptor);
	return alloc_array(&a, GP_UNPOOLED_ARRAY, descriptor, call_array_3d);
}

CUresult hook_cuArrayDestroy(CUarray array)
{
	struct gp_unpooled_drop drop = gp_unpooled_begin_drop(GP_UNPOOLED_ARRAY, (uint64_t)(uintptr_t)array);
	CUresult r = gp_real.cuArrayDestroy(array);

	gp_unpooled_end_drop(drop, !r);
	return r;
}

CUresult hook_cuMipmappedArrayCreate(
	CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels)
{
	struct array a = {.array = array, .descriptor = descriptor, .levels = levels};

	if (!descriptor)
		return gp_real.cuMipmappedArrayCreate(array, descriptor, levels);
	return alloc_array(&a, GP_UNPOOLED_MIPMAPPED, descriptor, call_mipmapped);
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	struct gp_unpooled_drop drop = gp_unpooled_begin_drop(GP_UNPOOLED_MIPMAPPED, (uint64_t)(uintptr_t)array);
	CUresult r = gp_real.cuMipmappedArrayDestroy(array);

	gp_unpooled_end_drop(drop, !r);
	return r;
}
