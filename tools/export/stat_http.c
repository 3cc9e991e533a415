/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * libmicrohttpd runs a thread for each connection, so that a client that reads slowly, or sends nothing, delays only
 * itself. libmicrohttpd ends inactive connections, but a slow one may stay; and if there are too many, it refuses the
 * newest. stat_clients.c therefore bounds the time of a request, and makes room for a new connection.
 */

#include "stat_http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "stat_clients.h"

/* SPARE_CONNECTIONS: room for connections that have been ended but are not closed yet. */
enum { SPARE_CONNECTIONS = 64, CONNECTION_BYTES = 16 << 10, HOST_MAX = 64, COMPRESSED_FROM = 1024 };

static const char unknown_text[] = "not found; the metrics are at /metrics\n";
static const char method_text[] = "only GET and HEAD are supported\n";
static const char body_text[] = "a request must not have a body\n";
static const char memory_text[] = "there is not enough memory\n";
static const char host_text[] = "on a loopback address, the Host header must be an IP address or localhost\n";

struct stat_http {
	struct stat_http_settings settings;
	struct stat_clients clients;
	struct MHD_Daemon *daemon;
	bool is_loopback;
};

static enum MHD_Result send_and_drop(
	struct MHD_Connection *connection, unsigned status, struct MHD_Response *response, const char *type)
{
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	(void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		(void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
	return send_and_drop(connection, status,
		MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT),
		"text/plain; charset=utf-8");
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
	return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* Returns true if the client accepts gzip: as a word of its own, and not with q=0. */
static bool accepts_gzip(const char *value)
{
	for (const char *word = value; word && *word; word += *word == ',') {
		size_t length;

		word += strspn(word, " \t");
		length = strcspn(word, ",; \t");
		if ((length == 4 && strncasecmp(word, "gzip", 4) == 0) || (length == 1 && *word == '*')) {
			const char *quality = word + length + strspn(word + length, " \t;");

			return strncasecmp(quality, "q=0", 3) != 0 || quality[3 + strspn(quality + 3, ".0")] > '0';
		}
		word += strcspn(word, ",");
	}
	return false;
}

/* Replaces the text by its compressed form. Returns false, and changes nothing, if that is not possible. */
static bool compress_page(struct stat_page *page)
{
	z_stream z = {.next_in = (Bytef *)page->text, .avail_in = (uInt)page->length};
	uLong bound;
	char *text;

	if (page->length < COMPRESSED_FROM || page->length > UINT32_MAX / 2 ||
		deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + 16, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
		return false;
	bound = deflateBound(&z, (uLong)page->length);
	text = malloc(bound);
	z.next_out = (Bytef *)text;
	z.avail_out = text ? (uInt)bound : 0;
	if (!text || deflate(&z, Z_FINISH) != Z_STREAM_END) {
		deflateEnd(&z);
		free(text);
		return false;
	}
	free(page->text);
	page->text = text;
	page->length = bound - z.avail_out;
	deflateEnd(&z);
	return true;
}

static enum MHD_Result send_page(struct stat_http *http, struct MHD_Connection *connection)
{
	const struct stat_http_settings *settings = &http->settings;
	struct MHD_Response *response;
	bool is_gzip;
	struct stat_page page = settings->make(settings->arg, header(connection, MHD_HTTP_HEADER_ACCEPT));

	if (!page.text)
		return send_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, memory_text);
	is_gzip = accepts_gzip(header(connection, MHD_HTTP_HEADER_ACCEPT_ENCODING)) && compress_page(&page);
	response = MHD_create_response_from_buffer(page.length, page.text, MHD_RESPMEM_MUST_FREE);
	if (response)
		(void)MHD_add_response_header(
			response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ACCEPT ", " MHD_HTTP_HEADER_ACCEPT_ENCODING);
	if (response && is_gzip)
		(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
	return send_and_drop(connection, MHD_HTTP_OK, response, page.type);
}

static bool has_body(struct MHD_Connection *connection)
{
	const char *length = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);

	return (length && strcmp(length, "0") != 0) || header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

static bool is_address(const char *host)
{
	struct in6_addr unused;

	return inet_pton(AF_INET, host, &unused) == 1 || inet_pton(AF_INET6, host, &unused) == 1;
}

/*
 * Returns true if the client meant this machine. A web page may let its name resolve to 127.0.0.1, to have a browser
 * read what only this machine can reach (DNS rebinding); the browser then sends that name as the host.
 */
static bool is_host_local(struct MHD_Connection *connection)
{
	const char *value = header(connection, MHD_HTTP_HEADER_HOST), *end;
	char host[HOST_MAX] = "";
	size_t length;

	if (!value)
		return true; /* a browser always sends it */
	end = *value == '[' ? strchr(value, ']') : value + strcspn(value, ":");
	value += *value == '[';
	if (!end || end < value)
		return false;
	length = (size_t)(end - value);
	if (length >= sizeof(host))
		return false;
	memcpy(host, value, length);
	return is_address(host) || strcasecmp(host, "localhost") == 0;
}

static enum MHD_Result answer(
	struct stat_http *http, struct MHD_Connection *connection, const char *url, const char *method)
{
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, method_text);
	if (has_body(connection))
		return send_text(connection, MHD_HTTP_BAD_REQUEST, body_text);
	if (http->is_loopback && !is_host_local(connection))
		return send_text(connection, MHD_HTTP_MISDIRECTED_REQUEST, host_text);
	if (strcmp(url, "/") == 0)
		return send_text(connection, MHD_HTTP_OK, http->settings.index);
	if (strcmp(url, http->settings.path) != 0)
		return send_text(connection, MHD_HTTP_NOT_FOUND, unknown_text);
	return send_page(http, connection);
}

static struct stat_client *client_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

/*
 * Called for the head of a request, for each part of its body, and at its end. A request without a body is answered at
 * its end. A request with a body is refused at its head, which ends the connection.
 */
static enum MHD_Result take_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
	const char *version, const char *body, size_t *body_bytes, void **state)
{
	static int has_begun;
	struct stat_http *http = arg;
	enum MHD_Result result;

	if (!*state && !has_body(connection)) {
		*state = &has_begun;
		return MHD_YES;
	}
	stat_clients_set(&http->clients, client_of(connection), STAT_CLIENT_WAITS);
	result = answer(http, connection, url, method);
	stat_clients_set(&http->clients, client_of(connection), STAT_CLIENT_READS);
	return result;
}

static void end_request(void *arg, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode why)
{
	struct stat_http *http = arg;

	stat_clients_set(&http->clients, client_of(connection), STAT_CLIENT_ASKS);
}

/* Called when a connection has been accepted, and before it is closed; its socket is open both times. */
static void take_connection(
	void *arg, struct MHD_Connection *connection, void **context, enum MHD_ConnectionNotificationCode what)
{
	struct stat_http *http = arg;
	const union MHD_ConnectionInfo *fd, *address;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		stat_clients_remove(&http->clients, *context);
		return;
	}
	fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	address = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	if (fd && address)
		*context = stat_clients_add(&http->clients, fd->connect_fd, address->client_addr);
}

static bool is_loopback(int fd)
{
	struct sockaddr_storage bound = {0};
	socklen_t length = sizeof(bound);
	const struct sockaddr_in *four = (const struct sockaddr_in *)&bound;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&bound;

	if (getsockname(fd, (struct sockaddr *)&bound, &length))
		return false;
	if (bound.ss_family == AF_INET)
		return ntohl(four->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return bound.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

struct stat_http *stat_http_start(const struct stat_http_settings *settings)
{
	struct stat_http *http = calloc(1, sizeof(*http));

	if (!http)
		return NULL;
	http->settings = *settings;
	http->is_loopback = is_loopback(settings->fd);
	stat_clients_init(&http->clients, settings->time_ns, settings->now_ns);
	http->daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL,
		0, NULL, NULL, take_request, http, MHD_OPTION_LISTEN_SOCKET, settings->fd, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)STAT_CLIENTS_MAX + SPARE_CONNECTIONS, MHD_OPTION_NOTIFY_CONNECTION, take_connection, http,
		MHD_OPTION_NOTIFY_COMPLETED, end_request, http, MHD_OPTION_CONNECTION_TIMEOUT, settings->idle_seconds,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_END);
	if (http->daemon)
		return http;
	free(http);
	return NULL;
}

void stat_http_tick(struct stat_http *http)
{
	stat_clients_end_late(&http->clients);
}

void stat_http_stop(struct stat_http *http)
{
	MHD_stop_daemon(http->daemon);
	free(http);
}
