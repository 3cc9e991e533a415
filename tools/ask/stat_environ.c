/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_environ.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/job.h"
#include "tools/text/stat_say.h"

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

/* Returns false if the pid means another process here, as it may for a process of another container. */
static bool is_same_process(const struct stat_process *process)
{
	uint64_t start_ticks;
	char state;

	return gp_ctl_process_stat(process->pid, &start_ticks, &state) == 0 && start_ticks == process->start_ticks;
}

static const char *find_variable(const void *variables, const char *name)
{
	return stat_environ_find(variables, name);
}

void stat_environ_each_label(const struct stat_process *process, stat_environ_label_fn fn, void *arg)
{
	char *variables = is_same_process(process) ? stat_environ_read(process->pid) : NULL, clean[VALUE_MAX];

	for (size_t i = 0; variables && gp_job_labels[i]; i++) {
		const char *value = gp_job_value(gp_job_labels[i], find_variable, variables);

		if (!value)
			continue;
		stat_clean(clean, sizeof(clean), value);
		fn(arg, gp_job_labels[i], clean);
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
