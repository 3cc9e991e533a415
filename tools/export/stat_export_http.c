/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Serves the metrics as a page of stat_http.c. One survey is repeated: a process that does not answer is not waited for
 * again, and its last answer is shown. Requests that arrive while the processes are asked share the next survey.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/broker.h"
#include "tools/ask/ctl_client.h"
#include "stat_export.h"
#include "stat_http.h"
#include "stat_listen.h"
#include "stat_metrics.h"
#include "stat_yield.h"

#define DEFAULT_ADDRESS     "127.0.0.1:9791"
#define CLIENT_TIME_NS      UINT64_C(30000000000)
#define CLIENT_IDLE_SECONDS 10

struct exporter {
	const struct stat_options *options;
	pthread_mutex_t mutex; /* held while processes are asked: a survey is not thread-safe */
	struct stat_survey survey;
	struct stat_node *node;
	bool is_all;
	int64_t begun_ns; /* when the survey last began; 0: never */
};

/* Asks the processes, unless another request has done so since this one arrived. The caller holds the mutex. */
static void ask(struct exporter *exporter, int64_t arrived_ns)
{
	struct stat_question question = stat_metrics_question(exporter->options);

	if (exporter->begun_ns > arrived_ns)
		return;
	exporter->begun_ns = ctl_client_now_ns();
	exporter->survey.searched_ns = 0; /* a process that has started since the last scrape must be found */
	stat_survey_again(&exporter->survey, &question);
	stat_node_collect(exporter->node, &exporter->survey);
}

static char *make_metrics(struct exporter *exporter, enum stat_metrics_format format, size_t *ret_length)
{
	struct stat_metrics_form form = {format, exporter->is_all};
	int64_t arrived_ns = ctl_client_now_ns();
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_length);

	if (!out)
		return NULL;
	pthread_mutex_lock(&exporter->mutex);
	ask(exporter, arrived_ns);
	stat_metrics_write(out, &exporter->survey, exporter->node, form);
	pthread_mutex_unlock(&exporter->mutex);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

static struct stat_page make_page(void *arg, const char *accepted)
{
	bool is_openmetrics = accepted && strstr(accepted, "application/openmetrics-text");
	struct stat_page page = {.type = is_openmetrics ? STAT_METRICS_TYPE_OPENMETRICS : STAT_METRICS_TYPE_PROMETHEUS};

	page.text =
		make_metrics(arg, is_openmetrics ? STAT_METRICS_OPENMETRICS : STAT_METRICS_PROMETHEUS, &page.length);
	return page;
}

static uint64_t now_ns(void)
{
	return (uint64_t)ctl_client_now_ns();
}

static void serve_until_signal(struct stat_http *http, const sigset_t *end_signals)
{
	const struct timespec second = {.tv_sec = 1};

	while (sigtimedwait(end_signals, NULL, &second) < 0)
		stat_http_tick(http);
}

static void close_exporter(struct exporter *exporter)
{
	stat_survey_deinit(&exporter->survey);
	stat_node_free(exporter->node);
}

/* Serves until a signal ends it. Takes over the socket. */
static enum stat_exit serve(struct exporter *exporter, const struct stat_http_settings *settings, const char *address)
{
	struct stat_yield *yield = NULL;
	sigset_t end_signals;
	struct stat_http *http;
	enum stat_exit result;

	sigemptyset(&end_signals);
	sigaddset(&end_signals, SIGINT);
	sigaddset(&end_signals, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &end_signals, NULL); /* all threads inherit it */
	result = exporter->options->passes_yields ? stat_yield_start(&yield) : STAT_OK;
	if (result != STAT_OK) {
		close(settings->fd);
		return result;
	}
	http = stat_http_start(settings);
	if (!http) {
		stat_error(NULL, "the HTTP server could not be started.");
		stat_yield_stop(yield);
		return STAT_FAILED;
	}
	printf("http://%s/metrics\n", address);
	if (yield)
		puts(GP_BROKER_DIR "/" GP_BROKER_NAME);
	fflush(stdout);
	serve_until_signal(http, &end_signals);
	stat_http_stop(http);
	stat_yield_stop(yield);
	return STAT_OK;
}

enum stat_exit stat_export_run(const struct stat_command *command, const struct stat_options *options)
{
	struct exporter exporter = {.options = options, .mutex = PTHREAD_MUTEX_INITIALIZER};
	struct stat_http_settings settings = {
		.path = "/metrics",
		.index = "gpupool-stat " GPUPOOL_VERSION ": metrics are at /metrics\n",
		.make = make_page,
		.arg = &exporter,
		.time_ns = CLIENT_TIME_NS,
		.now_ns = now_ns,
		.idle_seconds = CLIENT_IDLE_SECONDS,
	};
	char address[STAT_ADDRESS_MAX];
	struct stat_metrics_form form;
	enum stat_exit result;

	if (!stat_metrics_choose(options, &form))
		return STAT_USAGE;
	result = options->passes_yields ? stat_yield_check() : STAT_OK;
	if (result != STAT_OK)
		return result;
	exporter.is_all = form.is_all;
	exporter.node = stat_node_new(options->state);
	if (!exporter.node)
		return STAT_FAILED;
	result = stat_listen(options->listen ? options->listen : DEFAULT_ADDRESS, &settings.fd, address);
	if (result != STAT_OK) {
		stat_node_free(exporter.node);
		return result;
	}
	ask(&exporter, 0); /* errors until now must not count at the first scrape */
	result = serve(&exporter, &settings, address);
	close_exporter(&exporter);
	return result;
}
