/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "app_peer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char fd_variable[] = "APP_PEER_FD";
static int peer_fd;
static pid_t peer_pid;

void app_put(const void *data, size_t bytes)
{
	if (write(peer_fd, data, bytes) != (ssize_t)bytes)
		exit(72);
}

void app_take(void *data, size_t bytes)
{
	if (recv(peer_fd, data, bytes, MSG_WAITALL) != (ssize_t)bytes)
		exit(73);
}

void app_put_number(uint64_t number)
{
	app_put(&number, sizeof(number));
}

uint64_t app_take_number(void)
{
	uint64_t number;

	app_take(&number, sizeof(number));
	return number;
}

void app_go(void)
{
	app_put("", 1);
}

void app_await(void)
{
	char byte;

	app_take(&byte, 1);
}

void app_peer_wait(void)
{
	int status;

	if (waitpid(peer_pid, &status, 0) != peer_pid)
		exit(74);
	app_result("the second process's end", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	peer_pid = 0;
}

static void become_peer(const char *scenario, int fd)
{
	const char *preload = getenv("APP_PEER_PRELOAD");
	char number[16];

	snprintf(number, sizeof(number), "%d", fd);
	setenv(fd_variable, number, 1);
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	execl("/proc/self/exe", "exporter", scenario, (char *)NULL);
	_exit(75);
}

/* Moves a descriptor above those that facts use, since these may not be open. */
static int move_up(int fd)
{
	int moved = fcntl(fd, F_DUPFD, 64);

	close(fd);
	return moved;
}

static void start_peer(const char *scenario)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		exit(76);
	for (unsigned i = 0; i < 2; i++)
		fds[i] = move_up(fds[i]);
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	fflush(stdout);
	peer_pid = fork();
	if (peer_pid == 0)
		become_peer(scenario, fds[1]);
	close(fds[1]);
	peer_fd = fds[0];
}

void app_pair(const char *scenario, void (*exporter)(void), void (*importer)(void))
{
	const char *fd = getenv(fd_variable);

	if (fd) {
		peer_fd = atoi(fd);
		app_start();
		exporter();
		return;
	}
	start_peer(scenario);
	app_start();
	importer();
	if (peer_pid)
		app_peer_wait();
}

/* Blocks are written and read only at their ends, up to this number of bytes each. */
enum { EDGE = 4096 };

void app_fill_now(CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	size_t edge = bytes < EDGE ? bytes : EDGE;

	app_fill(NULL, ptr, edge, value);
	app_fill(NULL, ptr + bytes - edge, edge, value);
	APP_MUST(cuCtxSynchronize());
}

int app_wrong(CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	size_t edge = bytes < EDGE ? bytes : EDGE;

	return (int)(app_count_wrong(NULL, ptr, edge, value) + app_count_wrong(NULL, ptr + bytes - edge, edge, value));
}

CUipcMemHandle app_handle_of(CUdeviceptr ptr)
{
	CUipcMemHandle handle;

	APP_MUST(cuIpcGetMemHandle(&handle, ptr));
	return handle;
}

void app_put_handle(CUdeviceptr ptr)
{
	CUipcMemHandle handle = app_handle_of(ptr);

	app_put(&handle, sizeof(handle));
}

CUipcMemHandle app_take_handle(void)
{
	CUipcMemHandle handle;

	app_take(&handle, sizeof(handle));
	return handle;
}

CUdeviceptr app_open(CUipcMemHandle handle)
{
	CUdeviceptr ptr = 0;

	APP_MUST(cuIpcOpenMemHandle_v2(&ptr, handle, LAZY));
	return ptr;
}

int app_try_open(CUipcMemHandle handle)
{
	CUdeviceptr ptr;
	CUresult result = cuIpcOpenMemHandle_v2(&ptr, handle, LAZY);

	if (!result)
		APP_MUST(cuIpcCloseMemHandle(ptr));
	return result;
}

int app_is_readable(CUdeviceptr ptr)
{
	char byte;

	return cuMemcpyDtoH_v2(&byte, ptr, 1) == CUDA_SUCCESS;
}

uint64_t app_id_of(CUdeviceptr ptr)
{
	uint64_t id = 0;

	APP_MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	return id;
}
