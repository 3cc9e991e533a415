/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Sets of fixed size remember what has been written: a bit for each stack and for each line of an interpreted program,
 * and a hash for each file. A file is identified by its path and its build id, so a library that is loaded again keeps
 * its number. Beyond OBJECTS_MAX files, frames are plain addresses.
 *
 * A thread searches for the file of a frame, in the loader's list, while it holds no lock. Then it takes the lock of
 * the sets, and writes what another thread has not written meanwhile. A bit of a stack is set after its record, so a
 * thread that sees the bit writes its allocation behind the stack.
 */

#include "record_stacks.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "common/config_stacks.h"
#include "pool/lock.h"
#include "record.h"
#include "shim/trace/alloc_info.h"
#include "shim/trace/call_site.h"
#include "shim/trace/location.h"
#include "shim/trace/object.h"

enum { OBJECTS_MAX = 1024, BITS = 64 };

_Static_assert((int)OBJECTS_MAX <= (int)GP_RECORD_OBJECTS_MAX, "a reader takes all files");
_Static_assert((int)GP_SITES_MAX <= (int)GP_RECORD_STACKS_MAX, "a reader takes all stacks");
_Static_assert((int)GP_LOCATIONS_MAX <= (int)GP_RECORD_PLACES_MAX, "a reader takes all lines");
_Static_assert((int)GP_STACKS_DEPTH_MAX <= (int)GP_RECORD_STACK_FRAMES_MAX, "a reader takes all frames");

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_RECORD_STACKS);
static _Atomic uint64_t written_stacks[GP_SITES_MAX / BITS + 1];
static _Atomic uint64_t written_places[GP_LOCATIONS_MAX / BITS + 1];
static uint64_t objects[OBJECTS_MAX]; /* hashes of the files written so far; their numbers count from 1 */
static uint32_t n_objects;

static bool is_in(const _Atomic uint64_t *set, uint32_t number)
{
	return atomic_load_explicit(&set[number / BITS], memory_order_acquire) >> (number % BITS) & 1;
}

static void add_to(_Atomic uint64_t *set, uint32_t number)
{
	atomic_fetch_or_explicit(&set[number / BITS], UINT64_C(1) << (number % BITS), memory_order_release);
}

/* The body of a long record. */
struct body {
	size_t n;
	uint8_t bytes[GP_RECORD_BODY_MAX];
};

_Static_assert(2 * GP_RECORD_VARINT_MAX * (GP_STACKS_DEPTH_MAX + 1) < GP_RECORD_BODY_MAX, "the largest stack fits");
_Static_assert(
	GP_OBJECT_PATH_MAX + GP_OBJECT_ID_MAX + 3 * GP_RECORD_VARINT_MAX < GP_RECORD_BODY_MAX, "the longest path fits");
_Static_assert(2 * GP_LOCATION_TEXT_MAX + 4 * GP_RECORD_VARINT_MAX < GP_RECORD_BODY_MAX, "the longest names fit");

static void put_number(struct body *body, uint64_t value)
{
	body->n += gp_record_put_varint(&body->bytes[body->n], value);
}

static void put_text(struct body *body, const void *text, size_t length)
{
	put_number(body, length);
	memcpy(&body->bytes[body->n], text, length);
	body->n += length;
}

static void put_frame(struct body *body, int64_t object, uint64_t address)
{
	put_number(body, gp_record_fold((uint64_t)object));
	put_number(body, address);
}

static uint64_t add_to_hash(uint64_t hash, const void *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* Returns the number of a file, which is written if it is new; 0 if there is no room. */
static uint32_t define_object_locked(const struct gp_object *object)
{
	uint64_t hash = add_to_hash(UINT64_C(0xcbf29ce484222325), object->path, strlen(object->path) + 1);
	struct body body = {.n = 0};

	hash = add_to_hash(hash, object->build_id, object->build_id_bytes);
	for (uint32_t i = 0; i < n_objects; i++)
		if (objects[i] == hash)
			return i + 1;
	if (n_objects == OBJECTS_MAX)
		return 0;
	objects[n_objects++] = hash;
	put_number(&body, n_objects);
	put_text(&body, object->path, strlen(object->path));
	put_text(&body, object->build_id, object->build_id_bytes);
	gp_record_add_long(GP_RECORD_OBJECT, body.bytes, body.n);
	return n_objects;
}

static uint32_t define_object(const struct gp_object *object)
{
	uint32_t number;

	gp_mutex_lock(&lock);
	number = define_object_locked(object);
	gp_mutex_unlock(&lock);
	return number;
}

static void define_place(uintptr_t location)
{
	uint32_t number = gp_location_number(location);
	struct gp_location_info info;
	struct body body = {.n = 0};

	if (is_in(written_places, number))
		return;
	gp_location_info(location, &info);
	put_number(&body, number);
	put_text(&body, info.name, strlen(info.name));
	put_text(&body, info.file, strlen(info.file));
	put_number(&body, info.line);
	gp_mutex_lock(&lock);
	if (!is_in(written_places, number)) {
		gp_record_add_long(GP_RECORD_PLACE, body.bytes, body.n);
		add_to(written_places, number);
	}
	gp_mutex_unlock(&lock);
}

/* Finds the object of an address. *object: the object of the previous frame, which is likely to be the same. */
static bool find_object(uintptr_t address, struct gp_object *object)
{
	if (address >= object->start && address < object->end)
		return true;
	if (gp_object_identify(address, object))
		return true;
	object->start = object->end = 0;
	return false;
}

static void define_stack(uint32_t site)
{
	struct gp_object object;
	struct gp_site_info info;
	struct body body = {.n = 0};
	uint32_t number = 0;

	object.start = object.end = 0;
	gp_site_info(site, &info);
	put_number(&body, site);
	for (unsigned i = 0; i < info.n_frames; i++) {
		uintptr_t pc = info.frames[i], start = object.start;

		if (gp_location_is(pc)) {
			define_place(pc);
			put_frame(&body, GP_RECORD_FRAME_PLACE, gp_location_number(pc));
			continue;
		}
		/* pc - 1: if a call is the last instruction of an object, its return address is outside the object. */
		if (!find_object(pc - 1, &object))
			number = 0;
		else if (!number || object.start != start)
			number = define_object(&object);
		put_frame(&body, number ? (int64_t)number : GP_RECORD_FRAME_PLAIN, number ? pc - object.base : pc);
	}
	gp_mutex_lock(&lock);
	if (!is_in(written_stacks, site)) {
		gp_record_add_long(GP_RECORD_STACK, body.bytes, body.n);
		add_to(written_stacks, site);
	}
	gp_mutex_unlock(&lock);
}

uint32_t gp_record_stack(uint64_t addr, uint64_t bytes)
{
	int saved_errno = errno;
	uint32_t site = gp_record_has_stacks() ? gp_alloc_info_take(addr, bytes) : 0;

	if (site && !is_in(written_stacks, site))
		define_stack(site);
	errno = saved_errno;
	return site;
}

void gp_record_stacks_after_fork_child(void)
{
	gp_mutex_init(&lock, GP_RANK_RECORD_STACKS);
	memset(written_stacks, 0, sizeof(written_stacks));
	memset(written_places, 0, sizeof(written_places));
	n_objects = 0;
}
