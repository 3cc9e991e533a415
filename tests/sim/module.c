/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Modules and kernels. The program passes PTX text as to a real driver. The simulator looks in it for
 * the entries that tests/apps/kernels.h defines, and runs its own version of each.
 */

#include <stdlib.h>
#include <string.h>

#include "capture.h"

#define KERNEL_NS     3000
#define FILL_BYTES_NS 2000
#define MAX_PARAMS    4
#define WORD          4
#define COUNT_BYTES   8

struct kernel {
	const char *name;
	unsigned char param_bytes[MAX_PARAMS];
	void (*build)(struct sim_op *op, const uint64_t *args);
};

static void build_fill(struct sim_op *op, const uint64_t *args)
{
	op->kind = SIM_FILL;
	op->width = WORD;
	op->dst = args[0];
	op->bytes = args[1] * WORD;
	op->value = (uint32_t)args[2];
	op->duration_ns += op->bytes / FILL_BYTES_NS;
	sim_op_touch(op, op->dst, op->bytes, SIM_WRITE);
}

static void build_spin(struct sim_op *op, const uint64_t *args)
{
	op->kind = SIM_MARK;
	op->duration_ns += args[0];
}

static void build_spin_fill(struct sim_op *op, const uint64_t *args)
{
	build_fill(op, args);
	op->duration_ns += args[3];
}

static void build_count_wrong(struct sim_op *op, const uint64_t *args)
{
	op->kind = SIM_COUNT;
	op->src = args[0];
	op->bytes = args[1] * WORD;
	op->value = (uint32_t)args[2];
	op->dst = args[3];
	op->duration_ns += op->bytes / FILL_BYTES_NS;
	sim_op_touch(op, op->src, op->bytes, SIM_READ);
	sim_op_touch(op, op->dst, COUNT_BYTES, SIM_ATOMIC);
}

static void build_set_flag(struct sim_op *op, const uint64_t *args)
{
	op->kind = SIM_FILL;
	op->width = WORD;
	op->dst = args[0];
	op->bytes = WORD;
	op->value = (uint32_t)args[1];
	sim_op_touch(op, op->dst, WORD, SIM_ATOMIC);
}

static void build_wait_flag(struct sim_op *op, const uint64_t *args)
{
	op->kind = SIM_WAIT_FLAG;
	op->src = args[0];
	op->value = (uint32_t)args[1];
	sim_op_touch(op, op->src, WORD, SIM_ATOMIC);
}

static void build_trap(struct sim_op *op, const uint64_t *args)
{
	op->kind = SIM_TRAP;
	op->duration_ns += args[0];
}

static const struct kernel kernels[] = {
	{"fill", {8, 8, 4}, build_fill},
	{"spin", {8}, build_spin},
	{"spin_fill", {8, 8, 4, 8}, build_spin_fill},
	{"count_wrong", {8, 8, 4, 8}, build_count_wrong},
	{"set_flag", {8, 4}, build_set_flag},
	{"wait_flag", {8, 4}, build_wait_flag},
	{"trap", {8}, build_trap},
};

struct function {
	struct sim_object object;
	struct sim_ctx *ctx;
	const struct kernel *kernel;
	struct function *next;
};

struct module {
	struct sim_object object;
	struct sim_ctx *ctx;
	char *text;
	struct function *functions;
	struct module *next;
};

static struct module *modules;

static void module_free(struct module *module)
{
	struct module **link = &modules;

	while (*link != module)
		link = &(*link)->next;
	*link = module->next;
	while (module->functions) {
		struct function *function = module->functions;

		module->functions = function->next;
		sim_object_free(function);
	}
	free(module->text);
	sim_object_free(module);
}

void sim_modules_close(struct sim_ctx *ctx)
{
	for (struct module *module = modules, *next; module; module = next) {
		next = module->next;
		if (module->ctx == ctx)
			module_free(module);
	}
}

CUresult cuModuleLoadData(CUmodule *handle, const void *image)
{
	const char *text = image;
	struct module *module;
	struct sim_ctx *ctx;

	SIM_BEGIN(cuModuleLoadData);
	if (!handle || !image)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_current(&ctx));
	if (!strchr("/.\n\t ", *text))
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	if (!strstr(text, ".version") || !strstr(text, ".target"))
		return CUDA_ERROR_INVALID_IMAGE;
	module = sim_object_new(SIM_MODULE, sizeof(*module));
	module->ctx = ctx;
	module->text = strdup(text);
	module->next = modules;
	modules = module;
	*handle = (CUmodule)module;
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule handle)
{
	struct module *module;

	SIM_BEGIN(cuModuleUnload);
	module = sim_object_of(handle, SIM_MODULE);
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_capture_unsafe());
	SIM_TRY(sim_ctx_synchronize(module->ctx));
	if (sim_object_of(handle, SIM_MODULE) == module)
		module_free(module);
	return CUDA_SUCCESS;
}

static bool has_entry(const char *text, const char *name)
{
	static const char entry[] = ".entry";
	size_t len = strlen(name);

	while ((text = strstr(text, entry))) {
		text += strlen(entry);
		text += strspn(text, " \t\n");
		if (!strncmp(text, name, len) && strchr("( \t\n", text[len]))
			return true;
	}
	return false;
}

static const struct kernel *kernel_of(const char *name)
{
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		if (!strcmp(kernels[i].name, name))
			return &kernels[i];
	return NULL;
}

CUresult cuModuleGetFunction(CUfunction *handle, CUmodule module_handle, const char *name)
{
	struct function *function;
	struct module *module;

	SIM_BEGIN(cuModuleGetFunction);
	module = sim_object_of(module_handle, SIM_MODULE);
	if (!handle || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!has_entry(module->text, name))
		return CUDA_ERROR_NOT_FOUND;
	if (!kernel_of(name)) {
		sim_print("the simulator has no kernel %s", name);
		return CUDA_ERROR_NOT_FOUND;
	}
	function = sim_object_new(SIM_FUNCTION, sizeof(*function));
	function->ctx = module->ctx;
	function->kernel = kernel_of(name);
	function->next = module->functions;
	module->functions = function;
	*handle = (CUfunction)function;
	return CUDA_SUCCESS;
}

static bool read_args(const struct kernel *kernel, void **params, uint64_t *args)
{
	for (unsigned i = 0; i < MAX_PARAMS && kernel->param_bytes[i]; i++) {
		if (!params || !params[i])
			return false;
		args[i] = 0;
		memcpy(&args[i], params[i], kernel->param_bytes[i]);
	}
	return true;
}

/*
 * Submits a kernel that may begin before earlier work of its stream is done. Only a context-wide wait holds it back.
 * Later work of the stream waits for both.
 */
static CUresult submit_early(struct sim_stream *stream, const struct sim_op *op)
{
	static const struct sim_op mark = {.kind = SIM_MARK, .name = "an early launch"};

	if (stream->capture)
		return sim_stream_submit(stream, op);
	if (!stream->early)
		stream->early = sim_stream_new(stream->family, true);
	SIM_TRY(sim_stream_push(stream->early, op, NULL));
	sim_clock_join(&stream->clock, &stream->early->clock);
	return sim_stream_push(stream, &mark, stream->early->tail);
}

static bool is_early(const CUlaunchConfig *config)
{
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
			config->attrs[i].value.programmaticStreamSerializationAllowed)
			return true;
	return false;
}

static CUresult launch(CUfunction handle, uint64_t blocks, uint64_t threads, CUstream stream_handle, void **params,
	void **extra, bool per_thread, bool early)
{
	struct function *function = sim_object_of(handle, SIM_FUNCTION);
	uint64_t args[MAX_PARAMS] = {0};
	struct sim_stream *stream;
	struct sim_op op = {0};

	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	SIM_TRY(sim_stream_of(stream_handle, per_thread, &stream));
	if (function->ctx != stream->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!blocks || !threads || threads > 1024 || extra || !read_args(function->kernel, params, args))
		return CUDA_ERROR_INVALID_VALUE;
	op.name = function->kernel->name;
	op.duration_ns = KERNEL_NS;
	function->kernel->build(&op, args);
	return early ? submit_early(stream, &op) : sim_stream_submit(stream, &op);
}

static CUresult launch_config(
	const CUlaunchConfig *config, CUfunction function, void **params, void **extra, bool per_thread)
{
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	return launch(function, (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ,
		(uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ, config->hStream, params, extra,
		per_thread, is_early(config));
}

SIM_STREAM_PAIR(cuLaunchKernelEx, _ptsz,
	(const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
	launch_config(config, function, params, extra, per_thread))

SIM_STREAM_PAIR(cuLaunchKernel, _ptsz,
	(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
		unsigned block_z, unsigned shared_bytes, CUstream stream, void **params, void **extra),
	launch(function, (uint64_t)grid_x *grid_y *grid_z, (uint64_t)block_x *block_y *block_z, stream, params, extra,
		per_thread, false))
