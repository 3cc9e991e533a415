/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Runs a fuzz target without libFuzzer: on every file of its corpus, then on a number of random
 * mutations of them, which are the same for the same seed. The target runs in a child process. If
 * the child crashes, the parent still has the input.
 */

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

enum {
	INPUT_MAX = 64 << 10,
	FILES_MAX = 4096,
	EDITS_MAX = 6,
	INPUT_SECONDS = 120, /* after this time, an input counts as a hang */
};

struct input {
	char *name;
	size_t size;
	uint8_t *bytes;
};

/* Memory that the child shares with the parent. */
static struct shared {
	unsigned n_files, n_mutations; /* started so far */
	size_t size;
	uint8_t bytes[INPUT_MAX];
} * shared;

static struct input files[FILES_MAX];
static unsigned n_files;
static uint64_t random_state;

/* xorshift64*: Vigna 2016. */
static uint64_t draw(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * UINT64_C(0x2545f4914f6cdd1d);
}

static size_t draw_below(size_t n)
{
	return n ? (size_t)((draw() >> 11) % n) : 0;
}

static void read_file(const char *path)
{
	struct input *file = &files[n_files];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	fuzz_require(fd >= 0 && n_files < FILES_MAX, path);
	file->bytes = malloc(INPUT_MAX);
	file->name = strdup(path);
	fuzz_require(file->bytes && file->name, "no memory");
	n = read(fd, file->bytes, INPUT_MAX);
	fuzz_require(n >= 0, path);
	file->size = (size_t)n;
	n_files++;
	close(fd);
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static void read_path(const char *path)
{
	struct dirent **entries;
	char name[4096];
	struct stat st;
	int n;

	fuzz_require(stat(path, &st) == 0, path);
	if (!S_ISDIR(st.st_mode)) {
		read_file(path);
		return;
	}
	n = scandir(path, &entries, is_visible, alphasort);
	fuzz_require(n >= 0, path);
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
		read_file(name);
		free(entries[i]);
	}
	free(entries);
}

/* Runs the target on a copy of exactly the input's size, so that a sanitiser sees reads past its end. */
static void run_shared(void)
{
	uint8_t *copy = malloc(shared->size ? shared->size : 1);

	fuzz_require(copy != NULL, "no memory");
	memcpy(copy, shared->bytes, shared->size);
	alarm(INPUT_SECONDS);
	LLVMFuzzerTestOneInput(copy, shared->size);
	alarm(0);
	free(copy);
}

/* Makes room for n bytes, or for as many as fit, and returns that number. */
static size_t open_gap(size_t at, size_t n)
{
	if (n > INPUT_MAX - shared->size)
		n = INPUT_MAX - shared->size;
	memmove(shared->bytes + at + n, shared->bytes + at, shared->size - at);
	shared->size += n;
	return n;
}

static void edit(void)
{
	static const uint8_t special[] = {0, 1, 0x7f, 0x80, 0xff, '\n', ' ', '0', '9', '"', 0xfe};
	const struct input *other = &files[draw_below(n_files)];
	size_t at = draw_below(shared->size), from = draw_below(other->size), n;

	switch (shared->size ? draw_below(6) : 3) {
	case 0:
		shared->bytes[at] ^= (uint8_t)(1u << draw_below(8));
		break;
	case 1:
		shared->bytes[at] = special[draw_below(sizeof(special))];
		break;
	case 2: /* remove a part */
		n = 1 + draw_below(shared->size - at < 32 ? shared->size - at : 32);
		memmove(shared->bytes + at, shared->bytes + at + n, shared->size - at - n);
		shared->size -= n;
		break;
	case 3: /* insert a part of another file */
		n = open_gap(at, draw_below(other->size - from));
		memcpy(shared->bytes + at, other->bytes + from, n);
		break;
	case 4: /* insert a byte */
		if (open_gap(at, 1))
			shared->bytes[at] = (uint8_t)draw();
		break;
	default: /* overwrite a part with another part of the same input */
		from = draw_below(shared->size);
		n = shared->size - (at > from ? at : from);
		memmove(shared->bytes + at, shared->bytes + from, draw_below(n));
	}
}

static void load_input(const struct input *file)
{
	memcpy(shared->bytes, file->bytes, file->size);
	shared->size = file->size;
}

static void run_all(unsigned n_mutations, uint64_t seed)
{
	for (unsigned i = 0; i < n_files; i++) {
		shared->n_files++;
		load_input(&files[i]);
		run_shared();
	}
	for (unsigned i = 0; i < n_mutations; i++) {
		shared->n_mutations++;
		random_state = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) + 1;
		load_input(&files[draw_below(n_files)]);
		for (size_t edits = 1 + draw_below(EDITS_MAX); edits; edits--)
			edit();
		run_shared();
	}
}

static void keep_input(uint64_t seed)
{
	char name[64];
	int fd;

	if (!shared->n_mutations) {
		printf("# the input was %s\n", shared->n_files ? files[shared->n_files - 1].name : "not read yet");
		return;
	}
	snprintf(name, sizeof(name), "crash-%" PRIu64, seed + shared->n_mutations - 1);
	fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd >= 0 && write(fd, shared->bytes, shared->size) == (ssize_t)shared->size)
		printf("# the input is saved in %s; run again with -n 1 -s %" PRIu64 "\n", name,
			seed + shared->n_mutations - 1);
	close(fd);
}

static void report(unsigned n_mutations, uint64_t seed, int status)
{
	bool is_good = status == 0, files_passed = is_good || shared->n_mutations;

	printf("1..2\n%s 1 - all %u files of the corpus pass\n", files_passed ? "ok" : "not ok", n_files);
	printf("%s 2 - %u mutations of the corpus pass\n", is_good ? "ok" : "not ok", n_mutations);
	if (is_good)
		return;
	if (WIFSIGNALED(status))
		printf("# the target ended with signal %d: %s\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		printf("# the target ended with exit status %d\n", WEXITSTATUS(status));
	keep_input(seed);
}

int main(int argc, char **argv)
{
	unsigned n_mutations = 0;
	uint64_t seed = 1;
	int option, status;
	pid_t child;

	while ((option = getopt(argc, argv, "n:s:")) != -1) {
		if (option == 'n')
			n_mutations = (unsigned)strtoul(optarg, NULL, 10);
		else if (option == 's')
			seed = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	for (int i = optind; i < argc; i++)
		read_path(argv[i]);
	if (!n_files) {
		fprintf(stderr, "usage: %s [-n MUTATIONS] [-s SEED] FILE|DIRECTORY...\n", argv[0]);
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	fuzz_require(shared != MAP_FAILED, "no memory");
	child = fork();
	fuzz_require(child >= 0, "fork failed");
	if (child == 0) {
		run_all(n_mutations, seed);
		exit(EXIT_SUCCESS);
	}
	fuzz_require(waitpid(child, &status, 0) == child, "waitpid failed");
	report(n_mutations, seed, status);
	for (unsigned i = 0; i < n_files; i++) {
		free(files[i].bytes);
		free(files[i].name);
	}
	return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
