/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The summary of a run: what gpupool did for a process, in at most ten lines.
 *
 * gpupool-run creates a page of memory for the processes that it starts, and names it in the variable
 * GP_SUMMARY_VARIABLE as "PID.FD.KEY": descriptor FD of process PID, whose page holds KEY. Each process that uses CUDA
 * takes a slot and keeps its figures there. The page needs no open descriptor in the process, and outlives it, whatever
 * ends it. Neither side trusts the other: the library checks that the page cannot shrink below it and has its layout,
 * and gpupool-run bounds every number that it reads.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_SUMMARY_VARIABLE "_GPUPOOL_RUN"

/* The version of the page. It changes with every change of the structures below. */
#define GP_SUMMARY_VERSION 1
#define GP_SUMMARY_MAGIC   UINT64_C(0x7972616d6d757370) /* "psummary" */

enum {
	GP_SUMMARY_SLOTS = 1024,
	GP_SUMMARY_LINES_MAX = 10,
	GP_SUMMARY_LINE_SIZE = 256,
	GP_SUMMARY_NAME_SIZE = 32,
	/* With fewer driver calls than this the time that they took says nothing about others. */
	GP_SUMMARY_COLD_MIN = 8,
};

enum gp_summary_stage {
	GP_SUMMARY_NONE,      /* the process has made no CUDA call */
	GP_SUMMARY_CUDA,      /* a CUDA call, but no allocation that gpupool serves */
	GP_SUMMARY_ALLOCATED, /* the figures are those of written_ns */
	GP_SUMMARY_FINAL,     /* the figures are those of the exit */
};

/* Numbers are uint64_t, so that the layout is the same for every compiler. */
struct gp_summary {
	uint64_t stage;
	uint64_t written_ns;              /* CLOCK_MONOTONIC */
	uint64_t allocations, hits;       /* of device and pinned memory; hits needed no memory from the driver */
	uint64_t calls_made, calls_saved; /* driver calls that allocate or free */
	uint64_t cold_allocs;             /* the allocations that saved_ns is estimated from */
	uint64_t saved_ns;      /* estimate: the hits, at the time of this process's fastest cold allocation */
	uint64_t ooms;          /* out-of-memory errors that reached the program */
	uint64_t is_vmm_better; /* 1: the pool type vmm would have served the last request that failed */
	uint64_t devices;       /* devices with memory from the pool */
	uint64_t device;        /* the device that peak_bytes and limit_bytes belong to */
	uint64_t peak_bytes, limit_bytes; /* memory taken from the driver; UINT64_MAX: no limit */
	uint64_t pinned_peak_bytes;
	char own_pool[GP_SUMMARY_NAME_SIZE]; /* a framework whose own pool stood in front of gpupool; "": none known */
};

/*
 * A slot has two copies, so that a process that is killed while it writes leaves a complete one. count is the number of
 * complete writes, and the newest copy is copies[count % 2]; 0: none yet.
 */
struct gp_summary_slot {
	_Atomic uint64_t pid;
	_Atomic uint64_t count;
	struct gp_summary copies[2];
};

struct gp_summary_page {
	uint64_t magic, version, bytes, key;
	_Atomic uint64_t n_claimed; /* processes that asked for a slot; more than GP_SUMMARY_SLOTS: the rest got none */
	struct gp_summary_slot slots[GP_SUMMARY_SLOTS];
};

/* Adds the figures of another process, or of the same process before an exec. Sums do not wrap. */
void gp_summary_add(struct gp_summary *sum, const struct gp_summary *more);

/* The lines about a run. */
struct gp_summary_lines {
	unsigned n;
	char text[GP_SUMMARY_LINES_MAX][GP_SUMMARY_LINE_SIZE];
};

/* Adds a line. Beyond GP_SUMMARY_LINES_MAX a line is dropped. */
void gp_summary_line(struct gp_summary_lines *lines, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Adds a line for each figure of a process that has allocated. is_past: the process has ended, so figures that are not
 * final are marked with their age at now_ns.
 */
void gp_summary_figures(
	struct gp_summary_lines *lines, const struct gp_summary *summary, bool is_past, uint64_t now_ns);

/* Adds one line for `processes` child processes, of which those that allocated are in the sum. */
void gp_summary_children(struct gp_summary_lines *lines, uint64_t processes, const struct gp_summary *sum);

/* Adds at most one line: the advice for the process. */
void gp_summary_advice(struct gp_summary_lines *lines, const struct gp_summary *summary, uint64_t pid);

/* Writes a number in groups of three digits: "12 345". Returns the text. */
enum { GP_GROUPED_TEXT_MAX = 32 };
const char *gp_grouped_text(char text[static GP_GROUPED_TEXT_MAX], uint64_t number);

/* Writes a time as "1.25 s", "98.0 ms", "3.10 us" or "40 ns". Returns the text. */
enum { GP_SPAN_TEXT_MAX = 24 };
const char *gp_span_text(char text[static GP_SPAN_TEXT_MAX], uint64_t ns);
