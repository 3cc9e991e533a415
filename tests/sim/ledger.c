/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A row of numbers for each process, in a file that all processes map. A process locks the byte of its row while it
 * lives, and the kernel unlocks the byte however the process ends. So a row is free if its byte can be locked. The lock
 * of the first byte guards reads and writes of all rows.
 */

#include "ledger.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

static int fd = -1;
static struct sim_ledger_row *rows;
static uint64_t *peaks;
static int own_row = -1;

static bool lock_byte(off_t byte, short type, int command)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, command, &lock) == 0;
}

static bool lock_rows(void)
{
	return lock_byte(0, F_WRLCK, F_OFD_SETLKW);
}

static void unlock_rows(void)
{
	lock_byte(0, F_UNLCK, F_OFD_SETLK);
}

static bool is_alive(int row)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + row, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Takes the first free row, and clears it. */
static void take_row(void)
{
	for (int i = 0; i < SIM_LEDGER_ROWS && own_row < 0; i++)
		if (lock_byte(1 + i, F_WRLCK, F_OFD_SETLK))
			own_row = i;
	if (own_row < 0)
		return;
	rows[own_row] = (struct sim_ledger_row){{0}};
	atomic_store(&rows[own_row].pid, getpid());
}

bool sim_ledger_open(void)
{
	void *map;

	if (!sim.config.shared)
		return true;
	fd = open(sim.config.shared, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || !lock_rows())
		return false;
	if (ftruncate(fd, sizeof(struct sim_ledger_file)) == 0) {
		map = mmap(NULL, sizeof(struct sim_ledger_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		rows = map == MAP_FAILED ? NULL : ((struct sim_ledger_file *)map)->rows;
		peaks = map == MAP_FAILED ? NULL : ((struct sim_ledger_file *)map)->peaks;
	}
	if (rows)
		take_row();
	unlock_rows();
	return own_row >= 0;
}

static size_t others_locked(int ordinal, int except)
{
	size_t sum = 0;

	for (int i = 0; i < SIM_LEDGER_ROWS; i++)
		if (i != except && rows[i].bytes[ordinal] && is_alive(i))
			sum += rows[i].bytes[ordinal];
	return sum;
}

size_t sim_ledger_others(int ordinal)
{
	size_t sum;

	if (own_row < 0 || !lock_rows())
		return 0;
	sum = others_locked(ordinal, own_row);
	unlock_rows();
	return sum;
}

bool sim_ledger_record(int ordinal, size_t bytes, size_t capacity)
{
	size_t others;
	bool fits;

	if (own_row < 0)
		return true;
	if (!lock_rows())
		return false;
	others = others_locked(ordinal, own_row);
	fits = others <= capacity && bytes <= capacity - others;
	/* A smaller amount than before always fits. */
	fits |= bytes <= rows[own_row].bytes[ordinal];
	if (fits) {
		rows[own_row].bytes[ordinal] = bytes;
		peaks[ordinal] = others + bytes > peaks[ordinal] ? others + bytes : peaks[ordinal];
	}
	unlock_rows();
	return fits;
}

struct sim_ledger_row *sim_ledger_own_row(void)
{
	return own_row < 0 ? NULL : &rows[own_row];
}

struct sim_ledger_row *sim_ledger_row_of(int pid)
{
	for (int i = 0; own_row >= 0 && i < SIM_LEDGER_ROWS; i++)
		if (atomic_load(&rows[i].pid) == pid && (i == own_row || is_alive(i)))
			return &rows[i];
	return NULL;
}

void sim_ledger_save(struct sim_ledger_row *row)
{
	if (!lock_rows())
		return;
	for (int i = 0; i < SIM_MAX_DEVICES; i++) {
		row->saved_bytes[i] = row->bytes[i];
		row->bytes[i] = 0;
	}
	unlock_rows();
}

bool sim_ledger_bring_back(struct sim_ledger_row *row)
{
	bool fits = true;

	if (!lock_rows())
		return false;
	for (unsigned i = 0; i < sim.config.devices; i++)
		fits &= others_locked((int)i, (int)(row - rows)) + row->saved_bytes[i] <= sim_devices[i].capacity;
	for (int i = 0; fits && i < SIM_MAX_DEVICES; i++) {
		row->bytes[i] = row->saved_bytes[i];
		row->saved_bytes[i] = 0;
	}
	unlock_rows();
	return fits;
}
