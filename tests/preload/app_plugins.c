/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program without a runtime. Its plug-ins bring runtimes of several versions, each visible to its plug-in only. */

#include <dlfcn.h>
#include <pthread.h>

#include "app.h"
#include "lib_runtime.h"

enum { ROUNDS = 64, LIVE = 8 };

/* NULL if the program has no runtime. */
__attribute__((weak)) cudaError_t cudaMalloc(void **ptr, size_t bytes);

struct plugin {
	void *handle;
	const struct lib_runtime *rt;
};

static struct plugin open_plugin_as(const char *name, int flags)
{
	struct plugin plugin;
	char path[512];

	snprintf(path, sizeof(path), "%s/libruntime_%s.so", PLUGINS, name);
	plugin.handle = dlopen(path, RTLD_NOW | flags);
	if (!plugin.handle) {
		puts(dlerror());
		exit(73);
	}
	plugin.rt = ((__typeof__(&lib_runtime))dlsym(plugin.handle, "lib_runtime"))();
	return plugin;
}

static struct plugin open_plugin(const char *name)
{
	return open_plugin_as(name, RTLD_LOCAL);
}

static void churn(const struct plugin *plugin, unsigned rounds)
{
	void *live[LIVE] = {NULL}, *host;

	for (unsigned i = 0; i < rounds; i++) {
		void **ptr = &live[i % LIVE];

		if (*ptr)
			APP_MUST(plugin->rt->release(*ptr));
		APP_MUST(plugin->rt->alloc(ptr, 1000 + i % 3 * 4096));
		APP_MUST(plugin->rt->alloc_host(&host, 64 * KIB));
		APP_MUST(plugin->rt->release_host(host));
	}
	for (unsigned i = 0; i < LIVE; i++)
		if (live[i])
			APP_MUST(plugin->rt->release(live[i]));
}

static void report_calls(const struct plugin *plugin)
{
	char name[32];

	snprintf(name, sizeof(name), "runtime-%d", plugin->rt->version() / 1000);
	app_fact(name, plugin->rt->calls());
}

static void print_error(const char *what, const struct plugin *plugin)
{
	app_say(what, "%d of %d", plugin->rt->take_last_error(), plugin->rt->version());
}

/* Each copy of the runtime keeps its own last error, even for calls that gpupool serves. */
static void several(const char *one, const char *other)
{
	struct plugin a = open_plugin(one), b = open_plugin(other);
	void *ptr;

	churn(&a, ROUNDS);
	churn(&b, ROUNDS);
	APP_MUST(a.rt->alloc(&ptr, MIB));
	app_result("wrong free", a.rt->release(&ptr));
	churn(&a, ROUNDS);
	churn(&b, ROUNDS);
	print_error("last error of the other", &b);
	print_error("last error of the first", &a);
	app_result("free of the other's memory", b.rt->release(ptr));
	app_result("free again", b.rt->release(ptr));
	print_error("last error of the first", &a);
	print_error("last error of the other", &b);
	app_result("malloc of too much", a.rt->alloc(&ptr, SIZE_MAX / 2));
	print_error("last error of the other", &b);
	print_error("last error of the first", &a);
	report_calls(&a);
	report_calls(&b);
}

static void two(void)
{
	several("12", "13");
}

static void old_and_new(void)
{
	several("11", "13");
}

/* If several runtimes are in the global scope, the version of a symbol decides which one is called. */
static void global(void)
{
	static const char *const names[] = {"13", "12", "11"};

	for (size_t i = 0; i < LENGTH(names); i++) {
		struct plugin plugin = open_plugin_as(names[i], RTLD_GLOBAL);

		churn(&plugin, ROUNDS);
		app_result("wrong free", plugin.rt->release(&plugin));
		print_error("last error of this runtime", &plugin);
		report_calls(&plugin);
	}
	several("12", "13");
}

static void by_jumps(void)
{
	several("12_jump", "12");
}

static void print_device(const char *what, const struct plugin *plugin)
{
	void *ptr;
	int device = -1;

	APP_MUST(plugin->rt->alloc(&ptr, 64 * KIB));
	APP_MUST(plugin->rt->device_of(ptr, &device));
	app_result(what, device);
	APP_MUST(plugin->rt->release(ptr));
}

/* Before version 12 the choice of a device takes effect at the next call. */
static void choose(const char *name)
{
	struct plugin plugin = open_plugin(name);

	for (int i = 0; i < 6; i++) {
		APP_MUST(plugin.rt->set_device(i % 2));
		print_device("device after the choice", &plugin);
		print_device("device at the next call", &plugin);
		churn(&plugin, ROUNDS);
	}
	report_calls(&plugin);
}

static void choose_11(void)
{
	choose("11");
}

static void choose_12(void)
{
	choose("12");
}

/* A runtime may be loaded at the address of one that was unloaded. */
static void reopened(void)
{
	static const char *const names[] = {"12", "11", "13", "12_jump", "12"};

	for (unsigned i = 0; i < 20; i++) {
		struct plugin plugin = open_plugin(names[i % LENGTH(names)]);
		void *ptr;

		churn(&plugin, ROUNDS / 4);
		app_result("version", plugin.rt->version());
		app_result("wrong free", plugin.rt->release(&ptr));
		print_error("last error of this runtime", &plugin);
		if (i == 7)
			app_result("reset", plugin.rt->reset());
		dlclose(plugin.handle);
		app_result("runtime is unloaded", !dlopen("libcudart.so.12", RTLD_NOW | RTLD_NOLOAD));
	}
}

/* A runtime that sets the context at its next call is loaded at the address of one that sets it at once. */
static void replaced(void)
{
	for (unsigned i = 0; i < 8; i++) {
		struct plugin plugin = open_plugin("12");

		APP_MUST(plugin.rt->set_device(0));
		churn(&plugin, ROUNDS);
		dlclose(plugin.handle);
		plugin = open_plugin("11");
		APP_MUST(plugin.rt->set_device(1));
		print_device("device after the choice", &plugin);
		APP_MUST(plugin.rt->set_device(0));
		print_device("device after another choice", &plugin);
		dlclose(plugin.handle);
	}
}

static void *use_and_keep(void *arg)
{
	const struct plugin *plugin = arg;
	void *ptr;

	churn(plugin, ROUNDS);
	APP_MUST(plugin->rt->alloc(&ptr, 4096));
	plugin->rt->keep(ptr);
	return NULL;
}

/*
 * The first call of a thread is the last call of a plug-in, in its destructor. The exit of the process closes the
 * last plug-in.
 */
static void closed(void)
{
	for (unsigned i = 0; i < 8; i++) {
		struct plugin plugin = open_plugin(i % 2 ? "12" : "13");
		pthread_t thread;

		if (pthread_create(&thread, NULL, use_and_keep, &plugin))
			exit(71);
		pthread_join(thread, NULL);
		if (i < 7)
			dlclose(plugin.handle);
	}
}

/* Programs use such lookups to find out if there is a runtime. */
static void absent(void)
{
	printf("%d %d %d\n", !dlsym(RTLD_DEFAULT, "cudaMalloc"), !dlsym(RTLD_NEXT, "cudaFree"),
		!dlsym(dlopen(NULL, RTLD_NOW), "cudaHostAlloc"));
	printf("dlerror has a text: %d\n", dlerror() != NULL);
	printf("cudaGetLastError is missing: %d\n", !dlsym(RTLD_DEFAULT, "cudaGetLastError"));
}

static void weak(void)
{
	void *ptr = &ptr;

	if (cudaMalloc)
		app_result("no runtime", cudaMalloc(&ptr, MIB));
	printf("untouched: %d\n", ptr == &ptr);
}

/* A lookup by handle returns the function of that plug-in's runtime. */
static void handles(void)
{
	struct plugin plugins[] = {open_plugin("12"), open_plugin("13")};
	cudaError_t (*alloc[2])(void **, size_t), (*release[2])(void *);

	for (int i = 0; i < 2; i++) {
		unsigned long before;
		void *ptr;

		alloc[i] = (__typeof__(alloc[i]))dlsym(plugins[i].handle, "cudaMalloc");
		release[i] = (__typeof__(release[i]))dlsym(plugins[i].handle, "cudaFree");
		churn(&plugins[i], ROUNDS);
		before = plugins[i].rt->calls();
		APP_MUST(alloc[i](&ptr, 4096));
		APP_MUST(release[i](ptr));
		app_result("calls of its runtime", (int)(plugins[i].rt->calls() - before));
	}
	printf("one each: %d\n", alloc[0] != alloc[1] && release[0] != release[1]);
}

static void hold(const struct plugin *plugin, unsigned n)
{
	void *ptr;

	while (n--)
		APP_MUST(plugin->rt->alloc(&ptr, 64 * KIB));
}

/* Blocks of plug-ins that do not know each other. The cache serves each of them, too. */
static void callers(void)
{
	struct plugin shared = open_plugin("12"), own = open_plugin("static");
	cudaError_t (*alloc)(void **, size_t) = (__typeof__(alloc))dlsym(shared.handle, "cudaMalloc");
	void *ptr;

	hold(&shared, 1);
	hold(&own, 2);
	churn(&shared, ROUNDS);
	churn(&own, ROUNDS);
	for (int i = 0; i < 3; i++) {
		hold(&shared, 1);
		hold(&own, 1);
	}
	APP_MUST(shared.rt->alloc_host(&ptr, MIB));
	/* The program calls the runtime directly. Then a plug-in calls the same runtime. */
	APP_MUST(alloc(&ptr, MIB));
	APP_MUST(shared.rt->alloc(&ptr, 3 * MIB));
	app_pause("open");
	dlclose(own.handle);
	app_pause("closed");
	APP_MUST(shared.rt->reset());
}

/* Plug-ins are loaded at the addresses of others, whose blocks still exist. */
static void callers_replaced(void)
{
	static const char *const names[] = {"static", "static_jump", "12", "13"};

	for (unsigned i = 0; i < 16; i++) {
		struct plugin plugin = open_plugin(names[i % LENGTH(names)]);

		churn(&plugin, ROUNDS);
		hold(&plugin, 1 + i % LENGTH(names));
		dlclose(plugin.handle);
	}
	app_pause("closed");
}

const struct app_scenario app_scenarios[] = {
	{"two", two},
	{"old-and-new", old_and_new},
	{"global", global},
	{"by-jumps", by_jumps},
	{"choose-11", choose_11},
	{"choose-12", choose_12},
	{"reopened", reopened},
	{"replaced", replaced},
	{"closed", closed},
	{"absent", absent},
	{"weak", weak},
	{"handles", handles},
	{"callers", callers},
	{"callers-replaced", callers_replaced},
	{0},
};
