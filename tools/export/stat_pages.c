/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/uuid.h"
#include "tools/ask/stat_dirs.h"

enum { ENTRIES_MAX = 16384 }; /* of a directory */

static struct stat_process *find_process(struct stat_survey *survey, size_t dir, pid_t pid, uint64_t start_ticks)
{
	char name[GP_CTL_NAME_MAX];

	gp_ctl_name_format(name, pid, start_ticks);
	for (size_t i = 0; i < survey->n_processes; i++)
		if (survey->processes[i].dir == dir && strcmp(survey->processes[i].name, name) == 0)
			return &survey->processes[i];
	return NULL;
}

static void read_page(struct stat_survey *survey, struct stat_dir *dir, const char *name, stat_page_fn fn, void *arg)
{
	struct stat_page page = {.dir = dir, .name = name};

	if (!gp_page_name_parse(name, &page.pid, &page.start_ticks) ||
		gp_page_read(dir->fd, name, dir->uid, &page.copy) != 0)
		return;
	page.process = find_process(survey, (size_t)(dir - survey->dirs), page.pid, page.start_ticks);
	fn(arg, &page);
}

static void read_dir(struct stat_survey *survey, struct stat_dir *dir, stat_page_fn fn, void *arg)
{
	int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	size_t n_max = dir->uid == geteuid() ? SIZE_MAX : GP_PAGE_FILES_MAX;
	const struct dirent *entry;
	uint64_t start_ticks;
	pid_t pid;

	if (!entries) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (size_t i = 0; i < ENTRIES_MAX && n_max && (entry = readdir(entries)); i++)
		if (gp_page_name_parse(entry->d_name, &pid, &start_ticks)) {
			read_page(survey, dir, entry->d_name, fn, arg);
			n_max--;
		}
	closedir(entries);
}

void stat_pages_each(struct stat_survey *survey, stat_page_fn fn, void *arg)
{
	for (size_t i = 0; i < survey->n_dirs; i++) {
		struct stat_dir *dir = &survey->dirs[i];

		if (dir->is_abstract || stat_dir_open(dir) != 0)
			continue;
		read_dir(survey, dir, fn, arg);
		close(dir->fd);
		dir->fd = -1;
	}
}

bool stat_page_has_ended(const struct stat_page *page)
{
	struct ctl_client client = {.dir_fd = page->dir->fd, .uid = page->dir->uid};
	char socket[GP_CTL_NAME_MAX], state;
	uint64_t start_ticks;
	int error;

	if (page->process ||
		(!gp_ctl_process_stat(page->pid, &start_ticks, &state) && start_ticks == page->start_ticks))
		return false;
	gp_ctl_name_format(socket, page->pid, page->start_ticks);
	client.name = socket;
	error = ctl_client_open(&client);
	ctl_client_close(&client);
	return error == -ENOENT || error == -ECONNREFUSED;
}

static void set_number(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)(value > INT64_MAX ? INT64_MAX : value)));
}

static json_t *memory_json(const struct gp_page_memory *memory)
{
	json_t *object = stat_alloc(json_object());

#define PAGE_STAT(member, kind) set_number(object, #member, memory->member);
#include "common/counter_page.def"
	set_number(object, "ooms", memory->ooms);
	set_number(object, "unpooled_bytes", memory->unpooled_bytes);
	set_number(object, "asleep_bytes", memory->asleep_bytes);
	set_number(object, "yields", memory->yields);
	set_number(object, "yielded_bytes", memory->yielded_bytes);
	if (memory->limit_bytes != UINT64_MAX)
		set_number(object, "limit_bytes", memory->limit_bytes);
	return object;
}

/* Makes an answer to "status", with the members that are on the page. */
static json_t *make_answer(const struct gp_page_copy *copy)
{
	json_t *answer = stat_alloc(json_object()), *devices = stat_alloc(json_array());
	char text[GP_PAGE_TEXT * 2];

	json_object_set_new(answer, "schema", json_string("gpupool.status/2"));
	stat_clean(text, sizeof(text), copy->header.command);
	json_object_set_new(answer, "command", json_string(text));
	stat_clean(text, sizeof(text), copy->header.pool);
	json_object_set_new(answer, "pool", json_string(text));
	stat_clean(text, sizeof(text), copy->header.gpupool_version);
	json_object_set_new(answer, "version", json_string(text));
	for (uint64_t i = 0; i < copy->figures.n_devices; i++) {
		json_t *device = memory_json(&copy->figures.devices[i].memory);

		set_number(device, "index", copy->figures.devices[i].index);
		if (copy->figures.devices[i].has_uuid) {
			(void)gp_uuid_format(text, copy->figures.devices[i].uuid, GP_UUID_SHOWN);
			json_object_set_new(device, "uuid", json_string(text));
		}
		json_array_append_new(devices, device);
	}
	json_object_set_new(answer, "devices", devices);
	json_object_set_new(answer, "pinned", memory_json(&copy->figures.pinned));
	return answer;
}

static void complete(void *unused, struct stat_page *page)
{
	struct stat_process *process = page->process;

	if (process && !process->reply && !process->before)
		process->before = make_answer(&page->copy);
}

void stat_pages_complete(struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_processes; i++)
		if (!survey->processes[i].reply && !survey->processes[i].before) {
			stat_pages_each(survey, complete, NULL);
			return;
		}
}
