# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""OpenMPI and MPICH of Debian, with an MPI program that uses CUDA, on one host."""

import json
import os
import pathlib
import re
import subprocess

from recipes import SIM, WORK, await_true, expect, need, run, start, write_program

# Variables without which OpenMPI's mpirun refuses root, more ranks than processors, and a machine that has only the
# loopback interface.
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
           "OMPI_MCA_oob_tcp_if_include": "lo", "OMPI_MCA_btl_tcp_if_include": "lo"}


def choose(root, kind):
    """Makes mpirun that of a kind, and ./simulation a program for it. Returns the environment to use."""
    need("mpirun." + kind, "mpicc." + kind)
    folder = pathlib.Path("/opt/apps") / kind
    if not folder.exists():
        folder.mkdir()
        write_program(folder / "mpirun", f'#!/bin/sh\nexec /usr/bin/mpirun.{kind} "$@"\n')
        subprocess.run(["mpicc." + kind, "-o", folder / "simulation", root / "tests/recipes/app_mpi.c", f"-L{SIM}",
                        "-l:libcudart.so.13", "-l:libcuda.so.1"], check=True)
    program = WORK / "simulation"
    program.unlink()
    program.symlink_to(folder / "simulation")
    return {**ALLOWED, "PATH": f"{folder}:" + os.environ["PATH"], "HOME": "/tmp"}


def check_ranks(root, kind):
    env = choose(root, kind)
    text = run("mpirun -n 4 gpupool-run --limit=25% ./simulation", **env)
    found = sorted(re.findall(r"rank (\d) of sum 6: (\d+) MiB in all", text))
    expect(found == [(rank, "4096") for rank in "0123"], text)


def check_labels(root, kind):
    env = choose(root, kind)
    job = start("mpirun -n 4 gpupool-run ./simulation", **env, SIMULATION_SECONDS="20")
    try:
        def processes():
            return json.loads(run("gpupool-stat list --json", expected=None).splitlines()[0])["processes"]
        listed = await_true(lambda: len(processes()) == 4 and processes(), "four ranks are listed", job)
        expect(sorted(one["labels"].get("rank") for one in listed) == list("0123"), str(listed))
        status = run("gpupool-stat status %d" % listed[0]["pid"])
        expect("completed" in status, "a process with MPI reuses memory before it is completed: " + status)
        metrics = run("gpupool-stat metrics")
        expect(all(f'rank="{rank}"' in metrics for rank in "0123"), metrics)
    finally:
        job.terminate()
        job.wait()


def check_files(root, kind):
    env = choose(root, kind)
    run(f"mpirun -n 4 gpupool-run --record={kind}.%h.rank%r.rec ./simulation", **env)
    files = sorted(path.name for path in WORK.glob(f"{kind}.*.rec"))
    expect(len(files) == 4 and all(f"rank{rank}.rec" in files[rank] for rank in range(4)), str(files))
    run(f"gpupool-stat report {kind}.*.rec -o {kind}.html")


def ranks_of_OpenMPI_have_their_share_as_the_device(root):
    check_ranks(root, "openmpi")


def ranks_of_OpenMPI_are_labelled_and_reuse_completed_memory(root):
    check_labels(root, "openmpi")


def ranks_of_OpenMPI_write_a_recording_each_and_share_a_report(root):
    check_files(root, "openmpi")


def ranks_of_MPICH_have_their_share_as_the_device(root):
    check_ranks(root, "mpich")


def ranks_of_MPICH_are_labelled_and_reuse_completed_memory(root):
    check_labels(root, "mpich")


def ranks_of_MPICH_write_a_recording_each_and_share_a_report(root):
    check_files(root, "mpich")


STEPS = [
    ranks_of_OpenMPI_have_their_share_as_the_device,
    ranks_of_OpenMPI_are_labelled_and_reuse_completed_memory,
    ranks_of_OpenMPI_write_a_recording_each_and_share_a_report,
    ranks_of_MPICH_have_their_share_as_the_device,
    ranks_of_MPICH_are_labelled_and_reuse_completed_memory,
    ranks_of_MPICH_write_a_recording_each_and_share_a_report,
]
