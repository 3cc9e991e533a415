/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * libmicrohttpd gives each connection a thread of its own, so that who reads slowly, or says nothing, holds up only
 * itself, and for a bounded time; what asks the processes is one at a time.
 */

#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stat_export.h"
#include "stat_listen.h"
#include "stat_metrics.h"

enum { CONNECTIONS_MAX = 64, CONNECTIONS_OF_ONE_MAX = 32, IDLE_SECONDS = 10, CONNECTION_BYTES = 16 << 10 };

#define DEFAULT_ADDRESS "127.0.0.1:9791"

static const char index_text[] = "gpupool-stat " GPUPOOL_VERSION ": metrics are at /metrics\n";
static const char unknown_text[] = "there is only /metrics\n";
static const char method_text[] = "only GET and HEAD are understood\n";
static const char memory_text[] = "there is not enough memory\n";

struct exporter {
	const struct stat_options *options;
	pthread_mutex_t mutex; /* asking processes is not made for several threads */
};

static enum MHD_Result send_and_drop(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response,
	const char *type)
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

static char *make_metrics(struct exporter *exporter, enum stat_metrics_format format, size_t *ret_length)
{
	struct stat_question question = stat_metrics_question(exporter->options);
	struct stat_survey survey;
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_length);

	if (!out)
		return NULL;
	pthread_mutex_lock(&exporter->mutex);
	stat_survey_run(&survey, &question);
	stat_metrics_write(out, &survey, format);
	stat_survey_deinit(&survey);
	pthread_mutex_unlock(&exporter->mutex);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

static enum MHD_Result send_metrics(struct exporter *exporter, struct MHD_Connection *connection)
{
	const char *accepted = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
	bool is_open = accepted && strstr(accepted, "application/openmetrics-text");
	size_t length;
	char *text = make_metrics(exporter, is_open ? STAT_METRICS_OPENMETRICS : STAT_METRICS_PROMETHEUS, &length);

	if (!text)
		return send_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE, memory_text);
	return send_and_drop(connection, MHD_HTTP_OK,
		MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE),
		is_open ? STAT_METRICS_TYPE_OPENMETRICS : STAT_METRICS_TYPE_PROMETHEUS);
}

/* Called once for the head of a request, for each part of its body, and at its end: only then is there an answer. */
static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
	const char *version, const char *body, size_t *body_bytes, void **state)
{
	static int has_begun;

	if (!*state) {
		*state = &has_begun;
		return MHD_YES;
	}
	if (*body_bytes) {
		*body_bytes = 0;
		return MHD_YES;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return send_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, method_text);
	if (strcmp(url, "/") == 0)
		return send_text(connection, MHD_HTTP_OK, index_text);
	if (strcmp(url, "/metrics") != 0)
		return send_text(connection, MHD_HTTP_NOT_FOUND, unknown_text);
	return send_metrics(arg, connection);
}

static struct MHD_Daemon *start(struct exporter *exporter, int fd)
{
	return MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL,
		NULL, answer, exporter, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)CONNECTIONS_MAX, MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)CONNECTIONS_OF_ONE_MAX,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)CONNECTION_BYTES, MHD_OPTION_END);
}

enum stat_exit stat_export_run(const struct stat_command *command, const struct stat_options *options)
{
	struct exporter exporter = {options, PTHREAD_MUTEX_INITIALIZER};
	char address[STAT_ADDRESS_MAX];
	struct MHD_Daemon *daemon;
	sigset_t ends;
	enum stat_exit result;
	int fd, signal_number;

	result = stat_listen(options->listen ? options->listen : DEFAULT_ADDRESS, &fd, address);
	if (result != STAT_OK)
		return result;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &ends, NULL); /* in the threads of the server, too */
	daemon = start(&exporter, fd);
	if (!daemon) {
		stat_error(NULL, "the HTTP server does not start.");
		return STAT_FAILED;
	}
	printf("http://%s/metrics\n", address);
	fflush(stdout);
	(void)sigwait(&ends, &signal_number);
	MHD_stop_daemon(daemon);
	return STAT_OK;
}
