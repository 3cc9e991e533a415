/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * An HTTP server, based on libmicrohttpd, that makes a page for each request. Clients may be hostile: they have bounded
 * time and memory, and a request with a body is refused before the body is read.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stat_page {
	char *text; /* the server frees it; NULL: there is not enough memory */
	size_t length;
	const char *type;
};

struct stat_http_settings {
	int fd;            /* the listening socket */
	const char *path;  /* of the page */
	const char *index; /* the text at "/" */

	/* Makes the page; called by several threads at a time. accepted: the request's Accept header, or NULL. */
	struct stat_page (*make)(void *arg, const char *accepted);
	void *arg;

	uint64_t time_ns; /* for a client to send its request, and again to read its answer */
	uint64_t (*now_ns)(void);
	unsigned idle_seconds; /* how long a client may be silent, by the system's clock; 0: forever */
};

struct stat_http;

/* Starts a server, which copies the settings and takes ownership of the socket. Returns NULL if it does not start. */
struct stat_http *stat_http_start(const struct stat_http_settings *settings);

/* Ends the connections whose time is over. The caller must call it regularly, such as every second. */
void stat_http_tick(struct stat_http *http);

void stat_http_stop(struct stat_http *http);
