# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""A real slurmctld and slurmd on the loopback address, with the files of docs/recipes/slurm."""

import json
import os
import pathlib
import re
import shutil
import subprocess

from recipes import OTHER_USER, RECIPES, WORK, Skip, await_true, expect, mount, need, run, start

RUNNING = pathlib.Path("/run/slurm/is_running")

# One node that claims more processors than it may have, and memory for nothing.
CONFIG = """
ClusterName=recipes
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
CommunicationParameters=NoInAddrAny
SlurmdParameters=config_overrides
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 Gres=gpu:1,shard:8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=5 State=UP
"""


def a_cluster_starts_with_the_files_of_the_recipe(root):
    need("munged", "slurmctld", "slurmd", "srun", "sbatch")
    host = "node0"
    subprocess.run(["hostname", host], check=True)
    pathlib.Path("/opt/apps/hosts").write_text(f"127.0.0.1 localhost {host}\n")
    mount("--bind", "/opt/apps/hosts", "/etc/hosts")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/etc/slurm")
    pathlib.Path("/etc/slurm/slurm.conf").write_text(CONFIG.format(host=host))
    run("cp docs/recipes/slurm/gpupool.conf docs/recipes/slurm/gpupool-task-prolog /etc/slurm")
    run("echo 'include /etc/slurm/gpupool.conf' >>/etc/slurm/slurm.conf")
    shutil.copy(root / RECIPES / "slurm/gres.conf", "/etc/slurm")
    # The machine has no GPU: a device of a name of its own stands for it.
    pathlib.Path("/run/slurm/state").mkdir(parents=True)
    pathlib.Path("/run/slurm/spool").mkdir()
    subprocess.run(["mknod", "/run/slurm/gpu0", "c", "1", "3"], check=True)
    gres = pathlib.Path("/etc/slurm/gres.conf")
    gres.write_text(gres.read_text().replace("/dev/nvidia0", "/run/slurm/gpu0"))
    for folder in ("/run/munge", "/run/munge-state"):
        os.mkdir(folder, 0o755)
        shutil.chown(folder, "munge", "munge")
    run("runuser -u munge -- munged --pid-file=/run/munge/munged.pid --log-file=/run/munge-state/munged.log "
        "--seed-file=/run/munge-state/seed")
    run("slurmctld && slurmd -N " + host)
    await_true(lambda: re.search(r"\bidle\b", run("sinfo -h -o %T", expected=None)), "the node is idle")
    RUNNING.touch()


def need_cluster():
    if not RUNNING.exists():
        raise Skip("the cluster did not start")


def limits_of(text):
    """{rank: (limit, MiB of the device)} of the output of ranks."""
    ranks = {match[1]: match[2] for match in re.finditer(r"rank (\d+) limit (\S+)", text)}
    sizes = [int(size) for size in re.findall(r"(\d+) MiB in all", text)]
    expect(len(sizes) == len(ranks), f"not all ranks ran: {text}")
    return ranks, set(sizes)


def ranks_under_gpupool_run_have_their_share_as_the_device(root):
    need_cluster()
    ranks, sizes = limits_of(run("srun -n 4 gpupool-run --limit=25% ./simulation"))
    expect(sorted(ranks) == list("0123") and sizes == {4096}, f"{ranks} {sizes}")


def ranks_of_a_job_share_a_limit(root):
    need_cluster()
    ranks, sizes = limits_of(run("srun -n 4 gpupool-run --limit-group=8GiB ./simulation"))
    expect(sorted(ranks) == list("0123") and sizes == {8192}, f"{ranks} {sizes}")


def an_environment_that_is_printed_once_serves_all_commands_of_a_script(root):
    need_cluster()
    (WORK / "job.sh").write_text('#!/bin/bash\neval "$(gpupool-run --limit=25% --print-env)"\nsrun -n 4 ./simulation\n')
    text = run("sbatch --wait -n 4 -o job.out job.sh && cat job.out")
    ranks, sizes = limits_of(text)
    expect(sorted(ranks) == list("0123") and sizes == {4096}, text)


def a_task_prolog_limits_unmodified_tasks_by_their_shards(root):
    need_cluster()
    ranks, sizes = limits_of(run("srun -n 2 --gres=shard:4 ./simulation"))
    expect(ranks == {"0": "25%", "1": "25%"} and sizes == {4096}, f"{ranks} {sizes}")
    ranks, sizes = limits_of(run("srun -n 1 --gres=shard:1 ./simulation"))
    expect(ranks == {"0": "12%"} and 1900 < min(sizes) < 2048, f"{ranks} {sizes}")
    ranks, sizes = limits_of(run("srun -n 2 ./simulation"))
    expect(set(ranks.values()) == {"none"} and sizes == {16384}, f"{ranks} {sizes}")


def a_user_opts_out_of_the_task_prolog_or_sets_a_limit(root):
    need_cluster()
    ranks, sizes = limits_of(run("GPUPOOL=off srun -n 2 --gres=shard:4 ./simulation"))
    expect(set(ranks.values()) == {"none"} and sizes == {16384}, f"{ranks} {sizes}")
    ranks, sizes = limits_of(run("srun -n 1 --gres=shard:4 ./simulation", GPUPOOL_LIMIT="1GiB"))
    expect(ranks == {"0": "1GiB"} and sizes == {1024}, f"{ranks} {sizes}")
    text = run("srun -n 1 srun --overlap -n 1 sh -c 'echo preload=$LD_PRELOAD'")
    expect(text.count("libgpupool.so") == 1, text)


def the_memory_of_a_job_is_shown_by_its_number_while_it_runs(root):
    need_cluster()
    job = start("srun -n 2 --gres=shard:4 ./simulation", user=OTHER_USER, SIMULATION_SECONDS="30")
    try:
        def groups():
            return json.loads(run("gpupool-stat list --by=job --json", expected=None).splitlines()[0])["groups"]
        run("gpupool-stat list --by=job", expected=None)
        group, = await_true(lambda: [one for one in groups() if len(one["pids"]) == 2], "both ranks are listed", job)
        expect(group["user"] == OTHER_USER and group["job"].isdigit(), str(group))
        expect(group["devices"][0]["n_processes"] == 2 and group["devices"][0]["used_bytes"] >= 2 * 64 << 20, str(group))
        metrics = run("gpupool-stat metrics")
        expect(f'hpc_job="{group["job"]}",rank="1"' in metrics, metrics)
    finally:
        run("scancel -u " + OTHER_USER)
        job.wait()


def errors_and_recordings_of_a_job_are_found_after_its_end(root):
    need_cluster()
    for path in WORK.glob("job*"):
        path.unlink()
    run("srun gpupool-run --record=job%j.rank%r.rec ./simulation", SIMULATION_FAIL="1", SLURM_NTASKS="2")
    run("srun gpupool-run --log=info --log-file=gpupool.%j.%r.log ./simulation")
    first, second = sorted(WORK.glob("job*.rank*.rec"))
    job = re.fullmatch(r"job(\d+)\.rank0\.rec", first.name)[1]
    expect(second.name == f"job{job}.rank1.rec" and list(WORK.glob("gpupool.*.0.log")), "the names of files")
    run("gpupool-stat report job*.rank*.rec -o job.html")
    expect((WORK / "job.html").stat().st_size > 10000, "the report is empty")
    run("gpupool-stat oom --job=$ID", ID=job)
    reports = json.loads(run(f"gpupool-stat oom --job={job} --json").splitlines()[0])["processes"]
    expect(sorted(report["labels"]["rank"] for report in reports) == ["0", "1"], str(reports))


STEPS = [
    a_cluster_starts_with_the_files_of_the_recipe,
    ranks_under_gpupool_run_have_their_share_as_the_device,
    ranks_of_a_job_share_a_limit,
    an_environment_that_is_printed_once_serves_all_commands_of_a_script,
    a_task_prolog_limits_unmodified_tasks_by_their_shards,
    a_user_opts_out_of_the_task_prolog_or_sets_a_limit,
    the_memory_of_a_job_is_shown_by_its_number_while_it_runs,
    errors_and_recordings_of_a_job_are_found_after_its_end,
]
