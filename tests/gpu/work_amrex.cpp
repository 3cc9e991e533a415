/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Steps that make MultiFabs of varying numbers of components on eight boxes, exchange their boundaries, apply a stencil
 * and sum. All values are small whole numbers, so that the sums are exact and do not depend on their order.
 */

#include <AMReX.H>
#include <AMReX_MultiFab.H>

#include <chrono>
#include <cstdio>

enum { WARM_UP = 5, STEPS = 50, WINDOWS = 3, CELLS = 128, BOX_CELLS = 64, GHOSTS = 1 };

struct domain {
	amrex::BoxArray boxes;
	amrex::DistributionMapping owners;
	amrex::Periodicity periodicity;
};

static void fill(amrex::MultiFab &field, int step)
{
	for (amrex::MFIter it(field); it.isValid(); ++it) {
		auto const &a = field.array(it);

		amrex::ParallelFor(it.validbox(), field.nComp(), [=] AMREX_GPU_DEVICE(int i, int j, int k, int n) {
			a(i, j, k, n) = (i * 3 + j * 5 + k * 7 + n + step) % 11;
		});
	}
}

static void apply_stencil(amrex::MultiFab &to, amrex::MultiFab const &from)
{
	for (amrex::MFIter it(to); it.isValid(); ++it) {
		auto const &a = from.const_array(it);
		auto const &b = to.array(it);

		amrex::ParallelFor(it.validbox(), to.nComp(), [=] AMREX_GPU_DEVICE(int i, int j, int k, int n) {
			b(i, j, k, n) = a(i - 1, j, k, n) + a(i + 1, j, k, n) + a(i, j - 1, k, n) + a(i, j + 1, k, n) +
					a(i, j, k - 1, n) + a(i, j, k + 1, n) - 5 * a(i, j, k, n);
		});
	}
}

static double run_step(struct domain const &domain, int step)
{
	int components = 1 + step % 5;
	amrex::MultiFab from(domain.boxes, domain.owners, components, GHOSTS);
	amrex::MultiFab to(domain.boxes, domain.owners, components, 0);

	fill(from, step);
	from.FillBoundary(domain.periodicity);
	apply_stencil(to, from);
	return to.sum(components - 1);
}

static double run_window(struct domain const &domain, double *sum)
{
	auto start = std::chrono::steady_clock::now();

	for (int i = 0; i < STEPS; i++)
		*sum += run_step(domain, i);
	amrex::Gpu::synchronize();
	return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / STEPS;
}

static void run_all()
{
	amrex::BoxArray boxes(amrex::Box(amrex::IntVect(0), amrex::IntVect(CELLS - 1)));
	double ms[WINDOWS], sum = 0;

	boxes.maxSize(BOX_CELLS);
	struct domain domain = {boxes, amrex::DistributionMapping(boxes), amrex::Periodicity(amrex::IntVect(CELLS))};

	for (int i = 0; i < WARM_UP; i++)
		(void)run_step(domain, i);
	for (double &window : ms)
		window = run_window(domain, &sum);
	printf("{\"ms\": [%.6f, %.6f, %.6f], \"answer\": \"%.0f\", \"own_peak_bytes\": null}\n", ms[0], ms[1], ms[2],
		sum);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	amrex::Initialize(argc, argv);
	run_all();
	getchar(); /* the test may observe this process before it ends */
	amrex::Finalize();
	return 0;
}
