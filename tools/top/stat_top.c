/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat top: asks, draws, and waits for keys. Signals are unblocked only while it waits, so that they never
 * interrupt drawing, and the terminal is restored in any case when the command ends.
 */

#include "stat_top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "top_view.h"

enum { INTERVAL_MS = 1000, RECLAIM_ANSWER_MAX = 1 << 16 };

static const double intervals_s[] = {0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60};
enum { N_INTERVALS = sizeof(intervals_s) / sizeof(intervals_s[0]) };

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

static volatile sig_atomic_t ended_by, is_resized, is_continued, is_to_stop;

enum typing { NOTHING, FILTER, CONFIRM };

struct top {
	const struct stat_options *options;
	struct top_screen *screen;
	struct top_model model;
	struct top_view view;
	enum typing typing;
	pid_t confirm_pid; /* the process to confirm a change of, even if rows move meanwhile */
	char before[TOP_FILTER_MAX], prompt[128];
	sigset_t wait_mask; /* the signal mask while waiting */
	int64_t next_ns;
	uint64_t n_asked;
	bool is_over;
};

static void catch (int signal)
{
	if (signal == SIGWINCH)
		is_resized = 1;
	else if (signal == SIGCONT)
		is_continued = 1;
	else if (signal == SIGTSTP)
		is_to_stop = 1;
	else
		ended_by = signal;
}

static void catch_signals(struct top *top)
{
	struct sigaction action = {.sa_handler = catch};
	sigset_t caught;

	sigemptyset(&caught);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaddset(&caught, ends[i]);
	sigaddset(&caught, SIGWINCH);
	sigaddset(&caught, SIGCONT);
	sigaddset(&caught, SIGTSTP);
	sigprocmask(SIG_BLOCK, &caught, &top->wait_mask);
	for (int i = 1; i < NSIG; i++)
		if (sigismember(&caught, i) == 1) {
			sigaction(i, &action, NULL);
			sigdelset(&top->wait_mask, i);
		}
}

/* Raises a signal with its default action, so that the parent process sees the usual status. */
static void raise_default(int signal)
{
	struct sigaction usual = {.sa_handler = SIG_DFL}, own;
	sigset_t one, before;

	sigemptyset(&one);
	sigaddset(&one, signal);
	sigaction(signal, &usual, &own);
	raise(signal);
	sigprocmask(SIG_UNBLOCK, &one, &before);
	sigprocmask(SIG_SETMASK, &before, NULL);
	sigaction(signal, &own, NULL);
}

static void handle_signals(struct top *top)
{
	if (is_to_stop) {
		is_to_stop = 0;
		top_screen_leave(top->screen);
		raise_default(SIGTSTP);
		is_continued = 1;
	}
	if (is_continued) {
		is_continued = 0;
		top_screen_enter(top->screen);
	}
	if (is_resized) {
		is_resized = 0;
		top_screen_resize(top->screen);
	}
}

static void ask(struct top *top)
{
	int64_t now_ns = ctl_client_now_ns();

	if (now_ns < top->next_ns || top->view.is_paused)
		return;
	top->next_ns = now_ns + (int64_t)(top->view.interval_s * 1e9);
	top_model_ask(&top->model, top->options);
	if (top->view.detail)
		top_detail_ask(top->view.detail, &top->model, top->options);
	top->n_asked++;
}

/* Has a process give cached memory back, and sets the message: how much it was, or why it failed. */
static void reclaim(struct top *top, pid_t pid)
{
	struct stat_question question = {
		.request = "reclaim\n",
		.schema = "reclaim",
		.max_bytes = RECLAIM_ANSWER_MAX,
		.timeout_ms = top->options->timeout_ms,
		.pids = &pid,
		.n_pids = 1,
	};
	struct stat_survey survey;
	const struct stat_process *process;
	char bytes[STAT_TEXT_MAX], text[STAT_ERROR_MAX + 64];

	stat_survey_run(&survey, &question);
	process = stat_survey_find(&survey, pid);
	if (process && process->reply) {
		stat_bytes(bytes, stat_reply_u64_or_0(process->reply, "released_bytes"));
		snprintf(text, sizeof(text), "pid %d gave %s back to the driver", (int)pid, bytes);
	} else {
		snprintf(text, sizeof(text), "pid %d %s", (int)pid, process ? process->error : "has ended.");
	}
	stat_clean(top->view.message, sizeof(top->view.message), text);
	stat_survey_deinit(&survey);
	top->next_ns = 0;
}

static const struct top_row *selected(const struct top *top)
{
	if (top->view.detail)
		return top_model_find(&top->model, top_detail_pid(top->view.detail));
	return top->model.n_shown ? top->model.shown[top_view_at(&top->view, &top->model)] : NULL;
}

static void type_filter(struct top *top, int key)
{
	char *filter = top->model.filter;
	size_t length = strlen(filter);

	if (key == TOP_KEY_ESCAPE)
		strcpy(filter, top->before);
	if (key == TOP_KEY_ESCAPE || key == TOP_KEY_ENTER)
		top->typing = NOTHING;
	else if (key == TOP_KEY_BACKSPACE && length)
		filter[length - 1] = '\0';
	else if (key >= ' ' && key < 0x7f && length + 1 < TOP_FILTER_MAX)
		memcpy(filter + length, (char[]){(char)key, '\0'}, 2);
	top_model_arrange(&top->model);
}

static void type_answer(struct top *top, int key)
{
	const struct top_row *row = top_model_find(&top->model, top->confirm_pid);

	top->typing = NOTHING;
	if (key != 'y' && key != 'Y')
		snprintf(top->view.message, sizeof(top->view.message), "nothing was changed");
	else if (row)
		reclaim(top, row->pid);
}

/* Sets the line at the bottom, while the user types a filter or confirms a change. */
static void set_prompt(struct top *top)
{
	const struct top_row *row = top_model_find(&top->model, top->confirm_pid);
	char bytes[STAT_TEXT_MAX];

	top->view.prompt = NULL;
	if (top->typing == FILTER) {
		snprintf(top->prompt, sizeof(top->prompt), "filter: %s_   Enter: keep  Esc: undo", top->model.filter);
		top->view.prompt = top->prompt;
	} else if (top->typing == CONFIRM && row) {
		stat_bytes(bytes, row->cached_bytes);
		snprintf(top->prompt, sizeof(top->prompt), "pid %d: give %s of cached memory back to the driver? y/n",
			(int)row->pid, bytes);
		top->view.prompt = top->prompt;
	} else {
		top->typing = NOTHING;
	}
}

static void begin_reclaim(struct top *top)
{
	const struct top_row *row = selected(top);

	if (!top->options->may_change) {
		snprintf(top->view.message, sizeof(top->view.message),
			"to change a process, start top with --allow-changes");
	} else if (row) {
		top->confirm_pid = row->pid;
		top->typing = CONFIRM;
	}
}

static void change_interval(struct top *top, int step)
{
	int i = 0;

	while (i + 1 < N_INTERVALS && intervals_s[i] < top->view.interval_s)
		i++;
	i += step;
	if (i >= 0 && i < N_INTERVALS)
		top->view.interval_s = intervals_s[i];
	top->next_ns = 0;
}

static void change_sort(struct top *top, int step)
{
	top->model.sort = (enum top_sort)(((int)top->model.sort + step + TOP_N_SORTS) % TOP_N_SORTS);
	top_model_arrange(&top->model);
}

static void move_to(struct top *top, int64_t at)
{
	int64_t n = (int64_t)top->model.n_shown;

	at = at < n ? at : n - 1;
	if (n)
		top->view.selected = top->model.shown[at < 0 ? 0 : at]->pid;
}

static void open_detail(struct top *top)
{
	const struct top_row *row = selected(top);

	if (!row || top->view.detail)
		return;
	top->view.detail = top_detail_new(row->pid);
	top_detail_ask(top->view.detail, &top->model, top->options);
}

static void close_detail(struct top *top)
{
	top_detail_free(top->view.detail);
	top->view.detail = NULL;
}

/* Handles the keys that mean the same everywhere. Returns false for other keys. */
static bool take_common_key(struct top *top, int key)
{
	struct top_view *view = &top->view;

	if (key == 'q' || key == TOP_KEY_CLOSED)
		top->is_over = true;
	else if (key == '?' || key == 'h' || key == TOP_KEY_HELP)
		view->wants_help = true;
	else if (key == 'p' || key == ' ')
		view->is_paused = !view->is_paused;
	else if (key == '+' || key == '=')
		change_interval(top, 1);
	else if (key == '-')
		change_interval(top, -1);
	else if (key == 'R')
		begin_reclaim(top);
	else
		return false;
	return true;
}

static void take_list_key(struct top *top, int key)
{
	int64_t at = (int64_t)top_view_at(&top->view, &top->model);

	if (key == TOP_KEY_UP || key == TOP_KEY_DOWN)
		move_to(top, at + (key == TOP_KEY_UP ? -1 : 1));
	else if (key == TOP_KEY_PAGE_UP || key == TOP_KEY_PAGE_DOWN)
		move_to(top, at + (key == TOP_KEY_PAGE_UP ? -10 : 10));
	else if (key == TOP_KEY_HOME || key == TOP_KEY_END)
		move_to(top, key == TOP_KEY_HOME ? 0 : INT64_MAX);
	else if (key == TOP_KEY_ENTER || key == TOP_KEY_RIGHT)
		open_detail(top);
	else if (key == 's' || key == TOP_KEY_SORT)
		change_sort(top, 1);
	else if (key == 'S')
		change_sort(top, -1);
	else if (key == 'd')
		top->view.device++;
	else if (key == 'o') {
		top->model.is_reversed = !top->model.is_reversed;
		top_model_arrange(&top->model);
	} else if (key == '/' || key == TOP_KEY_FILTER) {
		strcpy(top->before, top->model.filter);
		top->typing = FILTER;
	} else if (key == TOP_KEY_ESCAPE) {
		top->model.filter[0] = '\0';
		top_model_arrange(&top->model);
	}
}

static void take_key(struct top *top, int key)
{
	struct top_view *view = &top->view;
	bool is_back = key == TOP_KEY_ESCAPE || key == TOP_KEY_LEFT || key == TOP_KEY_BACKSPACE;

	view->message[0] = '\0';
	if (key == TOP_KEY_CLOSED)
		top->is_over = true;
	else if (top->typing == FILTER)
		type_filter(top, key);
	else if (top->typing == CONFIRM)
		type_answer(top, key);
	else if (view->wants_help)
		view->wants_help = false;
	else if (take_common_key(top, key))
		return;
	else if (!view->detail)
		take_list_key(top, key);
	else if (is_back)
		close_detail(top);
	else if (top_detail_key(view->detail, key))
		top_detail_ask(view->detail, &top->model, top->options);
}

static void wait_for_key(struct top *top)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	int64_t left_ns = top->view.is_paused ? INT64_MAX : top->next_ns - ctl_client_now_ns();
	struct timespec left = {.tv_sec = left_ns / 1000000000, .tv_nsec = left_ns % 1000000000};

	if (left_ns < 0)
		left = (struct timespec){0};
	ppoll(&in, 1, top->view.is_paused ? NULL : &left, &top->wait_mask);
	for (int key; !top->is_over && !ended_by && (key = top_screen_key(top->screen)) != 0;)
		take_key(top, key);
}

static void run(struct top *top)
{
	while (!top->is_over && !ended_by) {
		handle_signals(top);
		ask(top);
		set_prompt(top);
		top_view_draw(top->screen, &top->view, &top->model);
		if (top->options->count && top->n_asked >= top->options->count)
			break;
		wait_for_key(top);
	}
}

enum stat_exit stat_top_run(const struct stat_command *command, const struct stat_options *options)
{
	struct top top = {.options = options};

	catch_signals(&top);
	top.screen = top_screen_open(options);
	if (!top.screen)
		return STAT_USAGE;
	top.view.interval_s = (options->watch_ms ? options->watch_ms : INTERVAL_MS) / 1000.0;
	top_model_init(&top.model);
	run(&top);
	top_screen_close(top.screen);
	top_detail_free(top.view.detail);
	top_model_deinit(&top.model);
	if (ended_by)
		raise_default(ended_by);
	return STAT_OK;
}
