/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Circular doubly linked list, linked through members of its elements. */

#include "base.h"

struct gp_list {
	struct gp_list *prev, *next;
};

static inline void gp_list_init(struct gp_list *head)
{
	head->prev = head->next = head;
}

static inline bool gp_list_is_empty(const struct gp_list *head)
{
	return head->next == head;
}

static inline void gp_list_append(struct gp_list *head, struct gp_list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

static inline void gp_list_prepend(struct gp_list *head, struct gp_list *link)
{
	gp_list_append(head->next, link);
}

/* Leaves the link linked to itself, so that removing twice is harmless. */
static inline void gp_list_remove(struct gp_list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	gp_list_init(link);
}

/* The body must not remove elements; that of gp_list_each_safe may remove the current one. */
#define gp_list_each(link, head) for ((link) = (head)->next; (link) != (head); (link) = (link)->next)

#define gp_list_each_safe(link, tmp, head) \
	for ((link) = (head)->next, (tmp) = (link)->next; (link) != (head); (link) = (tmp), (tmp) = (link)->next)
