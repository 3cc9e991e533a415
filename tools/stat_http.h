/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * An HTTP server for pages that are made when they are asked for, by libmicrohttpd. Clients may be hostile: they have
 * bounded time and memory, and a request with a body is refused before the body.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stat_page {
	char *text; /* to be freed, or NULL: there is not enough memory */
	size_t length;
	const char *type;
};

struct stat_http_settings {
	int fd; /* that listens */
	const char *path;  /* of the page */
	const char *index; /* the text at "/" */

	/* Called in several threads at a time. accepted: what the client takes, or NULL. */
	struct stat_page (*make)(void *arg, const char *accepted);
	void *arg;

	uint64_t time_ns; /* that a client has to ask, and to read its answer */
	uint64_t (*now_ns)(void);
	unsigned idle_seconds; /* that a client may be silent, by the clock of the system; 0: any number */
};

struct stat_http;

/* NULL if it does not start. The settings are copied; the socket is its own from now on. */
struct stat_http *stat_http_start(const struct stat_http_settings *settings);

/* Ends the connections whose time is over; to be called every now and then. */
void stat_http_tick(struct stat_http *http);

void stat_http_stop(struct stat_http *http);
