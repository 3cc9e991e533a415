/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Replays the allocations and frees of a recording through PyTorch's own pool (peer_torch.cpp), which
 * PYTORCH_CUDA_ALLOC_CONF configures. Reads the output of `gpupool-stat convert --to=rmm` on stdin, and prints the
 * pool's peaks of reserved and allocated bytes.
 */

#include <c10/cuda/CUDACachingAllocator.h>

#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "bench.h"

namespace
{

enum column { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, N_COLUMNS };

const char *const HEADER = "Thread,Time,Action,Pointer,Size,Stream";

void replay(std::istream &events)
{
	std::unordered_map<std::string, void *> live;
	std::string line, cells[N_COLUMNS];

	if (!std::getline(events, line) || line != HEADER)
		throw std::runtime_error("stdin is not output of gpupool-stat convert --to=rmm");
	while (std::getline(events, line)) {
		std::istringstream row(line);

		for (std::string &cell : cells)
			std::getline(row, cell, ',');
		if (cells[ACTION] == "allocate") {
			if (bench_peer.alloc(&live[cells[POINTER]], std::stoull(cells[SIZE]), nullptr))
				throw std::runtime_error("PyTorch's pool has no memory for: " + line);
		} else if (cells[ACTION] == "free") { /* skip allocations that failed when they were recorded */
			const auto found = live.find(cells[POINTER]);

			if (found == live.end())
				throw std::runtime_error("freed, but not allocated: " + line);
			bench_peer.free(found->second, 0, nullptr);
			live.erase(found);
		}
	}
}

} // namespace

int main()
try {
	if (bench_peer.init())
		throw std::runtime_error("PyTorch's pool does not start");
	replay(std::cin);

	const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
	const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

	std::cout << "peak reserved=" << stats.reserved_bytes[all].peak
		  << " allocated=" << stats.allocated_bytes[all].peak << std::endl;
	return 0;
} catch (const std::exception &error) {
	std::cerr << "trace_torch: " << error.what() << std::endl;
	return 1;
}
