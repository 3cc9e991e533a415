/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "kept.h"

#include <stdlib.h>
#include <string.h>

#include "driver_call.h"
#include "grace.h"
#include "kept_table.h"
#include "program_map.h"
#include "scope.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/driver/driver_table.h"

/* The ids of buffers begin above those of blocks (hook_query.c), which begin above those of the driver. */
#define BUFFER_ID_BASE (UINT64_C(3) << 61)

static _Atomic uint64_t n_hand_outs, n_ended;
static _Atomic bool is_enabled;

void gp_kept_start(void)
{
	gp_kept_table_start();
	/* GPUPOOL_DEBUG finds accesses after a free, and the pool type none keeps nothing. */
	atomic_store(&is_enabled, gp_state.config.is_vmm_cached && gp_state_kind() != GP_KIND_NONE &&
					  !gp_config_debug_is_on(&gp_state.config.debug));
}

/* A thread in a no-cache scope makes each of its calls to the driver. */
static bool is_on(void)
{
	return atomic_load_explicit(&is_enabled, memory_order_relaxed) && !gp_scope_no_caches &&
	       !gp_slow_path_is_any(GP_SLOW_PATH_END | GP_SLOW_PATH_BYPASS);
}

/* Sets the access that the program has asked for, where the driver has set another one. */
static CUresult set_asked(struct gp_kept *kept)
{
	CUresult r = CUDA_SUCCESS;

	if (memcmp(kept->asked, kept->granted, sizeof(kept->asked)) == 0)
		return r;
	for (int i = 0; i < GP_KEPT_DEVICES_MAX && !r; i++) {
		CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, i}, kept->asked[i]};

		if (kept->asked[i] == kept->granted[i])
			continue;
		r = gp_real.cuMemSetAccess(kept->addr, kept->bytes, &access, 1);
		if (!r)
			kept->granted[i] = kept->asked[i];
	}
	return r;
}

/*
 * Makes the driver count as many handles as the program holds. The driver must still have the memory mapped: the
 * mapping keeps memory without a handle.
 */
static CUresult match_handles(struct gp_kept *kept)
{
	CUmemGenericAllocationHandle same;
	CUresult r = CUDA_SUCCESS;

	while (kept->n_held < kept->n_handles && !r) {
		r = gp_real.cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)kept->addr);
		kept->n_held += !r;
	}
	while (kept->n_held > kept->n_handles && !r) {
		r = gp_real.cuMemRelease(kept->handle);
		kept->n_held -= !r;
	}
	return r;
}

/* Makes the driver calls that were left out, as far as the driver makes them. The triple is busy. */
static CUresult catch_up(struct gp_kept *kept)
{
	struct gp_driver_relaxed relaxed = gp_driver_relax();
	CUresult r = match_handles(kept);

	if (!r)
		r = kept->is_mapped ? set_asked(kept) : gp_real.cuMemUnmap(kept->addr, kept->bytes);
	if (!r && !kept->is_reserved)
		(void)gp_real.cuMemAddressFree(kept->addr, kept->bytes);
	gp_driver_unrelax(&relaxed);
	return r;
}

/* Returns 0 if the memory was not handed out again: the driver's id is right. */
static uint64_t buffer_id_of(const struct gp_kept *kept)
{
	return kept->serial ? BUFFER_ID_BASE + kept->serial : 0;
}

/* The mapping of an ended triple is an ordinary one from now on, but keeps its buffer id. */
static void add_program_map(const struct gp_kept *kept)
{
	struct gp_program_map *map = malloc(sizeof(*map));

	if (!map)
		return;
	*map = (struct gp_program_map){
		.addr = kept->addr,
		.bytes = kept->bytes,
		.handle = kept->handle,
		.buffer_id = buffer_id_of(kept),
	};
	gp_program_map_add(map);
}

/*
 * Ends a busy triple. Its parts may become parts of others, unless the memory is mapped. 0 or the driver's error: then
 * the triple stays.
 */
static CUresult end(struct gp_kept *kept)
{
	bool is_charged = kept->is_counted; /* not, if the accounts of the program have lost the memory */
	CUresult r = catch_up(kept);

	if (r == CUDA_ERROR_DEINITIALIZED)
		gp_slow_path_add(GP_SLOW_PATH_BYPASS);
	if (r) {
		gp_kept_stick(kept);
		return r;
	}
	/* A thread that waits for the triple finds what replaces it. */
	if (kept->is_mapped)
		add_program_map(kept);
	else if (kept->is_reserved)
		gp_kept_note_reserved(kept->addr, kept->bytes);
	if (!kept->is_mapped && kept->n_handles == 1)
		(void)gp_kept_note_created(kept->handle, kept->bytes, &kept->properties);
	/* A thread that waits for the triple to go charges its own memory then. */
	if (is_charged)
		gp_budget_uncharge(&kept->device->budget, kept->bytes);
	atomic_fetch_add(&n_ended, 1);
	gp_kept_remove(kept);
	gp_grace_forget(&kept->grace);
	free(kept);
	return CUDA_SUCCESS;
}

/*
 * The program's calls.
 */

/* False for an alignment that is not a power of two, which the driver refuses. */
static bool is_aligned(CUdeviceptr addr, size_t alignment)
{
	return !alignment || (!(alignment & (alignment - 1)) && addr % alignment == 0);
}

/* Returns a triple that the GPU no longer uses, for the call, and makes it busy; or NULL. */
static struct gp_kept *take(const struct gp_kept_need *need)
{
	struct gp_kept *kept;

	while (gp_kept_is_any() && is_on() && (kept = gp_kept_choose(need))) {
		enum gp_grace_state grace = gp_grace_ask(&kept->grace);

		if (grace == GP_GRACE_OVER)
			return kept;
		if (grace == GP_GRACE_RUNS) {
			gp_kept_put_back(kept);
			/* The GPU may be done with memory that was freed earlier. */
			if (gp_kept_restore_order(need->bytes))
				continue;
			break;
		}
		(void)end(kept);
	}
	return NULL;
}

static bool fits_reserve(const struct gp_kept *kept, const struct gp_kept_need *need)
{
	return !kept->is_reserved && is_aligned(kept->addr, need->alignment);
}

static bool has_handle(const struct gp_kept *kept)
{
	return kept->n_handles != 0;
}

bool gp_kept_reserve(CUdeviceptr *ret_ptr, size_t bytes, size_t alignment)
{
	struct gp_kept_need need = {
		.bytes = bytes, .fits = fits_reserve, .is_best = has_handle, .alignment = alignment};
	struct gp_kept *kept = take(&need);

	if (!kept)
		return false;
	kept->is_reserved = true;
	*ret_ptr = kept->addr;
	gp_kept_done(kept);
	return true;
}

static bool fits_create(const struct gp_kept *kept, const struct gp_kept_need *need)
{
	return gp_kept_is_unused(kept) && memcmp(&kept->properties, need->properties, sizeof(kept->properties)) == 0;
}

static bool has_addresses(const struct gp_kept *kept)
{
	return kept->is_reserved;
}

struct gp_kept *gp_kept_create(size_t bytes, const CUmemAllocationProp *properties)
{
	struct gp_kept_need need = {
		.bytes = bytes, .fits = fits_create, .is_best = has_addresses, .properties = properties};
	struct gp_kept *kept = take(&need);

	if (!kept)
		return NULL;
	kept->n_handles = 1;
	kept->serial = atomic_fetch_add(&n_hand_outs, 1) + 1;
	atomic_fetch_add(&kept->device->n_kept_reuses, 1);
	return kept;
}

CUmemGenericAllocationHandle gp_kept_handle(const struct gp_kept *kept)
{
	return kept->handle;
}

struct gp_device *gp_kept_device(const struct gp_kept *kept)
{
	return kept->device;
}

struct gp_kept *gp_kept_map(
	CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	struct gp_kept *kept = gp_kept_claim_handle(handle);

	if (!kept)
		return NULL;
	if (kept->n_handles && kept->is_reserved && !kept->is_mapped && kept->addr == ptr && kept->bytes == bytes &&
		!offset && !flags && is_on()) {
		kept->is_mapped = true;
		memset(kept->asked, CU_MEM_ACCESS_FLAGS_PROT_NONE, sizeof(kept->asked));
		return kept;
	}
	gp_kept_put_back(kept);
	gp_kept_note_mismatch(ptr, bytes);
	return NULL;
}

static bool is_known_access(const CUmemAccessDesc *access, size_t n)
{
	for (size_t i = 0; access && i < n; i++)
		if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || access[i].location.id < 0 ||
			access[i].location.id >= GP_KEPT_DEVICES_MAX || access[i].flags < 0 ||
			access[i].flags > CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return false;
	return access && n;
}

/* A bit for each device that the driver has accepted: it refuses to take access away from a device that is missing. */
static _Atomic uint64_t accepted;
_Static_assert(GP_KEPT_DEVICES_MAX <= 64, "each device has a bit");

static bool is_granted(const struct gp_kept *kept, const CUmemAccessDesc *access, size_t n)
{
	uint64_t devices = atomic_load_explicit(&accepted, memory_order_relaxed);

	for (size_t i = 0; i < n; i++)
		if (kept->granted[access[i].location.id] != access[i].flags || !(devices >> access[i].location.id & 1))
			return false;
	return true;
}

static CUresult ask_for_access(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	CUresult r = gp_real.cuMemSetAccess(ptr, bytes, access, n);

	for (size_t i = 0; i < n && !r; i++)
		atomic_fetch_or(&accepted, UINT64_C(1) << access[i].location.id);
	return r;
}

bool gp_kept_set_access(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t n, CUresult *ret_result)
{
	struct gp_kept *kept = gp_kept_claim_at(ptr, bytes);

	if (!kept)
		return false;
	if (!kept->is_mapped || !kept->is_reserved || kept->addr != ptr || kept->bytes != bytes || !is_on() ||
		!is_known_access(access, n)) {
		gp_kept_put_back(kept);
		return false;
	}
	*ret_result = CUDA_SUCCESS;
	if (!is_granted(kept, access, n))
		*ret_result = ask_for_access(ptr, bytes, access, n);
	for (size_t i = 0; i < n && !*ret_result; i++)
		kept->asked[access[i].location.id] = kept->granted[access[i].location.id] =
			(unsigned char)access[i].flags;
	gp_kept_put_back(kept);
	/* After an error of several it is unknown which of them were set. */
	if (*ret_result && n > 1)
		(void)gp_kept_end(ptr, bytes);
	return true;
}

bool gp_kept_address_free(CUdeviceptr ptr, size_t bytes)
{
	struct gp_kept *kept = gp_kept_claim_at(ptr, bytes);
	bool is_served;

	if (!kept)
		return false;
	is_served = kept->is_reserved && !kept->is_mapped && kept->addr == ptr && kept->bytes == bytes && is_on();
	if (is_served) {
		kept->is_reserved = false;
		gp_kept_done(kept);
	} else {
		gp_kept_put_back(kept);
	}
	return is_served;
}

/*
 * A program that frees an array frees its addresses before it unmaps the next one. A program that does not is giving
 * memory away and keeps the addresses, for instance while a model sleeps. So that memory goes back to the driver.
 */
static void end_left(CUdeviceptr ptr)
{
	struct gp_kept *left;

	while (gp_kept_is_any() && (left = gp_kept_take_left(ptr)))
		(void)end(left);
}

/*
 * The bytes of the memory leave the accounts of the program before the triple is unused, and another thread may take
 * it. So the changes below take effect while the triple is busy.
 */
struct gp_kept *gp_kept_unmap(CUdeviceptr ptr, size_t bytes)
{
	struct gp_kept *kept;

	end_left(ptr);
	kept = gp_kept_claim_at(ptr, bytes);
	if (!kept)
		return NULL;
	if (!kept->is_mapped || kept->addr != ptr || kept->bytes != bytes || !is_on() ||
		!gp_grace_begin(&kept->grace, kept->device)) {
		gp_kept_put_back(kept);
		return NULL;
	}
	kept->is_mapped = false;
	return kept;
}

struct gp_kept *gp_kept_release(CUmemGenericAllocationHandle handle)
{
	struct gp_kept *kept = gp_kept_claim_handle(handle);

	if (!kept)
		return NULL;
	if (!kept->n_handles || !is_on()) {
		gp_kept_put_back(kept);
		return NULL;
	}
	kept->n_handles--;
	return kept;
}

/* The pools likewise give back what is freed: at once where nothing may stay cached. */
static void trim_excess(const struct gp_device *device)
{
	uint64_t excess = gp_budget_over(&device->budget);

	if (gp_slow_path_is_any(GP_SLOW_PATH_ASLEEP) ||
		atomic_load_explicit(&device->is_kept_pressed, memory_order_relaxed))
		excess = UINT64_MAX;
	if (gp_unlikely(excess))
		(void)gp_kept_trim(device->index, excess);
}

void gp_kept_drop_end(struct gp_kept *kept, bool is_known)
{
	const struct gp_device *device = kept->device;
	bool is_unused = gp_kept_is_unused(kept);

	if (!is_known) {
		(void)end(kept);
		return;
	}
	gp_kept_done(kept);
	if (is_unused)
		trim_excess(device);
}

struct gp_kept *gp_kept_retain(CUdeviceptr ptr)
{
	struct gp_kept *kept = gp_kept_claim_at(ptr, 1);

	if (!kept)
		return NULL;
	if (!kept->is_mapped || !is_on()) {
		gp_kept_put_back(kept);
		return NULL;
	}
	kept->n_handles++;
	return kept;
}

/*
 * After successful driver calls.
 */

void gp_kept_note_reserved(CUdeviceptr ptr, size_t bytes)
{
	if (is_on())
		gp_kept_note_add(GP_KEPT_ADDRESSES, ptr, bytes, NULL);
}

static bool is_ordinary(const CUmemAllocationProp *p)
{
	static const unsigned char zero[sizeof(p->allocFlags.reserved)];

	return p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       !p->win32HandleMetaData && !p->allocFlags.compressionType && !p->allocFlags.usage &&
	       memcmp(p->allocFlags.reserved, zero, sizeof(zero)) == 0;
}

bool gp_kept_note_created(CUmemGenericAllocationHandle handle, size_t bytes, const CUmemAllocationProp *properties)
{
	bool may_be_kept = is_on() && is_ordinary(properties);

	if (may_be_kept)
		gp_kept_note_add(GP_KEPT_HANDLES, handle, bytes, properties);
	return may_be_kept;
}

CUresult gp_kept_begin_mapping(struct gp_kept_mapping *mapping, CUmemGenericAllocationHandle handle)
{
	struct gp_kept_note note;
	struct gp_kept *kept;
	CUresult r;

	*mapping = (struct gp_kept_mapping){.handle = handle};
	while ((kept = gp_kept_claim_or_begin(handle, &note, &mapping->is_first))) {
		r = end(kept);
		if (r)
			return r;
	}
	if (!mapping->is_first)
		return CUDA_SUCCESS;
	mapping->bytes = note.bytes;
	mapping->properties = note.properties;
	return CUDA_SUCCESS;
}

void gp_kept_cancel_mapping(const struct gp_kept_mapping *mapping)
{
	if (mapping->is_first)
		gp_kept_cancel_begun(mapping->handle);
}

static struct gp_kept *new_mapped(const struct gp_kept_mapping *mapping, CUdeviceptr ptr)
{
	struct gp_kept_note *addresses = gp_kept_note_take(GP_KEPT_ADDRESSES, ptr);
	struct gp_kept *kept = NULL;

	if (addresses && addresses->bytes != mapping->bytes)
		gp_kept_note_reserved(ptr, addresses->bytes);
	else if (addresses)
		kept = calloc(1, sizeof(*kept));
	free(addresses);
	if (!kept)
		return NULL;
	kept->addr = ptr;
	kept->bytes = mapping->bytes;
	kept->handle = mapping->handle;
	kept->properties = mapping->properties;
	kept->device = gp_device_get(mapping->properties.location.id);
	kept->n_handles = kept->n_held = 1;
	kept->is_reserved = kept->is_mapped = true;
	return kept;
}

bool gp_kept_note_mapped(const struct gp_kept_mapping *mapping, CUdeviceptr ptr, size_t bytes, size_t offset)
{
	bool is_made = false, is_alone;
	struct gp_kept *kept = NULL;
	struct gp_kept_note *note;

	if (!mapping->is_first)
		return false;
	if (!offset && mapping->bytes == bytes && is_on())
		kept = new_mapped(mapping, ptr);
	if (kept) {
		is_made = kept->device && gp_kept_insert(kept);
		if (!is_made)
			free(kept);
	}
	/* Another thread that shares or maps the memory has taken the note, or finds the triple from now on. */
	note = gp_kept_note_take(GP_KEPT_HANDLES, mapping->handle);
	is_alone = note;
	free(note);
	if (is_made && !is_alone)
		(void)gp_kept_end_handle(mapping->handle);
	return is_made;
}

bool gp_kept_forget_reserved(CUdeviceptr ptr, size_t *ret_bytes)
{
	struct gp_kept_note *note = gp_kept_note_take(GP_KEPT_ADDRESSES, ptr);

	if (!note)
		return false;
	*ret_bytes = note->bytes;
	free(note);
	return true;
}

bool gp_kept_forget_created(CUmemGenericAllocationHandle handle, size_t *ret_bytes, CUmemAllocationProp *ret_properties)
{
	struct gp_kept_note *note = gp_kept_note_take(GP_KEPT_HANDLES, handle);

	if (!note)
		return false;
	*ret_bytes = note->bytes;
	*ret_properties = note->properties;
	free(note);
	return true;
}

/*
 * Before driver calls.
 */

CUresult gp_kept_settle(CUdeviceptr ptr)
{
	struct gp_kept *kept = gp_kept_claim_at(ptr, 1);
	struct gp_driver_relaxed relaxed;
	CUresult r;

	if (!kept)
		return CUDA_SUCCESS;
	if (!kept->is_mapped)
		return end(kept);
	relaxed = gp_driver_relax();
	r = set_asked(kept);
	gp_driver_unrelax(&relaxed);
	gp_kept_put_back(kept);
	return r;
}

CUresult gp_kept_end(CUdeviceptr ptr, size_t bytes)
{
	struct gp_kept *kept;
	CUresult r = CUDA_SUCCESS;

	while (!r && (kept = gp_kept_claim_at(ptr, bytes)))
		r = end(kept);
	return r;
}

CUresult gp_kept_end_unmapped(CUdeviceptr ptr, size_t bytes)
{
	struct gp_kept *kept;
	CUresult r = CUDA_SUCCESS;

	while (!r && bytes && (kept = gp_kept_claim_at(ptr, bytes))) {
		size_t passed = kept->addr + kept->bytes - ptr;

		if (kept->is_mapped)
			gp_kept_put_back(kept);
		else
			r = end(kept);
		ptr += gp_min(passed, bytes);
		bytes -= gp_min(passed, bytes);
	}
	return r;
}

CUresult gp_kept_end_handle(CUmemGenericAllocationHandle handle)
{
	struct gp_kept *kept = gp_kept_claim_handle(handle);

	return kept ? end(kept) : CUDA_SUCCESS;
}

CUresult gp_kept_share_handle(CUmemGenericAllocationHandle handle)
{
	struct gp_kept *kept;
	CUresult r = CUDA_SUCCESS;

	while (!r && (kept = gp_kept_claim_or_forget(handle)))
		r = end(kept);
	return r;
}

CUresult gp_kept_end_all(void)
{
	return gp_kept_end(0, SIZE_MAX);
}

CUresult gp_kept_stop(void)
{
	atomic_store(&is_enabled, false);
	return gp_kept_end_all();
}

bool gp_kept_is_released(CUmemGenericAllocationHandle handle)
{
	struct gp_kept *kept = gp_kept_claim_handle(handle);
	bool is_released = kept && !kept->n_handles;

	if (kept)
		gp_kept_put_back(kept);
	return is_released;
}

uint64_t gp_kept_buffer_id(CUdeviceptr ptr)
{
	struct gp_kept *kept = gp_kept_claim_at(ptr, 1);
	uint64_t id;

	if (!kept)
		return gp_program_map_buffer_id(ptr);
	id = kept->is_mapped ? buffer_id_of(kept) : 0;
	gp_kept_put_back(kept);
	return id;
}

uint64_t gp_kept_trim(int device, uint64_t want)
{
	static _Atomic bool is_refusal_logged;
	struct gp_kept *kept;
	uint64_t given = 0;

	if (gp_kept_is_any())
		gp_kept_retry_stuck();
	while (gp_kept_is_any() && given < want && !gp_slow_path_is_any(GP_SLOW_PATH_BYPASS)) {
		uint64_t bytes;
		CUresult r;

		kept = gp_kept_take_oldest(device);
		/* Another thread may be giving back the memory that the caller needs. */
		if (!kept && !gp_kept_await_busy(device, &bytes))
			break;
		if (kept) {
			bytes = kept->bytes;
			r = end(kept);
			if (r && !atomic_exchange(&is_refusal_logged, true))
				gp_log(GP_LOG_WARN, "the driver refused to unmap memory: error %d", r);
			bytes = r ? 0 : bytes;
		}
		given += bytes;
	}
	return given;
}

uint64_t gp_kept_note_available(struct gp_device *device, uint64_t available)
{
	uint64_t reserve = gp_state.config.reserve_bytes, missing = reserve - gp_min(available, reserve);
	uint64_t given = missing ? gp_kept_trim(device->index, missing) : 0;

	atomic_store_explicit(&device->is_kept_pressed, given < missing, memory_order_relaxed);
	return given;
}

uint64_t gp_kept_n_ended(void)
{
	return atomic_load(&n_ended);
}

uint64_t gp_kept_unused(const struct gp_device *device)
{
	return atomic_load(&device->kept_bytes);
}
