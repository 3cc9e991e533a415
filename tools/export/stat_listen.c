/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/text/stat_number.h"

enum { HOST_MAX = 64, PORT_MAX = 65535, BACKLOG = 64 };

/* Splits an address into host and port. Both remain texts, with numbers in them. */
static bool split(const char *text, char host[static HOST_MAX], char port[static HOST_MAX])
{
	const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');
	size_t length = colon ? (size_t)(colon - text) : 0;
	uint64_t number;

	if (colon && bracket && colon < bracket)
		return false;
	if (!stat_number_parse(colon ? colon + 1 : text, PORT_MAX, &number))
		return false;
	snprintf(port, HOST_MAX, "%u", (unsigned)number);
	if (length > 2 && text[0] == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	} else if (memchr(text, ':', length)) {
		return false;
	}
	if (length >= HOST_MAX)
		return false;
	snprintf(host, HOST_MAX, "%.*s", (int)length, text);
	if (!length || strcmp(host, "localhost") == 0)
		strcpy(host, "127.0.0.1");
	return true;
}

static int open_at(const struct addrinfo *info)
{
	int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, info->ai_protocol), one = 1, error;

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Writes the bound address: for port 0 it has the port that the kernel chose. */
static void describe(int fd, char address[static STAT_ADDRESS_MAX])
{
	struct sockaddr_storage bound = {0};
	socklen_t length = sizeof(bound);
	char host[HOST_MAX] = "?", port[HOST_MAX] = "?";

	if (getsockname(fd, (struct sockaddr *)&bound, &length) == 0)
		(void)getnameinfo((struct sockaddr *)&bound, length, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(address, STAT_ADDRESS_MAX, strchr(host, ':') ? "[%.60s]:%.8s" : "%.60s:%.8s", host, port);
}

enum stat_exit stat_listen(const char *text, int *ret_fd, char address[static STAT_ADDRESS_MAX])
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
	struct addrinfo *info;
	char host[HOST_MAX], port[HOST_MAX];
	int fd;

	if (!split(text, host, port) || getaddrinfo(host, port, &hints, &info) != 0) {
		stat_error("as in: --listen=127.0.0.1:9791", "--listen: '%s' is not an address.", text);
		return STAT_USAGE;
	}
	fd = open_at(info);
	freeaddrinfo(info);
	if (fd < 0) {
		stat_error(NULL, "cannot listen at %s: %s.", text, strerror(errno));
		return STAT_FAILED;
	}
	describe(fd, address);
	*ret_fd = fd;
	return STAT_OK;
}
