/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program with NVTX ranges from the toolkit's headers, which knows nothing of regions. */

#include <nvtx3/nvToolsExt.h>
#include <wchar.h>

#include "app_driver.h"

static uint64_t n_shared;

/* Allocates and frees a block, and counts the earlier blocks that had the same address. */
static void step(size_t bytes)
{
	static CUdeviceptr last[16];
	static size_t n;
	CUdeviceptr ptr = app_alloc(bytes);

	APP_MUST(cuMemFree_v2(ptr));
	APP_MUST(cuCtxSynchronize());
	for (size_t i = 0; i < n; i++)
		n_shared += last[i] == ptr;
	last[n++ % LENGTH(last)] = ptr;
}

static nvtxEventAttributes_t named(nvtxMessageType_t type, const void *message)
{
	nvtxEventAttributes_t attributes = {
		.version = NVTX_VERSION,
		.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
		.messageType = type,
	};

	attributes.message.ascii = (const char *)message;
	return attributes;
}

static void ranges(void)
{
	nvtxEventAttributes_t plain = named(NVTX_MESSAGE_TYPE_ASCII, "plain ex"), wide, registered, unknown;
	nvtxDomainHandle_t one, other;

	app_start();
	app_result("push", nvtxRangePushA("forward pass"));
	step(3 * MIB);
	nvtxRangePushEx(&plain);
	step(3 * MIB);
	app_result("pop", nvtxRangePop());
	nvtxRangePop();
	app_result("pop without a range", nvtxRangePop());
	nvtxRangePushW(L"wide \x20ac");
	step(3 * MIB);
	nvtxRangePop();
	one = nvtxDomainCreateA("one");
	other = nvtxDomainCreateW(L"other");
	wide = named(NVTX_MESSAGE_TYPE_UNICODE, L"wide ex");
	registered = named(NVTX_MESSAGE_TYPE_REGISTERED, nvtxDomainRegisterStringA(one, "registered"));
	unknown = named(NVTX_MESSAGE_UNKNOWN, NULL);
	nvtxDomainRangePushEx(one, &wide);
	nvtxDomainRangePushEx(other, &registered);
	step(3 * MIB);
	/* The range of the other domain is still the innermost. */
	nvtxDomainRangePop(one);
	step(5 * MIB);
	nvtxDomainRangePop(other);
	nvtxDomainRangePushEx(one, &unknown);
	step(3 * MIB);
	nvtxDomainRangePop(one);
	app_fact("shared", n_shared);
	app_pause("ranges");
}

/* Registers more texts than are kept. Ranges of different domains stay distinct nevertheless. */
static void texts(void)
{
	nvtxEventAttributes_t first = named(NVTX_MESSAGE_TYPE_ASCII, "first");
	nvtxEventAttributes_t second = named(NVTX_MESSAGE_TYPE_ASCII, "second");
	nvtxDomainHandle_t one, other;
	char text[32];

	app_start();
	for (int i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), "text %d", i);
		(void)nvtxDomainRegisterStringA(NULL, text);
	}
	one = nvtxDomainCreateA("one");
	other = nvtxDomainCreateA("other");
	nvtxDomainRangePushEx(one, &first);
	nvtxDomainRangePushEx(other, &second);
	step(3 * MIB);
	nvtxDomainRangePop(one);
	step(3 * MIB);
	nvtxDomainRangePop(other);
	step(3 * MIB);
	app_fact("shared", n_shared);
}

const struct app_scenario app_scenarios[] = {
	{"ranges", ranges},
	{"texts", texts},
	{NULL},
};
