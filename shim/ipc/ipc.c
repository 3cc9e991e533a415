/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ipc.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "ipc_ask.h"
#include "ipc_mapped.h"
#include "shim/base/log.h"
#include "shim/base/state.h"
#include "shim/ctl/ctl_server.h"
#include "shim/driver/driver_table.h"

/* Base of the serial numbers of opened blocks, above those of the blocks of this process. */
#define IMPORT_SERIAL_BASE (UINT64_C(1) << 61)

/* The beginning of a handle; the number tells what importers ask the exporter for. */
#define MAGIC "gpupool ipc "

static const char magic_of_part[16] = MAGIC "1";   /* the driver's handle of a segment */
static const char magic_of_mapped[16] = MAGIC "2"; /* descriptors of chunks (ipc_mapped.h) */

/* gpupool's handle, in place of the driver's 64 bytes. */
struct handle {
	char magic[16];
	uint64_t pid, start_ticks; /* of the exporter; together they name its socket */
	uint64_t nonce;            /* random number of the exporter, so that handles cannot be guessed */
	uint64_t addr, serial;     /* of the block, in the exporter */
	uint64_t check;            /* checksum of the fields above */
};

_Static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle), "a handle has the driver's size");

/* A block that was exported. Its entry stays in the list for good, even after the block is freed. */
struct export
{
	struct export *next;
	uint64_t addr, serial;
	struct gp_ipc_reply reply;
};

/* A block of another process, opened here. */
struct import {
	struct import *next;
	struct handle handle;
	struct gp_ipc_reply reply;
	CUdeviceptr base, ptr; /* of the segment, of the block */
	uint64_t bytes, serial;
	CUcontext ctx;
	unsigned opens;             /* that were not closed */
	uint64_t n_opened;          /* of mapped memory: times that it was opened */
	struct gp_context *context; /* of mapped memory, with a reference; otherwise NULL */
	struct gp_ipc_mapping mapping;
};

#define NO_WORK UINT64_MAX

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);

/*
 * Held around the driver's open: if two threads open one segment at once, the driver refuses one of them (error 208,
 * measured).
 */
static struct gp_mutex open_lock = GP_MUTEX_INIT(GP_RANK_FENCE);

static uint64_t own_nonce; /* 0: not drawn yet */
static struct export *exports;
static struct import *imports;
static struct import *ending; /* mapped imports of contexts that are about to end */
static uint64_t n_imported;
static _Atomic unsigned n_imports;

/* Returns an FNV-1a checksum. It detects handles that were damaged on their way, but not forged ones. */
static uint64_t check_of(const struct handle *handle)
{
	const unsigned char *bytes = (const unsigned char *)handle;
	uint64_t sum = UINT64_C(14695981039346656037);

	for (size_t i = 0; i < offsetof(struct handle, check); i++)
		sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
	return sum;
}

static bool draw_nonce_locked(void)
{
	while (!own_nonce)
		if (getrandom(&own_nonce, sizeof(own_nonce), 0) != sizeof(own_nonce) && errno != EINTR)
			return false;
	return true;
}

/*
 * The list only grows, but it stays short. From the first export on, every new block is a whole driver allocation and
 * has a handle of the driver. So there are at most as many entries as there were blocks at the first export.
 */
static struct export *find_export_locked(uint64_t serial)
{
	struct export *e = exports;

	while (e && e->serial != serial)
		e = e->next;
	return e;
}

static bool is_still_held(uint64_t addr, uint64_t serial)
{
	struct gp_block_info info;

	return gp_pool_info(&gp_state.device_map, addr, &info) == 0 && info.is_used && info.serial == serial;
}

static CUresult note_export(const struct gp_block_info *info)
{
	struct export *e = calloc(1, sizeof(*e));
	CUresult r;

	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e->addr = info->addr;
	e->serial = info->serial;
	e->reply.offset = info->addr - info->segment_base;
	e->reply.bytes = info->size;
	r = gp_real.cuIpcGetMemHandle(&e->reply.segment, info->segment_base);
	if (r) {
		free(e);
		return r;
	}
	gp_mutex_lock(&lock);
	if (!find_export_locked(e->serial)) {
		e->next = exports;
		exports = e;
		e = NULL;
	}
	gp_mutex_unlock(&lock);
	free(e);
	return CUDA_SUCCESS;
}

/* Names the block. Returns false if importers could not ask this process. */
static bool name_block(struct handle *ret_handle, const char magic[static 16], const struct gp_block_info *info)
{
	struct handle handle = {.pid = (uint64_t)getpid(), .addr = info->addr, .serial = info->serial};
	bool is_drawn;
	char state;

	gp_mutex_lock(&lock);
	is_drawn = draw_nonce_locked();
	handle.nonce = own_nonce;
	gp_mutex_unlock(&lock);
	if (!is_drawn || !*gp_ctl_path() || gp_ctl_process_stat(0, &handle.start_ticks, &state))
		return false;
	memcpy(handle.magic, magic, sizeof(handle.magic));
	handle.check = check_of(&handle);
	*ret_handle = handle;
	return true;
}

CUresult gp_ipc_export(CUipcMemHandle *ret_handle, const struct gp_block_info *info)
{
	struct handle handle;
	CUresult r;

	if (!name_block(&handle, magic_of_part, info)) {
		gp_log(GP_LOG_WARN,
			"cannot export 0x%llx by IPC: the block is a part of a driver allocation, so its handle "
			"needs the control socket, and %s; GPUPOOL_POOL=binned makes each block a whole allocation",
			(unsigned long long)info->addr,
			gp_state.config.has_socket ? "this process has none" : "GPUPOOL_SOCKET is off");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	r = note_export(info);
	if (!r)
		memcpy(ret_handle, &handle, sizeof(handle));
	return r;
}

const char *gp_ipc_why_not_mapped(CUdeviceptr ptr, CUresult *ret_error)
{
	*ret_error = CUDA_SUCCESS;
	if (!gp_state.config.has_socket)
		return "importers would ask the control socket, and GPUPOOL_SOCKET is off";
	if (!*gp_ctl_path())
		return "importers would ask the control socket, and this process has none";
	*ret_error = gp_ipc_try_export(ptr);
	return *ret_error ? "the driver cannot export mapped memory here" : NULL;
}

CUresult gp_ipc_export_mapped(CUipcMemHandle *ret_handle, const struct gp_block_info *info)
{
	static _Atomic bool is_logged;
	struct handle handle;

	if (!name_block(&handle, magic_of_mapped, info))
		return CUDA_ERROR_NOT_SUPPORTED;
	memcpy(ret_handle, &handle, sizeof(handle));
	if (!atomic_exchange(&is_logged, true))
		gp_log(GP_LOG_INFO,
			"memory of GPUPOOL_POOL=vmm was exported by IPC: only processes under gpupool can open "
			"the handles; others get error 1 (invalid value). Run them under gpupool, or use "
			"GPUPOOL_POOL=binned here");
	return CUDA_SUCCESS;
}

bool gp_ipc_is_ours(const CUipcMemHandle *handle)
{
	return memcmp(handle, MAGIC, sizeof(MAGIC) - 1) == 0;
}

/*
 * Finds a block that this process itself exported. The driver decides whether a process may open its own handle.
 */
static int find_in_exports(const struct handle *handle, struct gp_ipc_reply *ret_reply)
{
	const struct export *e;

	gp_mutex_lock(&lock);
	e = find_export_locked(handle->serial);
	if (e)
		*ret_reply = e->reply;
	gp_mutex_unlock(&lock);
	return e ? 0 : -ENOENT;
}

static bool is_own(const struct handle *handle)
{
	uint64_t nonce;

	gp_mutex_lock(&lock);
	nonce = own_nonce;
	gp_mutex_unlock(&lock);
	return nonce && handle->nonce == nonce && handle->pid == (uint64_t)getpid();
}

static struct import *find_open_locked(const struct handle *handle)
{
	struct import *import = imports;

	while (import && memcmp(&import->handle, handle, sizeof(*handle)) != 0)
		import = import->next;
	return import;
}

/* Finds a block that is open here already. The exporter need not be asked again then, and may even have ended. */
static bool find_in_imports(const struct handle *handle, struct gp_ipc_reply *ret_reply)
{
	const struct import *import;

	gp_mutex_lock(&lock);
	import = find_open_locked(handle);
	if (import)
		*ret_reply = import->reply;
	gp_mutex_unlock(&lock);
	return import != NULL;
}

/* Returns true for a handle that gpupool made, and that was not damaged since. */
static bool is_intact(const struct handle *handle)
{
	return handle->check == check_of(handle) && handle->pid <= INT32_MAX;
}

/* Finds out where the block of a handle is. Returns 0, an error of gp_ipc_ask, or -EOPNOTSUPP without sockets. */
static int locate(const struct handle *handle, struct gp_ipc_reply *ret_reply)
{
	if (!is_intact(handle))
		return -EPROTO;
	if (is_own(handle))
		return find_in_exports(handle, ret_reply);
	if (find_in_imports(handle, ret_reply))
		return 0;
	if (!gp_state.config.has_socket)
		return -EOPNOTSUPP;
	return gp_ipc_ask((pid_t)handle->pid, handle->start_ticks, handle->nonce, handle->serial, ret_reply);
}

static struct import *find_import_locked(CUdeviceptr ptr)
{
	struct import *import = imports;

	while (import && ptr - import->ptr >= import->bytes)
		import = import->next;
	return import;
}

/*
 * Notes an opened block. The driver counts how many times each segment is open, and gpupool counts it for each block.
 */
static bool note_import(CUdeviceptr base, const struct handle *handle, const struct gp_ipc_reply *reply)
{
	struct import *import = calloc(1, sizeof(*import)), *known;

	if (!import)
		return false;
	*import = (struct import){
		.handle = *handle,
		.reply = *reply,
		.base = base,
		.ptr = base + reply->offset,
		.bytes = reply->bytes,
		.opens = 1,
	};
	(void)gp_real.cuCtxGetCurrent(&import->ctx);
	gp_mutex_lock(&lock);
	known = find_import_locked(import->ptr);
	if (known && known->ptr == import->ptr && known->base == base) {
		known->opens++;
	} else {
		import->serial = IMPORT_SERIAL_BASE + ++n_imported;
		import->next = imports;
		imports = import;
		import = NULL;
		atomic_fetch_add(&n_imports, 1);
	}
	gp_mutex_unlock(&lock);
	free(import);
	return true;
}

/*
 * Returns true if the block lies in the segment. The exporter's answer is not trusted; the driver knows the segment's
 * size.
 */
static bool is_within(CUdeviceptr base, const struct gp_ipc_reply *reply)
{
	CUdeviceptr start = 0;
	size_t bytes = 0;

	/* If the driver does not report the size, the block is accepted unchecked. */
	if (gp_real.cuMemGetAddressRange_v2(&start, &bytes, base))
		return true;
	bytes -= (size_t)(base - start);
	return reply->offset <= bytes && reply->bytes <= bytes - reply->offset;
}

static CUresult check_and_note(CUdeviceptr base, const struct handle *handle, const struct gp_ipc_reply *reply)
{
	if (!is_within(base, reply)) {
		gp_log(GP_LOG_WARN,
			"cannot open an IPC handle of process %llu: its block exceeds its driver allocation",
			(unsigned long long)handle->pid);
		return CUDA_ERROR_INVALID_VALUE;
	}
	return note_import(base, handle, reply) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult open_segment(CUdeviceptr *ret_ptr, const struct handle *handle, const struct gp_ipc_reply *reply,
	unsigned flags, gp_ipc_open_fn driver)
{
	CUdeviceptr base = 0;
	CUresult r;

	gp_mutex_lock(&open_lock);
	r = driver(&base, reply->segment, flags);
	if (!r) {
		r = check_and_note(base, handle, reply);
		if (r)
			(void)gp_real.cuIpcCloseMemHandle(base);
	}
	gp_mutex_unlock(&open_lock);
	if (!r)
		*ret_ptr = base + reply->offset;
	return r;
}

bool gp_ipc_is_open(const CUipcMemHandle *handle)
{
	struct gp_ipc_reply unused;
	struct handle own_handle;

	memcpy(&own_handle, handle, sizeof(own_handle));
	return find_in_imports(&own_handle, &unused);
}

static CUresult refuse(const struct handle *handle, int error)
{
	gp_log(GP_LOG_WARN, "cannot open an IPC handle of process %llu: %s", (unsigned long long)handle->pid,
		error == -ENOENT       ? "the process has ended, or has freed the block"
		: error == -EPERM      ? "the process belongs to another user"
		: error == -EOPNOTSUPP ? "asking that process needs GPUPOOL_SOCKET=on in this process"
		: error == -ETIMEDOUT  ? "the process did not answer in time"
		: error == -EIO        ? "the driver of that process cannot export the memory"
		: error == -EMFILE     ? "this process has no file descriptor left"
				       : "the handle is damaged, or the control socket of the process cannot be "
					 "reached");
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult refuse_version(const struct handle *handle)
{
	gp_log(GP_LOG_WARN,
		"cannot open an IPC handle of process %llu: it is of another version of gpupool than %s, which is that "
		"of this process; run both processes with the same version",
		(unsigned long long)handle->pid, GPUPOOL_VERSION);
	return CUDA_ERROR_INVALID_VALUE;
}

/* Opens a mapped block once more, if it is open. The driver lets only one context of a process have it open. */
static bool open_again_locked(
	const struct handle *handle, const struct gp_context *context, CUdeviceptr *ret_ptr, CUresult *ret_result)
{
	struct import *import = find_open_locked(handle);

	if (!import)
		return false;
	*ret_result = import->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	if (!*ret_result) {
		import->opens++;
		import->n_opened++;
		*ret_ptr = import->ptr;
	}
	return true;
}

static bool open_again(
	const struct handle *handle, const struct gp_context *context, CUdeviceptr *ret_ptr, CUresult *ret_result)
{
	bool is_open;

	gp_mutex_lock(&lock);
	is_open = open_again_locked(handle, context, ret_ptr, ret_result);
	gp_mutex_unlock(&lock);
	return is_open;
}

static struct import *import_of(
	const struct handle *handle, struct gp_context *context, const struct gp_ipc_mapping *mapping)
{
	struct import *import = calloc(1, sizeof(*import));

	if (!import)
		return NULL;
	*import = (struct import){
		.handle = *handle,
		.base = mapping->base,
		.ptr = mapping->base + mapping->offset,
		.bytes = mapping->block_bytes,
		.opens = 1,
		.n_opened = 1,
		.ctx = context->handle,
		.context = context,
		.mapping = *mapping,
	};
	gp_context_ref(context);
	return import;
}

static void forget(struct import *import)
{
	gp_context_unref(import->context);
	free(import);
}

static void free_mapped(struct import *import)
{
	(void)gp_ipc_unmap(&import->mapping);
	forget(import);
}

/* Takes the import at *at off the list. */
static struct import *drop_locked(struct import **at)
{
	struct import *import = *at;

	*at = import->next;
	atomic_fetch_sub(&n_imports, 1);
	return import;
}

/* Unmaps an import that was taken off the list. It goes back there, open once, if the driver refuses. */
static CUresult unmap_closed(struct import *import)
{
	CUresult r = gp_ipc_unmap(&import->mapping);

	if (!r) {
		forget(import);
		return r;
	}
	gp_mutex_lock(&lock);
	import->opens = 1;
	import->next = imports;
	imports = import;
	atomic_fetch_add(&n_imports, 1);
	gp_mutex_unlock(&lock);
	return r;
}

/* Finds a mapped import that begins at the address. Returns where it is in the list, or NULL. */
static struct import **find_mapped_locked(CUdeviceptr ptr)
{
	struct import **at = &imports;

	while (*at && ((*at)->ptr != ptr || !(*at)->context))
		at = &(*at)->next;
	return *at ? at : NULL;
}

/*
 * Another thread may have opened or closed the block meanwhile. Returns false, and closes nothing, if this close would
 * be the last and the block has work that the caller has not waited for. waited: n_opened before the wait, 0 if there
 * was none, or NO_WORK.
 */
static bool close_one(CUdeviceptr ptr, uint64_t waited, CUresult *ret_result)
{
	struct import **at, *removed = NULL;
	bool must_wait;

	gp_mutex_lock(&lock);
	at = find_mapped_locked(ptr);
	must_wait = at && (*at)->opens == 1 && waited != NO_WORK && waited != (*at)->n_opened;
	if (at && !must_wait && --(*at)->opens == 0)
		removed = drop_locked(at);
	gp_mutex_unlock(&lock);
	*ret_result = at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	if (removed)
		*ret_result = unmap_closed(removed);
	return !must_wait;
}

/* The context may have ended before the block was noted, and its end does not unmap the block then. */
static CUresult check_context(struct gp_context *context, CUdeviceptr ptr)
{
	CUresult r;

	if (gp_context_enter(context)) {
		gp_context_leave(context);
		return CUDA_SUCCESS;
	}
	(void)close_one(ptr, NO_WORK, &r);
	return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Notes a mapped block. If another thread has opened it meanwhile, the mapping of that thread is taken. */
static CUresult note_mapped(struct import *import, CUdeviceptr *ret_ptr)
{
	const struct gp_ipc_mapping mapping = import->mapping;
	struct gp_context *context = import->context;
	CUresult r = CUDA_SUCCESS;

	gp_mutex_lock(&lock);
	if (!open_again_locked(&import->handle, import->context, ret_ptr, &r)) {
		*ret_ptr = import->ptr;
		import->serial = IMPORT_SERIAL_BASE + ++n_imported;
		import->next = imports;
		imports = import;
		import = NULL;
		atomic_fetch_add(&n_imports, 1);
	}
	gp_mutex_unlock(&lock);
	if (import) {
		free_mapped(import);
		return r;
	}
	gp_ipc_allow_new(context, &mapping);
	return check_context(context, *ret_ptr);
}

static CUresult map_and_note(CUdeviceptr *ret_ptr, const struct handle *handle, struct gp_context *context)
{
	const uint64_t words[3] = {handle->nonce, handle->addr, handle->serial};
	struct gp_ipc_mapping mapping;
	struct import *import;
	int r = gp_ipc_map(context, (pid_t)handle->pid, handle->start_ticks, words, &mapping);

	if (r)
		return r > 0 ? (CUresult)r : refuse(handle, r);
	import = import_of(handle, context, &mapping);
	if (import)
		return note_mapped(import, ret_ptr);
	gp_ipc_unmap(&mapping);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult open_mapped(CUdeviceptr *ret_ptr, const struct handle *handle, unsigned flags)
{
	struct gp_context *context;
	CUresult r;

	if (!(flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_intact(handle))
		return refuse(handle, -EPROTO);
	if (is_own(handle))
		return CUDA_ERROR_INVALID_CONTEXT; /* as the driver, which opens no memory of the process itself */
	context = gp_context_current();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!open_again(handle, context, ret_ptr, &r))
		r = gp_state.config.has_socket ? map_and_note(ret_ptr, handle, context) : refuse(handle, -EOPNOTSUPP);
	gp_context_put(context);
	return r;
}

CUresult gp_ipc_open(CUdeviceptr *ret_ptr, const CUipcMemHandle *handle, unsigned flags, gp_ipc_open_fn driver)
{
	struct gp_ipc_reply reply;
	struct handle own_handle;
	int error;

	memcpy(&own_handle, handle, sizeof(own_handle));
	if (memcmp(own_handle.magic, magic_of_mapped, sizeof(magic_of_mapped)) == 0)
		return open_mapped(ret_ptr, &own_handle, flags);
	if (memcmp(own_handle.magic, magic_of_part, sizeof(magic_of_part)) != 0)
		return refuse_version(&own_handle);
	error = locate(&own_handle, &reply);
	return error ? refuse(&own_handle, error) : open_segment(ret_ptr, &own_handle, &reply, flags, driver);
}

/*
 * Returns the context to wait for, with a reference, if a close of the mapped import would be the last; or NULL.
 * *ret_n_opened: as in the import, or 0 with NULL.
 */
static struct gp_context *context_of_last(CUdeviceptr ptr, bool *ret_is_mapped, uint64_t *ret_n_opened)
{
	struct gp_context *context = NULL;
	struct import **at;

	gp_mutex_lock(&lock);
	at = find_mapped_locked(ptr);
	*ret_is_mapped = at != NULL;
	*ret_n_opened = 0;
	if (at && (*at)->opens == 1) {
		*ret_n_opened = (*at)->n_opened;
		context = (*at)->context;
		gp_context_ref(context);
	}
	gp_mutex_unlock(&lock);
	return context;
}

bool gp_ipc_close_mapped(CUdeviceptr ptr, CUresult *ret_result)
{
	CUcontext current = NULL;
	struct gp_context *context;
	bool is_mapped, is_over;
	uint64_t n_opened;

	if (gp_likely(!atomic_load_explicit(&n_imports, memory_order_relaxed)))
		return false;
	context = context_of_last(ptr, &is_mapped, &n_opened);
	if (!is_mapped)
		return false;
	*ret_result = gp_real.cuCtxGetCurrent(&current);
	if (!*ret_result && !current)
		*ret_result = CUDA_ERROR_INVALID_CONTEXT;
	do {
		if (!*ret_result && context)
			*ret_result = gp_ipc_wait_for(context);
		is_over = *ret_result || close_one(ptr, n_opened, ret_result);
		if (context)
			gp_context_unref(context);
		/* Another thread has opened or closed the block meanwhile, and has left the last close to this one. */
		if (!is_over)
			context = context_of_last(ptr, &is_mapped, &n_opened);
	} while (!is_over);
	return true;
}

CUdeviceptr gp_ipc_close_base(CUdeviceptr ptr)
{
	const struct import *import;
	CUdeviceptr base = ptr;

	if (gp_likely(!atomic_load_explicit(&n_imports, memory_order_relaxed)))
		return ptr;
	gp_mutex_lock(&lock);
	import = find_import_locked(ptr);
	if (import && import->ptr == ptr)
		base = import->base;
	gp_mutex_unlock(&lock);
	return base;
}

void gp_ipc_closed(CUdeviceptr ptr)
{
	struct import **at, *removed = NULL;

	gp_mutex_lock(&lock);
	for (at = &imports; *at && (*at)->ptr != ptr; at = &(*at)->next)
		;
	if (*at && --(*at)->opens == 0)
		removed = drop_locked(at);
	gp_mutex_unlock(&lock);
	free(removed);
}

/* Takes what was opened in the context off the list: its work can no longer begin. Mapped memory stays mapped. */
static void forget_context(CUcontext handle, struct gp_context *context)
{
	struct import **at, *removed = NULL;

	gp_mutex_lock(&lock);
	for (at = &imports; *at;) {
		if ((*at)->ctx == handle) {
			struct import *import = drop_locked(at), **into = import->context ? &ending : &removed;

			import->next = *into;
			*into = import;
		} else {
			at = &(*at)->next;
		}
	}
	gp_mutex_unlock(&lock);
	while (removed) {
		struct import *next = removed->next;

		free(removed);
		removed = next;
	}
}

/* Unmaps what was opened in a context. The driver has ended it, so no work uses the memory. */
static void unmap_of_context(struct gp_context *context)
{
	struct import **at, *removed = NULL;

	gp_mutex_lock(&lock);
	for (at = &ending; *at;) {
		struct import *import = *at;

		if (import->context != context) {
			at = &import->next;
			continue;
		}
		*at = import->next;
		import->next = removed;
		removed = import;
	}
	gp_mutex_unlock(&lock);
	while (removed) {
		struct import *next = removed->next;

		free_mapped(removed);
		removed = next;
	}
}

void gp_ipc_start(void)
{
	static struct gp_context_watcher watcher = {.ended = forget_context, .after_end = unmap_of_context};

	gp_context_watch(&watcher);
}

bool gp_ipc_each_mapping(
	const struct gp_context *context, void (*fn)(void *arg, uint64_t addr, uint64_t bytes), void *arg)
{
	const struct import *import;
	struct gp_ipc_mapping *mappings;
	unsigned room = atomic_load(&n_imports), n = 0;

	if (!room)
		return true;
	mappings = calloc(room, sizeof(*mappings));
	if (!mappings)
		return false;
	gp_mutex_lock(&lock);
	/* An import that another thread adds later sees the change that the caller has noted (gp_ipc_allow_new). */
	for (import = imports; import && n < room; import = import->next)
		if (import->context == context)
			mappings[n++] = import->mapping;
	gp_mutex_unlock(&lock);
	for (unsigned i = 0; i < n; i++)
		fn(arg, mappings[i].base, mappings[i].bytes);
	free(mappings);
	return true;
}

CUcontext gp_ipc_context_of(CUdeviceptr ptr)
{
	const struct import *import;
	CUcontext ctx;

	gp_mutex_lock(&lock);
	import = find_import_locked(ptr);
	ctx = import ? import->ctx : NULL;
	gp_mutex_unlock(&lock);
	return ctx;
}

bool gp_ipc_find(CUdeviceptr ptr, struct gp_block_info *ret_info)
{
	const struct import *import;

	if (gp_likely(!atomic_load_explicit(&n_imports, memory_order_relaxed)))
		return false;
	gp_mutex_lock(&lock);
	import = find_import_locked(ptr);
	if (import)
		*ret_info = (struct gp_block_info){
			.addr = import->ptr,
			.size = import->bytes,
			.rounded = import->bytes,
			.serial = import->serial,
			.segment_base = import->base,
			.is_used = true,
			.is_mapped = import->context != NULL,
		};
	gp_mutex_unlock(&lock);
	return import != NULL;
}

static void write_handle(struct gp_json *out, const CUipcMemHandle *handle)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *bytes = (const unsigned char *)handle;
	char text[2 * sizeof(*handle) + 1];

	for (size_t i = 0; i < sizeof(*handle); i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	text[sizeof(text) - 1] = '\0';
	gp_json_string(out, "handle", text);
}

/* Parses a word that is a decimal number as a whole. */
static bool read_number(const char *word, uint64_t *ret_number)
{
	char *end;

	errno = 0;
	*ret_number = strtoull(word, &end, 10);
	return *word >= '0' && *word <= '9' && !*end && !errno;
}

int gp_ipc_answer_chunk(int argc, char **argv, struct gp_json *out)
{
	uint64_t nonce, addr, serial, at;
	bool is_right;

	if (!read_number(argv[1], &nonce) || !read_number(argv[2], &addr) || !read_number(argv[3], &serial) ||
		!read_number(argv[4], &at))
		return gp_ctl_error(out, GP_CTL_USAGE, "usage: chunk NONCE ADDRESS SERIAL AT, all numbers");
	gp_mutex_lock(&lock);
	is_right = own_nonce && nonce == own_nonce;
	gp_mutex_unlock(&lock);
	if (!is_right)
		return gp_ctl_error(out, GP_CTL_UNKNOWN, "no such block was exported, or it has been freed");
	return gp_ipc_answer_chunk_of(addr, serial, at, out);
}

int gp_ipc_answer(int argc, char **argv, struct gp_json *out)
{
	struct gp_ipc_reply reply;
	uint64_t nonce, serial, addr = 0;
	const struct export *e = NULL;

	if (!read_number(argv[1], &nonce) || !read_number(argv[2], &serial))
		return gp_ctl_error(out, GP_CTL_USAGE, "usage: ipc NONCE SERIAL, both numbers");
	gp_mutex_lock(&lock);
	if (own_nonce && nonce == own_nonce)
		e = find_export_locked(serial);
	if (e) {
		addr = e->addr;
		reply = e->reply;
	}
	gp_mutex_unlock(&lock);
	if (!e || !is_still_held(addr, serial))
		return gp_ctl_error(out, GP_CTL_UNKNOWN, "no such block was exported, or it has been freed");
	gp_ctl_answer_begin(out, GP_CTL_ipc);
	write_handle(out, &reply.segment);
	gp_json_u64(out, "offset", reply.offset);
	gp_json_u64(out, "bytes", reply.bytes);
	gp_json_object_end(out);
	return 0;
}
