// SPDX-License-Identifier: MIT
// SPDX-FileCopyrightText: 2026 The gpupool authors

// C++ around CUDA: destructors free memory during exceptions, at the end of threads, and after main.

#include <cstdio>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include "tests/apps/cuda_min.h"
}

namespace
{

CUcontext ctx;

struct failure : std::runtime_error {
	explicit failure(int code) : std::runtime_error("code " + std::to_string(code))
	{
	}
};

void must(CUresult code)
{
	if (code)
		throw failure(code);
}

class block
{
      public:
	explicit block(size_t bytes)
	{
		must(cuMemAlloc_v2(&ptr_, bytes));
	}
	block(const block &) = delete;
	block &operator=(const block &) = delete;
	~block()
	{
		CUresult code = cuMemFree_v2(ptr_);

		if (code)
			std::printf("free: %d\n", static_cast<int>(code));
	}

      private:
	CUdeviceptr ptr_ = 0;
};

std::unique_ptr<block> of_the_program;

struct of_a_thread {
	std::unique_ptr<block> held;
};
thread_local of_a_thread thread_block;

void fail_below(int depth)
{
	block held(4096u << (depth % 8));

	if (depth == 0)
		throw std::out_of_range("the bottom");
	fail_below(depth - 1);
}

int unwind()
{
	int caught = 0;

	for (int i = 0; i < 64; i++) {
		try {
			fail_below(i % 16);
		} catch (const std::out_of_range &) {
			caught++;
		}
	}
	return caught;
}

// A refusal of the driver becomes an exception, also in a constructor.
void refuse()
{
	std::vector<std::unique_ptr<block>> blocks;

	for (size_t bytes : {size_t{4096}, size_t{0}, size_t{1} << 50}) {
		try {
			blocks.push_back(std::make_unique<block>(bytes));
			std::printf("served\n");
		} catch (const failure &e) {
			std::printf("%s\n", e.what());
		}
	}
}

// A destructor that allocates while an exception is under way.
struct busy {
	~busy()
	{
		block brief(1 << 20);
	}
};

void allocate_while_unwinding()
{
	try {
		busy one, two;
		throw 42;
	} catch (int number) {
		std::printf("%d\n", number);
	}
}

int in_thread(int number)
{
	must(cuCtxSetCurrent(ctx));
	thread_block.held = std::make_unique<block>(1 << 20);
	if (number % 2)
		throw std::domain_error("thread " + std::to_string(unwind() + number));
	return unwind() + number;
}

void threads()
{
	std::vector<std::future<int>> results;

	for (int i = 0; i < 8; i++)
		results.push_back(std::async(std::launch::async, in_thread, i));
	for (auto &result : results) {
		try {
			std::printf("%d\n", result.get());
		} catch (const std::domain_error &e) {
			std::printf("%s\n", e.what());
		}
	}
}

} // namespace

int main(int argc, char **argv)
{
	must(cuInit(0));
	must(cuDevicePrimaryCtxRetain(&ctx, 0));
	must(cuCtxSetCurrent(ctx));
	of_the_program = std::make_unique<block>(1 << 20);
	thread_block.held = std::make_unique<block>(1 << 20);
	std::printf("caught %d\n", unwind());
	refuse();
	allocate_while_unwinding();
	threads();
	std::fflush(stdout);
	if (argc > 1 && !std::strcmp(argv[1], "uncaught"))
		throw failure(99);
	return 0;
}
