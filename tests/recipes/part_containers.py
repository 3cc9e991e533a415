# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""podman, with an image made of this machine's shell and libraries, and the CDI file of docs/recipes/containers."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import part_chart
from recipes import OTHER_USER, PREFIX, SIM, SIMULATION, WORK, Skip, await_true, expect, make_tarball, mount, need, run, start

IMAGE = "localhost/train"
ROOTFS = pathlib.Path("/opt/apps/rootfs")
RUNNING = pathlib.Path("/run/containers-run")
PROGRAMS = ("/bin/sh", "/bin/cp", "/bin/mv", "/bin/rmdir", "/usr/bin/env", "/usr/bin/id", "/usr/bin/true")

# Without systemd there is no manager of cgroups, and a nested machine has few rights of its own.
CONFIG = """
[containers]
cgroups = "disabled"
netns = "none"
default_ulimits = []
seccomp_profile = "unconfined"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
"""

# The simulated driver, as NVIDIA's toolkit describes the real one to podman.
GPU = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [
    {"name": "all", "containerEdits": {"env": [f"LD_LIBRARY_PATH={SIM}", "SIMGPU_MEMORY=16G"]}}],
       "containerEdits": {"mounts": [
           {"hostPath": str(SIM), "containerPath": str(SIM), "options": ["ro", "bind"]}]}}


def libraries_of(program):
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", text)


def make_root(folder):
    """A root with a shell, the libraries that gpupool's tools need, and a python that runs the simulation."""
    for path in ("bin", "usr/bin", "etc", "tmp", "proc", "sys", "dev", "run", "opt", SIM.relative_to("/")):
        (folder / path).mkdir(parents=True)
    (folder / "tmp").chmod(0o1777)
    (folder / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    for program in PROGRAMS:
        shutil.copy(program, folder / program[1:])
    ours = [PREFIX / "bin/gpupool-run", PREFIX / "bin/gpupool-stat", PREFIX / "lib/gpupool/libgpupool.so", *SIM.iterdir()]
    for file in {library for program in (*PROGRAMS, *ours) for library in libraries_of(program)}:
        target = folder / file[1:]
        if not file.startswith(str(SIM)):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    program = folder / "usr/bin/python"
    program.write_text(SIMULATION)
    program.chmod(0o755)


def containers_run_here(root):
    need("podman", "crun", "tar")
    for folder in "/var/lib/containers", "/etc/cdi":
        os.makedirs(folder, exist_ok=True)
    mount("-t", "tmpfs", "-o", "size=1g", "tmpfs", "/var/lib/containers")
    # crun refuses a machine with both versions of cgroups.
    subprocess.run(["umount", "/sys/fs/cgroup/unified"], stderr=subprocess.DEVNULL, check=False)
    config = pathlib.Path("/opt/apps/containers.conf")
    config.write_text(CONFIG)
    os.environ.update(CONTAINERS_CONF=str(config), STORAGE_DRIVER="vfs", IMAGE=IMAGE)
    run("cp docs/recipes/containers/gpupool.json /etc/cdi")
    pathlib.Path("/etc/cdi/gpu.json").write_text(json.dumps(GPU))
    make_root(ROOTFS)
    run(f"tar -C {ROOTFS} -c . | podman import - {IMAGE}")
    text = run("podman run --rm $IMAGE env", expected=None)
    if "PATH=" not in text:
        raise Skip("podman cannot run a container on this machine: " + (text.strip().splitlines() or ["nothing"])[-1])
    RUNNING.touch()


def need_containers():
    if not RUNNING.exists():
        raise Skip("podman cannot run a container on this machine")


def check_half(text):
    expect("limit 50%" in text and "8192 MiB in all" in text, text)


def the_library_is_mounted_into_an_image_that_does_not_have_it(root):
    need_containers()
    check_half(run("podman run --rm --device nvidia.com/gpu=all -v /opt/apps/gpupool:/opt/gpupool:ro $IMAGE "
                   "/opt/gpupool/bin/gpupool-run --limit=50% python train.py"))


def containers_share_a_limit_by_the_name_of_a_group(root):
    need_containers()
    text = run("podman run --rm --device nvidia.com/gpu=all -v /run/gpupool:/run/gpupool "
               "-v /opt/apps/gpupool:/opt/gpupool:ro $IMAGE "
               "/opt/gpupool/bin/gpupool-run --limit-group=train:8GiB python train.py")
    expect("8192 MiB in all" in text, text)


def a_device_of_CDI_adds_the_library_and_a_limit_to_an_unmodified_command(root):
    need_containers()
    check_half(run("podman run --rm --device nvidia.com/gpu=all --device gpupool.dev/pool=half $IMAGE python train.py"))
    text = run("podman run --rm --device nvidia.com/gpu=all --device gpupool.dev/pool=all $IMAGE python train.py")
    expect("limit none" in text and "16384 MiB in all" in text, text)


def processes():
    text = run("gpupool-stat list --json", expected=None).splitlines()[0]
    return json.loads(text)["processes"]


def check_seen(options, user, pod):
    """A container with these options is seen by root on the host, with the user and the pod."""
    container = start("exec podman run --rm --name seen --device nvidia.com/gpu=all --device gpupool.dev/pool=all "
                      f"-e SIMULATION_SECONDS=40 -e POD_NAME={pod} -e POD_NAMESPACE=research {options} $IMAGE python train.py")
    try:
        seen = await_true(processes, "the process is listed", container)
        expect([one["uid"] for one in seen] == [user], str(seen))
        expect(seen[0]["labels"] == {"pod": pod, "namespace": "research"}, str(seen))
        comm = pathlib.Path(f"/proc/{seen[0]['pid']}/comm").read_text().strip()
        expect(comm == "app_fleet", f"pid {seen[0]['pid']} of the host is {comm}")
        expect("/run/gpupool/" in seen[0]["socket"], f"the socket is {seen[0]['socket']}")
        groups = json.loads(run("gpupool-stat list --by=pod --json").splitlines()[0])["groups"]
        expect([(group["namespace"], group["pod"]) for group in groups] == [("research", pod)], str(groups))
        run("gpupool-stat list --by=pod")
        status = run("gpupool-stat status $PID", PID=str(seen[0]["pid"]))
        expect("split" in status, status)
        return run("podman exec $CONTAINER /opt/gpupool/bin/gpupool-stat", expected=None, CONTAINER="seen")
    finally:
        run("podman rm -f -t 0 seen", expected=None)
        container.wait()


def a_container_of_root_is_seen_from_the_host_and_from_inside(root):
    need_containers()
    inside = check_seen("", 0, "train-0")
    expect("python" in inside or "app_fleet" in inside, inside)


def a_container_of_another_user_is_seen_from_the_host(root):
    need_containers()
    check_seen("--user 1234 --cap-drop=all --security-opt=no-new-privileges", 1234, "train-1")


def a_container_with_a_read_only_root_has_a_socket_and_a_counter_page(root):
    need_containers()
    check_seen("--read-only --read-only-tmpfs=false --user 1234", 1234, "train-2")
    run("podman run --rm --read-only --read-only-tmpfs=false --user 1235 --device nvidia.com/gpu=all --device gpupool.dev/pool=all "
        "-e SIMULATION_FAIL=1 -e SLURM_JOB_ID=77 $IMAGE python train.py")
    pages = list(pathlib.Path("/run/gpupool/1235").glob("*.page"))
    expect(len(pages) == 1, f"{len(pages)} counter pages of the ended container")
    reports = json.loads(run("gpupool-stat oom --job=77 --json").splitlines()[0])["processes"]
    expect(len(reports) == 1, "the report of the ended container is not found")


def containers_of_two_users_hand_memory_over_through_an_exporter_of_the_host(root):
    """The simulated drivers of both containers share a file, as real ones share a GPU of 16 GiB."""
    need_containers()
    ledger = pathlib.Path("/opt/apps/ledger")
    ledger.mkdir()
    (ledger / "gpu").touch()
    (ledger / "gpu").chmod(0o666)
    words = f"--device nvidia.com/gpu=all --device gpupool.dev/pool=all -v {ledger}:{ledger} -e SIMGPU_SHARED={ledger}/gpu " \
            f"--tmpfs /tmp $IMAGE {SIM}/app_fleet"
    holder = start(f"exec podman run --rm --name holder --user 1236 {words} cache=12000 sleep=50")
    exporter = None
    try:
        await_true(lambda: any(one["cached_bytes"] for one in processes()), "the first container has cached memory", holder)
        request = f"podman run --rm --user 1237 {words} try=10000"
        text = run(request)
        expect("refused" in text, f"without the exporter: {text}")
        exporter = start("exec gpupool-stat export --yield")
        await_true(pathlib.Path("/run/gpupool/exporter/yield.sock").exists, "the exporter runs", exporter)
        text = run(request)
        expect("got" in text, f"with the exporter: {text}")
    finally:
        run("podman rm -f -t 0 holder", expected=None)
        holder.wait()
        if exporter:
            exporter.terminate()
            exporter.wait()


def an_image_has_the_library_built_in(root):
    need_containers()
    make_tarball(root)
    # The base of the image is one of Debian, which is not fetched here.
    run("podman tag $IMAGE docker.io/library/debian:bookworm-slim")
    text = run("podman build -t gpupool -f scripts/packages/Containerfile build-package/out", expected=None,
               BUILDAH_ISOLATION="chroot")
    if "COMMIT" not in text:
        raise Skip("podman cannot build an image on this machine: " + (text.strip().splitlines() or ["nothing"])[-1])
    (WORK / "Containerfile").write_text("FROM " + IMAGE + """
COPY --from=gpupool /opt/gpupool /opt/gpupool
ENTRYPOINT ["/opt/gpupool/bin/gpupool-run", "--limit=50%"]
CMD ["python", "train.py"]
""")
    run("podman build --pull=never -t trained -f Containerfile build-package", BUILDAH_ISOLATION="chroot")
    check_half(run("podman run --rm --device nvidia.com/gpu=all localhost/trained"))


def a_pod_copies_the_library_into_a_folder_that_its_containers_share(root):
    need_containers()
    if run("podman image exists localhost/gpupool && echo yes", expected=None).strip() != "yes":
        raise Skip("the image was not built")
    folder = pathlib.Path("/opt/apps/empty-dir")  # as Kubernetes makes it: of root, and open to all
    folder.mkdir()
    folder.chmod(0o777)
    pod = (root / "docs/recipes/kubernetes/pod.yaml").read_text()
    copy, start_program = (" ".join(words.split(", ")) for words in re.findall(r"command: \[(.*)\]", pod))
    run(f"podman run --rm --user 1000 -v {folder}:/gpupool --entrypoint= localhost/gpupool {copy}")
    check_half(run(f"podman run --rm --user 1000 -v {folder}:/gpupool:ro --device nvidia.com/gpu=all $IMAGE {start_program}"))


def podman_words(container, folders, *more):
    """The command of podman for a container of a pod, whose volumes are these folders."""
    context = container.get("securityContext", {})
    words = ["podman", "run", "--rm", "--user", str(context.get("runAsUser", 1000)), "--device", "nvidia.com/gpu=all", "--entrypoint="]
    if context.get("readOnlyRootFilesystem"):
        words += ["--read-only", "--read-only-tmpfs=false"]
    if context.get("capabilities") == {"drop": ["ALL"]}:
        words += ["--cap-drop=all"]
    if context.get("allowPrivilegeEscalation") is False:
        words += ["--security-opt=no-new-privileges"]
    for entry in container.get("env", ()):
        words += ["-e", f"{entry['name']}={entry.get('value', 'downward')}"]
    for mounted in container["volumeMounts"]:
        words += ["-v", f"{folders[mounted['name']]}:{mounted['mountPath']}:{'ro' if mounted.get('readOnly') else 'rw'}"]
    return shlex.join([*words, *more, container["image"], *container["command"]])


def a_pod_that_the_webhook_patches_runs_with_the_library_or_not_at_all(root):
    need_containers()
    if run("podman image exists localhost/gpupool && echo yes", expected=None).strip() != "yes":
        raise Skip("the image was not built")
    train = {"name": "train", "image": IMAGE, "command": ["python", "train.py"]}
    spec = part_chart.patched(root, part_chart.labelled({"containers": [train]}, limit="50%"))["spec"]
    (first,), (train,) = spec["initContainers"], spec["containers"]
    folders = {}
    for volume in spec["volumes"]:
        expect(volume["emptyDir"] == {}, str(volume))
        folders[volume["name"]] = folder = pathlib.Path("/opt/apps", "patched-" + volume["name"])
        folder.mkdir()
        folder.chmod(0o777)
    # In an image with a broken library the init container fails, so that the pod does not start.
    broken = pathlib.Path("/opt/apps/broken.so")
    broken.write_text("no library\n")
    text = run(podman_words(first, folders, "-v", f"{broken}:/opt/gpupool/lib/gpupool/libgpupool.so:ro"), expected=1)
    expect("/gpupool/lib/gpupool/libgpupool.so does not load" in text, text)
    run(podman_words(first, folders))
    check_half(run(podman_words(train, folders)))


def a_user_without_rights_runs_a_container_with_the_library(root):
    need_containers()
    home = pathlib.Path("/opt/apps/home")
    home.mkdir(exist_ok=True)
    shutil.chown(home, OTHER_USER)
    runtime = home / "run"
    run(f"install -d -m 700 -o {OTHER_USER} {runtime} && cp -r {ROOTFS} {home}/rootfs && chown -R {OTHER_USER} {home}/rootfs")
    env = f"HOME={home} XDG_RUNTIME_DIR={runtime}"
    text = run(f"{env} podman run --rm --rootfs --device nvidia.com/gpu=all --device gpupool.dev/pool=half {home}/rootfs python train.py",
               user=OTHER_USER, expected=None)
    if "limit 50%" not in text:
        raise Skip("podman cannot run a container of a user on this machine: " + (text.strip().splitlines() or ["nothing"])[-1])
    check_half(text)


STEPS = [
    containers_run_here,
    the_library_is_mounted_into_an_image_that_does_not_have_it,
    containers_share_a_limit_by_the_name_of_a_group,
    a_device_of_CDI_adds_the_library_and_a_limit_to_an_unmodified_command,
    a_container_of_root_is_seen_from_the_host_and_from_inside,
    a_container_of_another_user_is_seen_from_the_host,
    a_container_with_a_read_only_root_has_a_socket_and_a_counter_page,
    containers_of_two_users_hand_memory_over_through_an_exporter_of_the_host,
    an_image_has_the_library_built_in,
    a_pod_copies_the_library_into_a_folder_that_its_containers_share,
    a_pod_that_the_webhook_patches_runs_with_the_library_or_not_at_all,
    a_user_without_rights_runs_a_container_with_the_library,
]
