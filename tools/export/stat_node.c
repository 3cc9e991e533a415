/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Each process has a mark: its counters as they were last collected. A mark stays for as long as the page does. If
 * neither page nor process is found, it stays for MARK_KEPT_S more: a directory may be unreadable for a moment, and a
 * page without a mark would be collected again from 0.
 *
 * The file is written before any page is removed, and replaced as a whole. So nothing is lost or collected twice if the
 * exporter is killed.
 */

#include "stat_node.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "stat_pages.h"

#define SCHEMA "gpupool.node-state/1"

enum {
	ENDED_KEPT_S = 60,
	MARK_KEPT_S = 3600,
	USER_MARKS_MAX = 4096, /* of a user; more processes at a time are not counted */
	USERS_MAX = 1024,
	STATE_PATH_MAX = 4096,
};

/* No honest process counts as much between two collections. */
#define DELTA_MAX (UINT64_C(1) << 56)

struct mark {
	uint64_t device, inode; /* of the directory */
	uint64_t uid, pid, start_ticks;
	uint64_t seen_s, ended_s; /* of the wall clock; ended_s: when the process was first found to have ended, or 0 */
	struct stat_node_counters last;
};

struct stat_node {
	const char *state;
	bool is_new; /* before the first collection: what is found then has happened before */
	bool is_write_failed;
	struct stat_node_counters counters;
	struct stat_node_user users[USERS_MAX];
	size_t n_users;
	struct mark *marks;
	size_t n_marks;
};

static uint64_t now_s(void)
{
	return (uint64_t)time(NULL);
}

static struct mark *find_mark(struct stat_node *node, const struct mark *key)
{
	for (size_t i = 0; i < node->n_marks; i++) {
		struct mark *mark = &node->marks[i];

		if (mark->start_ticks == key->start_ticks && mark->pid == key->pid && mark->inode == key->inode &&
			mark->device == key->device)
			return mark;
	}
	return NULL;
}

static size_t count_marks(const struct stat_node *node, uint64_t uid)
{
	size_t n = 0;

	for (size_t i = 0; i < node->n_marks; i++)
		n += node->marks[i].uid == uid;
	return n;
}

/* The array grows by powers of two. */
static struct mark *add_mark(struct stat_node *node, const struct mark *mark)
{
	if ((node->n_marks & (node->n_marks - 1)) == 0)
		node->marks = stat_alloc(
			reallocarray(node->marks, node->n_marks ? 2 * node->n_marks : 1, sizeof(*node->marks)));
	node->marks[node->n_marks] = *mark;
	return &node->marks[node->n_marks++];
}

static void count_user(struct stat_node *node, uint64_t uid, uint64_t ooms)
{
	size_t i = 0;

	if (!ooms)
		return;
	while (i < node->n_users && node->users[i].uid != uid)
		i++;
	if (i == USERS_MAX)
		return;
	if (i == node->n_users)
		node->users[node->n_users++] = (struct stat_node_user){.uid = (uid_t)uid};
	node->users[i].ooms += ooms;
}

/* Returns by how much a counter has risen. A counter that fell is one of another program in the same process. */
static uint64_t delta_of(uint64_t now, uint64_t last, bool may_restart)
{
	uint64_t delta = now >= last ? now - last : (may_restart ? now : 0);

	return delta > DELTA_MAX ? 0 : delta;
}

/* may_restart: the counters are those of a page, which fall only if the page is another one. */
static void collect(
	struct stat_node *node, const struct mark *key, const struct stat_node_counters *now, bool may_restart)
{
	struct mark *mark = find_mark(node, key);

	if (!mark) {
		if (count_marks(node, key->uid) >= USER_MARKS_MAX)
			return;
		mark = add_mark(node, key);
		if (node->is_new)
			mark->last = *now;
		else
			node->counters.processes++;
	}
	mark->seen_s = now_s();
	count_user(node, key->uid, delta_of(now->ooms, mark->last.ooms, may_restart));
#define NODE(member, ...)                                                               \
	node->counters.member += delta_of(now->member, mark->last.member, may_restart); \
	if (may_restart || now->member > mark->last.member)                             \
		mark->last.member = now->member;
#include "node.def"
}

static void add_memory(struct stat_node_counters *sum, const struct gp_page_memory *memory)
{
#define NODE(member, ...) sum->member += memory->member;
#include "node.def"
}

static struct mark key_of(const struct stat_dir *dir, pid_t pid, uint64_t start_ticks)
{
	return (struct mark){.device = dir->device,
		.inode = dir->inode,
		.uid = dir->uid,
		.pid = (uint64_t)pid,
		.start_ticks = start_ticks};
}

static void collect_page(void *arg, struct stat_page *page)
{
	struct stat_node_counters now = {0};
	struct mark key = key_of(page->dir, page->pid, page->start_ticks), *mark;

	for (uint64_t i = 0; i < page->copy.figures.n_devices; i++)
		add_memory(&now, &page->copy.figures.devices[i].memory);
	add_memory(&now, &page->copy.figures.pinned);
	collect(arg, &key, &now, true);
	mark = find_mark(arg, &key);
	if (mark && !mark->ended_s && stat_page_has_ended(page))
		mark->ended_s = now_s();
}

static void add_answer(struct stat_node_counters *sum, const json_t *memory)
{
#define NODE(member, ...) sum->member += stat_reply_u64_or_0(memory, #member);
#include "node.def"
}

/* Collects from the answer of a process that has no page. */
static void collect_answer(struct stat_node *node, const struct stat_dir *dir, const struct stat_process *process)
{
	struct stat_node_counters now = {0};
	uint64_t start_ticks, seen = 0, index;
	const json_t *device;
	struct mark key;
	size_t i;
	pid_t pid;

	if (!process->reply || !gp_ctl_name_parse(process->name, &pid, &start_ticks))
		return;
	key = key_of(dir, pid, start_ticks);
	json_array_foreach(json_object_get(process->reply, "devices"), i, device)
		if (stat_reply_new_device(device, &seen, &index))
			add_answer(&now, device);
	add_answer(&now, json_object_get(process->reply, "pinned"));
	collect(node, &key, &now, false);
}

struct seen_pages {
	const struct stat_process **processes; /* that have a page */
	size_t n;
};

static void note_process(void *arg, struct stat_page *page)
{
	struct seen_pages *seen = arg;

	if (page->process)
		seen->processes[seen->n++] = page->process;
}

static bool has_page(const struct seen_pages *seen, const struct stat_process *process)
{
	for (size_t i = 0; i < seen->n; i++)
		if (seen->processes[i] == process)
			return true;
	return false;
}

static void collect_answers(struct stat_node *node, struct stat_survey *survey)
{
	struct seen_pages seen = {
		.processes = stat_alloc(calloc(survey->n_processes + 1, sizeof(struct stat_process *)))};

	stat_pages_each(survey, note_process, &seen);
	for (size_t i = 0; i < survey->n_processes; i++)
		if (!has_page(&seen, &survey->processes[i]))
			collect_answer(node, &survey->dirs[survey->processes[i].dir], &survey->processes[i]);
	free(seen.processes);
}

static void remove_page(void *arg, struct stat_page *page)
{
	struct mark key = key_of(page->dir, page->pid, page->start_ticks), *mark = find_mark(arg, &key);

	if (mark && mark->ended_s && now_s() - mark->ended_s >= ENDED_KEPT_S)
		(void)unlinkat(page->dir->fd, page->name, 0);
}

static void drop_old_marks(struct stat_node *node)
{
	uint64_t now = now_s();
	size_t n = 0;

	for (size_t i = 0; i < node->n_marks; i++)
		if (now - node->marks[i].seen_s < MARK_KEPT_S)
			node->marks[n++] = node->marks[i];
	node->n_marks = n;
}

static json_t *number(uint64_t value)
{
	return json_integer((json_int_t)(value & INT64_MAX));
}

static json_t *counters_json(const struct stat_node_counters *counters)
{
	json_t *object = stat_alloc(json_object());

	json_object_set_new(object, "processes", number(counters->processes));
#define NODE(member, ...) json_object_set_new(object, #member, number(counters->member));
#include "node.def"
	return object;
}

static struct stat_node_counters counters_of(const json_t *object)
{
	struct stat_node_counters counters = {.processes = stat_reply_u64_or_0(object, "processes")};

#define NODE(member, ...) counters.member = stat_reply_u64_or_0(object, #member);
#include "node.def"
	return counters;
}

#define MARK_MEMBERS(apply) \
	apply(device) apply(inode) apply(uid) apply(pid) apply(start_ticks) apply(seen_s) apply(ended_s)

static json_t *state_json(const struct stat_node *node)
{
	json_t *state = stat_alloc(json_object()), *users = stat_alloc(json_array()), *marks = stat_alloc(json_array());

	for (size_t i = 0; i < node->n_users; i++) {
		json_t *user = stat_alloc(json_object());

		json_object_set_new(user, "uid", number(node->users[i].uid));
		json_object_set_new(user, "ooms", number(node->users[i].ooms));
		json_array_append_new(users, user);
	}
	for (size_t i = 0; i < node->n_marks; i++) {
		const struct mark *mark = &node->marks[i];
		json_t *object = counters_json(&mark->last);

#define SET(member) json_object_set_new(object, #member, number(mark->member));
		MARK_MEMBERS(SET)
		json_array_append_new(marks, object);
	}
	json_object_set_new(state, "schema", json_string(SCHEMA));
	json_object_set_new(state, "counters", counters_json(&node->counters));
	json_object_set_new(state, "users", users);
	json_object_set_new(state, "processes", marks);
	return state;
}

/* Replaces the file. A failure is reported once: the counters go on in memory. Returns false after a failure. */
static bool write_state(struct stat_node *node)
{
	char temporary[STATE_PATH_MAX];
	json_t *state;
	int error = 0;

	if (!node->state)
		return true;
	state = state_json(node);
	snprintf(temporary, sizeof(temporary), "%s.new", node->state);
	if (json_dump_file(state, temporary, JSON_COMPACT) || rename(temporary, node->state))
		error = errno ? errno : EIO;
	json_decref(state);
	if (error && !node->is_write_failed)
		stat_error("check --state; the counters of the node go on in memory.", "%s cannot be written: %s.",
			node->state, strerror(error));
	node->is_write_failed = error;
	return !error;
}

static void read_users(struct stat_node *node, const json_t *users)
{
	const json_t *user;
	size_t i;

	json_array_foreach(users, i, user)
		count_user(node, stat_reply_u64_or_0(user, "uid"), stat_reply_u64_or_0(user, "ooms"));
}

static void read_marks(struct stat_node *node, const json_t *marks)
{
	const json_t *object;
	size_t i;

	json_array_foreach(marks, i, object) {
		struct mark mark = {.last = counters_of(object)};

#define GET(member) mark.member = stat_reply_u64_or_0(object, #member);
		MARK_MEMBERS(GET)
		add_mark(node, &mark);
	}
}

/* Returns false after a message. A file that is missing is made later. */
static bool read_state(struct stat_node *node)
{
	json_error_t error;
	json_t *state;
	bool is_good;

	if (strlen(node->state) + sizeof(".new") > STATE_PATH_MAX) {
		stat_error(NULL, "--state: the name is too long.");
		return false;
	}
	if (access(node->state, F_OK) != 0 && errno == ENOENT)
		return true;
	state = json_load_file(node->state, 0, &error);
	is_good = state && strcmp(stat_reply_text(state, "schema"), SCHEMA) == 0;
	if (is_good) {
		node->is_new = false;
		node->counters = counters_of(json_object_get(state, "counters"));
		read_users(node, json_object_get(state, "users"));
		read_marks(node, json_object_get(state, "processes"));
	} else {
		stat_error("name another file, or remove this one: the counters then begin at 0.",
			"%s cannot be read, or is not a file of --state.", node->state);
	}
	json_decref(state);
	return is_good;
}

struct stat_node *stat_node_new(const char *state)
{
	struct stat_node *node = stat_alloc(calloc(1, sizeof(*node)));

	node->state = state;
	node->is_new = true;
	if (!state || read_state(node))
		return node;
	stat_node_free(node);
	return NULL;
}

void stat_node_free(struct stat_node *node)
{
	if (node)
		free(node->marks);
	free(node);
}

void stat_node_collect(struct stat_node *node, struct stat_survey *survey)
{
	stat_pages_each(survey, collect_page, node);
	collect_answers(node, survey);
	node->is_new = false;
	drop_old_marks(node);
	if (write_state(node))
		stat_pages_each(survey, remove_page, node);
}

const struct stat_node_counters *stat_node_counters(const struct stat_node *node)
{
	return &node->counters;
}

const struct stat_node_user *stat_node_users(const struct stat_node *node, size_t *ret_n)
{
	*ret_n = node->n_users;
	return node->users;
}
