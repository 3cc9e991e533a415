/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Steps that allocate, fill, combine and free Views of varying sizes with Kokkos. Prints the speed and a checksum of
 * integers, which does not depend on the order of the sums.
 */

#include <Kokkos_Core.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>

enum { WARM_UP = 5, STEPS = 100, WINDOWS = 3, VIEWS = 8 };

using numbers = Kokkos::View<int64_t *>;

/* The number of elements, from 64 Ki to 4 Mi. */
static size_t length_of(int step, int view)
{
	return (size_t)65536 * (1 + (step * 37 + view * 11) % 64);
}

static int64_t run_step(int step)
{
	int64_t sum = 0;
	numbers kept;

	for (int i = 0; i < VIEWS; i++) {
		size_t n = length_of(step, i);
		numbers a(Kokkos::view_alloc("a", Kokkos::WithoutInitializing), n);
		numbers b("b", n / 2);
		int64_t part;

		Kokkos::parallel_for(
			n, KOKKOS_LAMBDA(size_t j) { a(j) = (int64_t)(j % 1009) * (step + i); });
		Kokkos::parallel_for(
			n / 2, KOKKOS_LAMBDA(size_t j) { b(j) += a(2 * j) - a(2 * j + 1); });
		Kokkos::parallel_reduce(
			n / 2, KOKKOS_LAMBDA(size_t j, int64_t & total) { total += b(j) * (int64_t)(j % 7); }, part);
		sum += part;
		if (i % 3 == 0)
			kept = a;
	}
	return sum + (int64_t)kept.size();
}

static double run_window(int64_t *sum)
{
	auto start = std::chrono::steady_clock::now();

	for (int i = 0; i < STEPS; i++)
		*sum += run_step(i);
	Kokkos::fence();
	return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / STEPS;
}

int main(int argc, char **argv)
{
	Kokkos::ScopeGuard guard(argc, argv);
	int64_t sum = 0;
	double ms[WINDOWS];

	for (int i = 0; i < WARM_UP; i++)
		(void)run_step(i);
	for (double &window : ms)
		window = run_window(&sum);
	printf("{\"ms\": [%.6f, %.6f, %.6f], \"answer\": \"%lld\", \"own_peak_bytes\": null}\n", ms[0], ms[1], ms[2],
		(long long)sum);
	fflush(stdout);
	getchar(); /* the test may observe this process before it ends */
	return 0;
}
