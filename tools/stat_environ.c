/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_environ.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stat_say.h"

enum { ENVIRON_MAX = 1 << 20, VALUE_MAX = 64 };

char *stat_environ_read(pid_t pid)
{
	char path[32], *text;
	size_t length = 0;
	ssize_t n = 1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	text = stat_alloc(malloc(ENVIRON_MAX + 2));
	while (length < ENVIRON_MAX && (n = read(fd, text + length, ENVIRON_MAX - length)) > 0)
		length += (size_t)n;
	close(fd);
	text[length] = text[length + 1] = '\0';
	return text;
}

const char *stat_environ_find(const char *variables, const char *name)
{
	size_t length = strlen(name);

	for (; *variables; variables += strlen(variables) + 1)
		if (!strncmp(variables, name, length) && variables[length] == '=')
			return variables + length + 1;
	return NULL;
}

/* Which variables tell; of those for one label the first that is set. */
static const struct {
	const char *label, *variable;
	const char *beside; /* counts only if this is set, too */
} sources[] = {
	{"job", "SLURM_JOB_ID", NULL},
	{"job", "PBS_JOBID", NULL},
	{"job", "LSB_JOBID", NULL},
	{"job", "JOB_ID", "SGE_ROOT"},
	{"rank", "OMPI_COMM_WORLD_RANK", NULL},
	{"rank", "PMIX_RANK", NULL},
	{"rank", "PMI_RANK", NULL},
	{"rank", "SLURM_PROCID", NULL},
	{"rank", "RANK", "WORLD_SIZE"},
	{"pod", "POD_NAME", NULL},
	{"pod", "HOSTNAME", "KUBERNETES_SERVICE_HOST"},
	{"namespace", "POD_NAMESPACE", NULL},
};

/* Seen from another container its number may be somebody else's here. */
static bool is_itself(const struct stat_process *process)
{
	uint64_t start_ticks;
	char state;

	return gp_ctl_process_stat(process->pid, &start_ticks, &state) == 0 && start_ticks == process->start_ticks;
}

void stat_environ_each_label(const struct stat_process *process, stat_environ_label_fn fn, void *arg)
{
	char *variables = is_itself(process) ? stat_environ_read(process->pid) : NULL, clean[VALUE_MAX];
	const char *last = "";

	for (size_t i = 0; variables && i < sizeof(sources) / sizeof(sources[0]); i++) {
		const char *value = stat_environ_find(variables, sources[i].variable);
		const char *beside = sources[i].beside;

		if (!value || !*value || !strcmp(last, sources[i].label) ||
			(beside && !stat_environ_find(variables, beside)))
			continue;
		last = sources[i].label;
		stat_clean(clean, sizeof(clean), value);
		fn(arg, last, clean);
	}
	free(variables);
}

struct text {
	char *text;
	size_t size, length;
};

static void add_text(void *arg, const char *label, const char *value)
{
	struct text *text = arg;

	if (text->length < text->size)
		text->length += (size_t)snprintf(text->text + text->length, text->size - text->length, "%s%s %s",
			text->length ? " " : "", label, value);
}

void stat_environ_labels(char *text, size_t size, const struct stat_process *process)
{
	struct text labels = {text, size, 0};
	char *cut = stat_alloc(malloc(size));

	text[0] = '\0';
	stat_environ_each_label(process, add_text, &labels);
	strcpy(cut, text);
	stat_clean(text, size, cut); /* it may have been cut within a character */
	free(cut);
}

static void add_member(void *arg, const char *label, const char *value)
{
	json_object_set_new(arg, label, json_string(value));
}

json_t *stat_environ_labels_json(const struct stat_process *process)
{
	json_t *labels = stat_alloc(json_object());

	stat_environ_each_label(process, add_member, labels);
	return labels;
}
