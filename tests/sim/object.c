/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <stdlib.h>
#include <string.h>

#include "ctx.h"

/*
 * Freed objects wait in a queue for each size and are reused oldest first, so that a stale handle
 * stays invalid for as long as possible. Their memory is never unmapped, so a call with a stale handle
 * returns an error and does not crash.
 */
struct queue {
	size_t size;
	unsigned n;
	struct sim_object *oldest, *newest;
};

#define N_QUEUES  16
#define KEEP_FREE 256 /* free objects of a size, before the oldest is reused */

static struct queue queues[N_QUEUES];

static struct queue *queue_of(size_t size)
{
	for (unsigned i = 0; i < N_QUEUES; i++) {
		if (!queues[i].size)
			queues[i].size = size;
		if (queues[i].size == size)
			return &queues[i];
	}
	abort();
}

struct header {
	struct header *next; /* keeps all objects reachable, also for leak checkers */
	size_t size;
	struct sim_object object;
};

static struct header *headers;

static struct header *header_of(struct sim_object *object)
{
	return (struct header *)((char *)object - offsetof(struct header, object));
}

static void *take_oldest(struct queue *queue)
{
	struct sim_object *object = queue->oldest;

	queue->oldest = object->next_free;
	if (!queue->oldest)
		queue->newest = NULL;
	queue->n--;
	memset(object, 0, queue->size);
	return object;
}

void *sim_object_new(enum sim_magic magic, size_t size)
{
	struct queue *queue = queue_of(size);
	struct sim_object *object;

	if (queue->n > KEEP_FREE) {
		object = take_oldest(queue);
	} else {
		struct header *header = sim_alloc_zeroed(1, offsetof(struct header, object) + size);

		header->size = size;
		header->next = headers;
		headers = header;
		object = &header->object;
	}
	object->magic = magic;
	return object;
}

void sim_object_free(void *pointer)
{
	struct sim_object *object = pointer;
	struct queue *queue = queue_of(header_of(object)->size);

	object->magic = SIM_DEAD;
	object->next_free = NULL;
	if (queue->newest)
		queue->newest->next_free = object;
	else
		queue->oldest = object;
	queue->newest = object;
	queue->n++;
}

void *sim_object_of(const void *handle, enum sim_magic magic)
{
	const struct sim_object *object = handle;

	if (!object || (uintptr_t)handle % _Alignof(struct sim_object) || object->magic != magic)
		return NULL;
	return (void *)(uintptr_t)handle;
}
