/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-run reads the ELF file of a program before it starts it. The input is that file. */

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "tools/run/run_elf.h"

/* Returns a file with exactly these bytes. Every call overwrites the same file. */
static int make_file(const uint8_t *data, size_t size)
{
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("program", MFD_CLOEXEC);
	fuzz_require(fd >= 0 && !ftruncate(fd, 0) && pwrite(fd, data, size, 0) == (ssize_t)size, "no file");
	return fd;
}

static void check_elf(const struct run_elf *elf)
{
	char text[32];
	const char *description = run_elf_describe(elf, text);

	FUZZ_CHECK(elf->class == ELFCLASS32 || elf->class == ELFCLASS64, "the ELF class is %d", elf->class);
	FUZZ_CHECK(!elf->has_loader || memchr(elf->loader, '\0', sizeof(elf->loader)),
		"the name of the loader is not terminated");
	FUZZ_CHECK(*description && strlen(description) < sizeof(text), "the description is '%s'", description);
	FUZZ_CHECK(run_elf_is_compatible(elf, elf), "the file is not compatible with itself");
}

static void check_texts(int fd, const struct run_elf *elf)
{
	char name[RUN_ELF_NAME_MAX], path[64];

	FUZZ_CHECK(!run_elf_find_needed(fd, elf, "lib", name) ||
			   (!strncmp(name, "lib", 3) && memchr(name, '\0', sizeof(name))),
		"a needed library is not found by its beginning");
	FUZZ_CHECK(!run_elf_read_run_path(fd, elf, path, sizeof(path)) || memchr(path, '\0', sizeof(path)),
		"the directories are not terminated");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run_elf elf;
	int fd = make_file(data, size), r = run_elf_read(fd, &elf);

	FUZZ_CHECK(r == 0 || r == -ENOEXEC || r == -EINVAL, "run_elf_read returns %d", r);
	FUZZ_CHECK(r != -ENOEXEC || size < SELFMAG || memcmp(data, ELFMAG, SELFMAG) || size < EI_NIDENT,
		"an ELF file is not recognised");
	if (r == 0) {
		check_elf(&elf);
		FUZZ_CHECK(!run_elf_needs(fd, &elf, "libasan.so") || memmem(data, size, "libasan.so", 10),
			"a needed library is found that the file does not name");
		check_texts(fd, &elf);
	}
	return 0;
}
