/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "share.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME   "simgpu-share"
#define TABLE_MAGIC 0x53494d5441424c45ull
#define UNIT        512 /* alignment of blocks */

struct name {
	uint64_t id, bytes; /* id 0: no block that may be opened begins here */
};

struct table {
	uint64_t magic, nonce, bytes;
	uint32_t pid, device, n;
	struct name names[];
};

struct sim_share {
	struct sim_range range; /* must be first: the addresses whose memory is in the file */
	int fd;
	struct table *table;
};

static struct sim_range *shares;

static size_t table_bytes(unsigned n)
{
	return sizeof(struct table) + n * sizeof(struct name);
}

static void *map(int fd, size_t bytes, off_t offset, void *at)
{
	int fixed = at ? MAP_FIXED : 0;

	return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | fixed, fd, offset);
}

void sim_share_free(struct sim_share *share)
{
	if (!share)
		return;
	if (share->table) {
		memset(share->table->names, 0, share->table->n * sizeof(struct name));
		munmap(share->table, table_bytes(share->table->n));
	}
	if (share->fd >= 0)
		close(share->fd);
	free(share);
}

static bool make_file(struct sim_share *share, size_t bytes, unsigned n)
{
	struct table *table;

	share->fd = memfd_create(FILE_NAME, MFD_CLOEXEC);
	if (share->fd < 0 || ftruncate(share->fd, (off_t)(bytes + table_bytes(n))))
		return false;
	table = map(share->fd, table_bytes(n), (off_t)bytes, NULL);
	if (table == MAP_FAILED)
		return false;
	share->table = table;
	table->magic = TABLE_MAGIC;
	table->bytes = bytes;
	table->pid = (uint32_t)getpid();
	table->n = n;
	return getrandom(&table->nonce, sizeof(table->nonce), 0) == sizeof(table->nonce);
}

static struct sim_share *share_new(size_t bytes, unsigned n)
{
	struct sim_share *share = sim_alloc_zeroed(1, sizeof(*share));

	if (make_file(share, bytes, n))
		return share;
	sim_share_free(share);
	return NULL;
}

bool sim_share_copy(const struct sim_device *device, uint64_t offset, size_t bytes, int fd)
{
	off_t at = (off_t)offset, end = (off_t)(offset + bytes);

	while ((at = lseek(device->fd, at, SEEK_DATA)) >= 0 && at < end) {
		off_t hole = lseek(device->fd, at, SEEK_HOLE);

		for (hole = hole > end ? end : hole; at < hole;) {
			ssize_t n = pwrite(fd, device->bytes + at, (size_t)(hole - at), at - (off_t)offset);

			if (n <= 0)
				return false;
			at += n;
		}
	}
	return true;
}

static bool move_to_file(struct sim_share *share, struct sim_device *device)
{
	uint64_t offset = share->range.lo - device->base;
	size_t bytes = share->range.hi - share->range.lo;

	if (!sim_share_copy(device, offset, bytes, share->fd) ||
		map(share->fd, bytes, 0, device->bytes + offset) == MAP_FAILED)
		return false;
	/* The old copy is hidden now, but would reappear when the memory moves back. */
	return !fallocate(device->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

/* Returns the file around a block, or creates it. It holds whole chunks, so small blocks share a file. */
static struct sim_share *share_around(struct sim_block *block)
{
	struct sim_share *share = (struct sim_share *)sim_range_at(shares, block->range.lo);
	struct sim_device *device = block->device;
	uint64_t lo, hi;

	if (share)
		return share;
	lo = block->range.lo / SIM_CHUNK * SIM_CHUNK;
	hi = (block->range.hi + SIM_CHUNK - 1) / SIM_CHUNK * SIM_CHUNK;
	share = share_new(hi - lo, block->slab ? SIM_CHUNK / UNIT : 1);
	if (!share)
		return NULL;
	share->range.lo = lo;
	share->range.hi = hi;
	share->table->device = (uint32_t)device->ordinal;
	if (!move_to_file(share, device)) {
		map(device->fd, hi - lo, (off_t)(lo - device->base), device->bytes + (lo - device->base));
		sim_share_free(share);
		return NULL;
	}
	sim_range_insert(&shares, &share->range);
	return share;
}

void sim_share_handle(const struct sim_share *share, struct sim_handle *handle)
{
	handle->pid = share->table->pid;
	handle->fd = share->fd;
	handle->nonce = share->table->nonce;
	handle->id = share->table->names[0].id;
}

CUresult sim_share_block(struct sim_block *block, struct sim_handle *handle)
{
	struct sim_share *share = share_around(block);

	if (!share)
		return CUDA_ERROR_MAP_FAILED;
	sim_share_handle(share, handle);
	handle->offset = block->range.lo - share->range.lo;
	handle->bytes = block->range.hi - block->range.lo;
	handle->id = block->id;
	share->table->names[handle->offset / UNIT] = (struct name){block->id, handle->bytes};
	block->exported = true;
	block->dirty = true; /* other processes may write to it */
	return CUDA_SUCCESS;
}

void sim_share_forget(const struct sim_block *block)
{
	struct sim_share *share = (struct sim_share *)sim_range_at(shares, block->range.lo);

	share->table->names[(block->range.lo - share->range.lo) / UNIT] = (struct name){0};
}

bool sim_share_is_at(uint64_t addr)
{
	return sim_range_at(shares, addr) != NULL;
}

bool sim_share_end(struct sim_device *device, uint64_t addr)
{
	struct sim_share *share = (struct sim_share *)sim_range_at(shares, addr);
	uint64_t offset = addr - device->base;

	if (!share)
		return false;
	sim_range_remove(&shares, &share->range);
	if (map(device->fd, share->range.hi - share->range.lo, (off_t)offset, device->bytes + offset) == MAP_FAILED)
		sim_print("the host has no address space left for mappings");
	sim_share_free(share);
	return true;
}

CUresult sim_share_nothing(uint64_t id, struct sim_share **share)
{
	*share = share_new(0, 1);
	if (!*share)
		return CUDA_ERROR_MAP_FAILED;
	(*share)->table->names[0].id = id;
	return CUDA_SUCCESS;
}

/* Opens only files of the simulator: opening another file, such as a pipe, may have side effects. */
static int open_file(const struct sim_handle *handle)
{
	static const char wanted[] = "/memfd:" FILE_NAME " ";
	char path[64], target[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%u/fd/%d", handle->pid, handle->fd);
	n = readlink(path, target, sizeof(target));
	if (n < (ssize_t)strlen(wanted) || strncmp(target, wanted, strlen(wanted)) != 0)
		return -1;
	return open(path, O_RDWR | O_CLOEXEC);
}

/*
 * Returns true if the file still holds the block that the handle names. /proc shows a process's files
 * under the numbers of its threads as well, so the process number is compared, too.
 */
static bool is_named(const struct table *table, const struct sim_handle *handle)
{
	uint64_t at = handle->offset / UNIT;

	return table->nonce == handle->nonce && table->pid == handle->pid && handle->offset % UNIT == 0 &&
	       at < table->n && handle->id && table->names[at].id == handle->id &&
	       table->names[at].bytes == handle->bytes;
}

/* Checks the file's table and size. The table begins at the last multiple of a chunk within the file. */
static bool check_file(struct sim_opened *opened, const struct sim_handle *handle)
{
	struct table *table;
	struct stat st;
	bool is_valid;

	if (fstat(opened->fd, &st))
		return false;
	opened->bytes = (size_t)st.st_size / SIM_CHUNK * SIM_CHUNK;
	if ((size_t)st.st_size < opened->bytes + table_bytes(1))
		return false;
	table = map(opened->fd, (size_t)st.st_size - opened->bytes, (off_t)opened->bytes, NULL);
	if (table == MAP_FAILED)
		return false;
	is_valid = table->magic == TABLE_MAGIC && table->bytes == opened->bytes &&
		   (size_t)st.st_size == opened->bytes + table_bytes(table->n) && is_named(table, handle);
	opened->device = table->device;
	munmap(table, (size_t)st.st_size - opened->bytes);
	return is_valid;
}

CUresult sim_share_open(const struct sim_handle *handle, struct sim_opened *opened)
{
	opened->fd = open_file(handle);
	if (opened->fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (check_file(opened, handle))
		return CUDA_SUCCESS;
	close(opened->fd);
	return CUDA_ERROR_INVALID_VALUE;
}
