/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Kept mappings: memory that the program creates and maps itself (cuMemAddressReserve, cuMemCreate, cuMemMap,
 * cuMemSetAccess), and that stays mapped after the program has unmapped and released it. A later program call for the
 * same size, properties and access is served from it without a driver call.
 *
 * A kept mapping is a triple of reserved addresses, physical memory and access. For the driver it is always reserved,
 * created and mapped, and its handle has one reference. The program's view is recorded here: whether it holds the
 * addresses and handles, and whether it has mapped the memory. If the program makes a call that would show the
 * difference, or that the triple cannot answer, the driver calls that were left out are made first (gp_kept_settle,
 * gp_kept_end). So the driver returns the error that it would have returned without gpupool.
 *
 * A triple comes about when a whole handle is mapped for the first time, at offset 0, to a whole reservation at an
 * address that the driver chose. It ends for good when the program exports or binds the memory, maps it a second time,
 * or changes a part of it.
 *
 * Memory is handed out again only after its grace period: all work that was submitted to the process's contexts before
 * the unmap has completed. Nothing waits for that.
 */

#include "shim/driver/cuda_abi.h"
#include "device.h"

struct gp_kept;

/* Memory that a thread is about to map. */
struct gp_kept_mapping {
	CUmemGenericAllocationHandle handle;
	bool is_first; /* the memory may become part of a triple, with these: */
	size_t bytes;
	CUmemAllocationProp properties;
};

/* Sets up this module. To be called once the settings have been read. */
void gp_kept_start(void);

/*
 * The program's calls. Each function returns true, or the triple, if it served the call without the driver. A triple
 * that is returned belongs to the thread until gp_kept_done.
 */

bool gp_kept_reserve(CUdeviceptr *ret_ptr, size_t bytes, size_t alignment);

/* Takes unused memory with these properties. NULL: there is none. The caller accounts for it as for new memory. */
struct gp_kept *gp_kept_create(size_t bytes, const CUmemAllocationProp *properties);
CUmemGenericAllocationHandle gp_kept_handle(const struct gp_kept *kept);
struct gp_device *gp_kept_device(const struct gp_kept *kept);

struct gp_kept *gp_kept_map(
	CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags);

/* *ret_result: the driver's result, if it had to be asked for access of another kind. */
bool gp_kept_set_access(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t n, CUresult *ret_result);

bool gp_kept_address_free(CUdeviceptr ptr, size_t bytes);

/*
 * Begins an unmap or a release of the program. After that the caller drops a reference to the memory in its accounts,
 * where the bytes of unused memory stay charged, and calls gp_kept_drop_end. is_known: the accounts know the memory.
 * If not, the triple ends.
 */
struct gp_kept *gp_kept_unmap(CUdeviceptr ptr, size_t bytes);
struct gp_kept *gp_kept_release(CUmemGenericAllocationHandle handle);
void gp_kept_drop_end(struct gp_kept *kept, bool is_known);

/* Another handle of the memory that the program has mapped at the address. */
struct gp_kept *gp_kept_retain(CUdeviceptr ptr);

/* The triple is as it is to be: another thread may use it. */
void gp_kept_done(struct gp_kept *kept);

/*
 * To be called after a successful driver call.
 */

/*
 * The program has new addresses, which the driver chose, or new memory that is counted. gp_kept_note_created returns
 * true if the memory may stay mapped later on.
 */
void gp_kept_note_reserved(CUdeviceptr ptr, size_t bytes);
bool gp_kept_note_created(CUmemGenericAllocationHandle handle, size_t bytes, const CUmemAllocationProp *properties);

/*
 * Makes a triple of what was mapped. Returns false if that is not possible; the memory then never becomes one, nor if
 * another thread has mapped or shared it meanwhile.
 */
bool gp_kept_note_mapped(const struct gp_kept_mapping *mapping, CUdeviceptr ptr, size_t bytes, size_t offset);

/*
 * To be called before a driver call.
 */

/*
 * The program is about to map the memory. Ends a triple of the handle, as below. gp_kept_note_mapped or, if the driver
 * does not map it, gp_kept_cancel_mapping follows.
 */
CUresult gp_kept_begin_mapping(struct gp_kept_mapping *mapping, CUmemGenericAllocationHandle handle);
void gp_kept_cancel_mapping(const struct gp_kept_mapping *mapping);

/* Make the driver agree with the program about the triple at an address: for queries. 0 or the driver's error. */
CUresult gp_kept_settle(CUdeviceptr ptr);

/*
 * End triples: those that overlap with the addresses, those of them that the program has not mapped, the one of a
 * handle, or all. Afterwards the driver and the program agree about them. 0 or the driver's error.
 */
CUresult gp_kept_end(CUdeviceptr ptr, size_t bytes);
CUresult gp_kept_end_unmapped(CUdeviceptr ptr, size_t bytes);
CUresult gp_kept_end_handle(CUmemGenericAllocationHandle handle);
CUresult gp_kept_end_all(void);

/* Ends all triples, and lets no other come about. */
CUresult gp_kept_stop(void);

/* As gp_kept_end_handle. The memory does not become part of a triple again, since others will use it, too. */
CUresult gp_kept_share_handle(CUmemGenericAllocationHandle handle);

/* The program is about to free addresses or to release memory, of which a note is taken back: true if there was one. */
bool gp_kept_forget_reserved(CUdeviceptr ptr, size_t *ret_bytes);
bool gp_kept_forget_created(
	CUmemGenericAllocationHandle handle, size_t *ret_bytes, CUmemAllocationProp *ret_properties);

/* True if the program has released all handles of the memory, which the driver does not know. */
bool gp_kept_is_released(CUmemGenericAllocationHandle handle);

/* Returns the id of the buffer at the address if its memory was handed out again; else 0. */
uint64_t gp_kept_buffer_id(CUdeviceptr ptr);

/*
 * Gives unused memory back until `want` bytes are back, the longest unused first. device -1: of all devices. Returns
 * the bytes given back, with those that another thread was about to give back and for which this one waited. No lock
 * may be held.
 */
uint64_t gp_kept_trim(int device, uint64_t want);

/*
 * To be called with what the driver has left on the device. While that is less than GPUPOOL_RESERVE, no unused memory
 * stays mapped. Returns the bytes given back.
 */
uint64_t gp_kept_note_available(struct gp_device *device, uint64_t available);

/* Returns how many kept mappings have ended. Once the number has grown, an allocation that has failed may succeed. */
uint64_t gp_kept_n_ended(void);

/* Returns the unused bytes on the device. */
uint64_t gp_kept_unused(const struct gp_device *device);
