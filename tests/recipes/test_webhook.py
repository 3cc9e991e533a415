# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_webhook.py ROOT LIBRARY GPUPOOL-RUN

Asks the webhook of the chart over TLS, as an API server does, and applies its patches.
"""

import base64
import contextlib
import copy
import http.client
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

ROOT, LIBRARY, RUN = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
PROGRAM = ROOT / "docs/recipes/helm/gpupool/files/gpupool-webhook.py"
sys.path.insert(0, str(ROOT / "tests/readers"))

from readers import Skip, find, main  # noqa: E402

LIMIT_S = 30
OPTIONS = ["--image=registry/gpupool:1", "--version=1.2.3", '--resources={"limits": {"memory": "64Mi"}}']
PRELOAD = {"name": "LD_PRELOAD", "value": "/opt/gpupool/lib/gpupool/libgpupool.so"}
FIELDS = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
          {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]
MOUNT = {"name": "gpupool-library", "mountPath": "/opt/gpupool", "readOnly": True}
TOKEN = {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
# Runs the program with other limits than its own.
PROGRAM_WITH = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("webhook", sys.argv[1])
webhook = importlib.util.module_from_spec(spec)
spec.loader.exec_module(webhook)
vars(webhook).update({changes})
sys.argv[:2] = ["webhook"]
webhook.main()
"""


def load():
    spec = importlib.util.spec_from_file_location("webhook", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


webhook = load()


def make_certificate(folder, name):
    """A certificate for 127.0.0.1 and its key."""
    files = [pathlib.Path(folder, f"{name}.{end}") for end in ("crt", "key")]
    subprocess.run([find("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0],
                    "-keyout", files[1]], check=True, stderr=subprocess.DEVNULL)
    return files


class Webhook:
    """The program on a port of its own."""

    def __init__(self, changes=None):
        self.folder = tempfile.mkdtemp(prefix="gpupool-webhook-")
        self.certificate, self.key = make_certificate(self.folder, "first")
        words = [sys.executable, "-B", "-c", PROGRAM_WITH.format(changes=changes or {}), PROGRAM, "--listen=127.0.0.1:0",
                 f"--certificate={self.certificate}", f"--key={self.key}", *OPTIONS]
        self.log = pathlib.Path(self.folder, "log")
        with self.log.open("w") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("listening on port "), line + self.log.read_text()
        self.port = int(line.split()[-1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(LIMIT_S)
        self.process.stdout.close()
        text = self.log.read_text()
        shutil.rmtree(self.folder)
        return code, text

    def connect(self, certificate=None):
        context = ssl.create_default_context(cafile=str(certificate or self.certificate))
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=LIMIT_S)

    def request(self, method, path, body=None, headers=None, certificate=None):
        """Returns the status and the body of the answer."""
        connection = self.connect(certificate)
        try:
            connection.request(method, path, body=body, headers={} if headers is None else headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def post(self, body, path="/pod"):
        return self.request("POST", path + "?timeout=5s", body, {"Content-Type": "application/json"})

    def review(self, pod, path="/pod", **changes):
        """The response of the AdmissionReview."""
        status, body = self.post(json.dumps(review_of(pod, **changes)), path)
        assert status == 200, (status, body)
        found = json.loads(body)
        assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview"), found
        assert found["response"]["uid"] == "7f0b2891", found
        return found["response"]

    def patched(self, pod, path="/pod"):
        """The pod as the API server makes it of the answer."""
        try:
            import jsonpatch
        except ImportError as error:
            raise Skip("no Python module jsonpatch") from error
        response = self.review(pod, path)
        assert response["allowed"], response
        if "patch" not in response:
            return pod
        assert response["patchType"] == "JSONPatch", response
        return jsonpatch.JsonPatch.from_string(base64.b64decode(response["patch"]).decode()).apply(copy.deepcopy(pod))


@contextlib.contextmanager
def running(**changes):
    server = Webhook(changes)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()
        shutil.rmtree(server.folder, ignore_errors=True)


def shared():
    """A server that the tests which do not change it share."""
    if not shared.server:
        shared.server = Webhook()
    return shared.server


shared.server = None


def review_of(pod, operation="CREATE", **changes):
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "7f0b2891", "kind": {"group": "", "version": "v1", "kind": "Pod"},
                        "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "research",
                        "operation": operation, "userInfo": {"username": "alice"}, "object": pod, "oldObject": None,
                        "dryRun": False, "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"}, **changes}}


def container(name="train", **fields):
    return {"name": name, "image": "train", "command": ["python", "train.py"], "volumeMounts": [TOKEN], **fields}


def pod_with(*containers, annotations=None, label="true", **spec):
    """A pod as the API server posts it: without a name yet, and with the volume of its service account."""
    metadata = {"generateName": "train-", "namespace": "research", "labels": {"app": "train"}}
    if label is not None:
        metadata["labels"]["gpupool.dev/inject"] = label
    if annotations is not None:
        metadata["annotations"] = {"gpupool.dev/" + key if "/" not in key else key: value for key, value in annotations.items()}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"volumes": [{"name": "token", "emptyDir": {}}], "containers": list(containers or [container()]), **spec}}


def environment_of(container):
    return [(entry["name"], entry.get("value")) for entry in container["env"]]


def a_labelled_pod_gets_the_library_and_the_container_that_installs_it():
    before = pod_with(annotations={"limit": "50%", "pool": "vmm", "group": "train:0=8GiB,*=none", "other.dev/x": "y"})
    after = shared().patched(before)
    first, = after["spec"]["initContainers"]
    assert (first["name"], first["image"], first["imagePullPolicy"]) == ("gpupool-install", "registry/gpupool:1", "IfNotPresent")
    assert first["resources"] == {"limits": {"memory": "64Mi"}}
    security = first["securityContext"]
    assert security["runAsUser"] == 65532 and security["runAsNonRoot"] and security["readOnlyRootFilesystem"]
    assert security["capabilities"] == {"drop": ["ALL"]} and security["allowPrivilegeEscalation"] is False
    assert first["volumeMounts"] == [{"name": "gpupool-library", "mountPath": "/gpupool"}]
    assert after["spec"]["volumes"] == [*before["spec"]["volumes"], {"name": "gpupool-library", "emptyDir": {}}]
    train, = after["spec"]["containers"]
    assert train["env"] == [PRELOAD, {"name": "GPUPOOL_LIMIT", "value": "50%"}, {"name": "GPUPOOL_POOL", "value": "vmm"},
                            {"name": "GPUPOOL_LIMIT_GROUP", "value": "train:0=8GiB,*=none"}, *FIELDS], train["env"]
    assert train["volumeMounts"] == [TOKEN, MOUNT] and train["command"] == ["python", "train.py"]
    assert after["metadata"]["annotations"] == {**before["metadata"]["annotations"], "gpupool.dev/injected": "1.2.3"}


def a_pod_that_does_not_ask_for_gpupool_is_not_changed():
    mirror = {"kubernetes.io/config.mirror": "x"}
    for pod, path in ((pod_with(label=None), "/pod"), (pod_with(label="false"), "/pod"), (pod_with(label="false"), "/namespace"),
                      (pod_with(label="yes"), "/pod"), (pod_with(annotations={"limit": "wrong"}, label=None), "/pod"),
                      (pod_with(annotations=mirror), "/pod"), (pod_with(annotations=mirror, label=None), "/namespace"),
                      ({}, "/pod"), ({"metadata": {"labels": None}}, "/pod")):
        assert shared().review(pod, path) == {"uid": "7f0b2891", "allowed": True}, pod
    for operation in "UPDATE", "DELETE", "CONNECT":
        assert shared().review(pod_with(), operation=operation) == {"uid": "7f0b2891", "allowed": True}


def a_pod_without_a_label_in_a_labelled_namespace_gets_the_library():
    after = shared().patched(pod_with(label=None), "/namespace")
    assert after["spec"]["initContainers"][0]["name"] == "gpupool-install" and PRELOAD in after["spec"]["containers"][0]["env"]


def all_containers_get_the_library_and_init_containers_only_if_they_are_named():
    init = [container("fetch"), container("sidecar", restartPolicy="Always")]
    before = pod_with(container("a"), container("b", env=None, volumeMounts=None), container("c", env=[{"name": "X", "value": "1"}]),
                      initContainers=init)
    spec = shared().patched(before)["spec"]
    assert [one["name"] for one in spec["initContainers"]] == ["gpupool-install", "fetch", "sidecar"]
    assert spec["initContainers"][1:] == init and all(PRELOAD in one["env"] for one in spec["containers"])
    assert spec["containers"][1]["volumeMounts"] == [MOUNT] and spec["containers"][2]["env"][0] == {"name": "X", "value": "1"}
    before["metadata"]["annotations"] = {"gpupool.dev/containers": "b, sidecar"}
    spec = shared().patched(before)["spec"]
    assert spec["containers"][0] == before["spec"]["containers"][0] and spec["containers"][2] == before["spec"]["containers"][2]
    assert PRELOAD in spec["containers"][1]["env"] and PRELOAD in spec["initContainers"][2]["env"]
    assert spec["initContainers"][1] == init[0]


def variables_of_a_container_stay_and_its_preload_follows_the_library():
    ours = PRELOAD["value"]
    for old, new in (([], [ours]), (["/lib/other.so"], [ours + ":/lib/other.so"]), ([""], [ours]), ([None], [ours]),
                     (["a.so $(X)"], [ours + ":a.so $(X)"]), (["a.so", "b.so"], ["a.so", ours + ":b.so"]),
                     ([ours], [ours]), (["a.so:" + ours], ["a.so:" + ours])):
        entries = [{"name": "LD_PRELOAD", **({} if value is None else {"value": value})} for value in old]
        after = shared().patched(pod_with(container(env=[{"name": "A", "value": "1"}, *entries, {"name": "B", "value": "2"}])))
        found = environment_of(after["spec"]["containers"][0])
        assert [value for name, value in found if name == "LD_PRELOAD"] == new, (old, found)
        assert [name for name, _ in found if name in "AB"] == ["A", "B"]
    own = [{"name": "GPUPOOL_LIMIT", "value": "1GiB"}, {"name": "POD_NAME", "value": "own"}, {"name": "GPUPOOL_POOL", "value": ""}]
    after = shared().patched(pod_with(container(env=own), annotations={"limit": "50%", "pool": "vmm"}))
    assert after["spec"]["containers"][0]["env"] == [*own, PRELOAD, FIELDS[1]]


def the_installing_container_runs_as_the_user_of_the_pod():
    for context, user, is_not_root in ((None, 65532, True), ({}, 65532, True), ({"runAsUser": 1000}, None, True),
                                       ({"runAsUser": 0}, None, None), ({"runAsGroup": 5}, 65532, True)):
        security = shared().patched(pod_with(securityContext=context))["spec"]["initContainers"][0]["securityContext"]
        assert (security.get("runAsUser"), security.get("runAsNonRoot")) == (user, is_not_root), (context, security)
    options, _ = webhook.parse(["--certificate=c", "--key=k", "--user=null", *OPTIONS])
    security = webhook.installer(options, {})["securityContext"]
    assert "runAsUser" not in security and "runAsNonRoot" not in security


def sockets_of_the_host_are_mounted_if_the_chart_says_so():
    options, _ = webhook.parse(["--certificate=c", "--key=k", "--host-sockets=true", *OPTIONS])
    patch = {step["path"]: step["value"] for step in webhook.patch_of(pod_with(), options)}
    assert {"name": "gpupool-run", "hostPath": {"path": "/run/gpupool", "type": "Directory"}} in patch["/spec/volumes"]
    assert {"name": "gpupool-run", "mountPath": "/run/gpupool"} in patch["/spec/containers/0/volumeMounts"]


def a_pod_that_has_gpupool_already_is_not_changed_again():
    once = shared().patched(pod_with(container(), annotations={"limit": "1G"}, initContainers=[container("fetch")]))
    assert "patch" not in shared().review(once)
    # A copy of a pod that runs has defaults, a service account and a name, too.
    once["spec"]["initContainers"][0].update(terminationMessagePath="/dev/termination-log", resources={"limits": {"memory": "64Mi"}, "requests": {}})
    once["spec"]["initContainers"][0]["volumeMounts"].append(TOKEN)
    once["spec"]["containers"][0]["volumeMounts"][1]["recursiveReadOnly"] = "Disabled"
    assert "patch" not in shared().review(once)


def refusal(pod, path="/pod"):
    response = shared().review(pod, path)
    assert not response["allowed"] and "patch" not in response and response["status"]["code"] == 422, response
    message = response["status"]["message"]
    assert message.startswith("gpupool: ") and message.isprintable() and len(message) < 400, message
    return message


def annotations_that_gpupool_would_refuse_are_refused_with_the_reason():
    for name, values in {
            "limit": ("", "8Gi", "50", "0", "0%", "0.0G", "101%", "-1G", "1G;2G", "1G\n", "1G\nLD_PRELOAD=x", "$(HOME)", "0=1G,0=2G",
                      "64=1G", "1G,2G", "=1G", "9" * 200, "9" * 100 + "G", "1" * 100000, "½G", "١G", "1.5", "0=1G,", "\u202e1G", "1G "),
            "pool": ("", "VMM", "vmm;", "fast", "vmm\n", "split vmm"),
            "group": ("", ":1G", "a b:1G", "../x:1G", "a:", "a:b:1G", "x" * 48 + ":1G", "x:0", "train"),
            "containers": ("", "other", "train,other", ",", "gpupool-install", "../train", "train;", "\x00"),
            "limits": ("1G",), "inject": ("true",), "": ("x",), "x\x1b[31m": ("y",)}.items():
        for value in values:
            if (name, value) == ("limit", "50"):
                continue  # 50 bytes, which gpupool accepts
            message = refusal(pod_with(annotations={f"gpupool.dev/{name}": value}))
            assert "annotation" in message, (name, value, message)


def limits_that_the_webhook_accepts_are_limits_for_gpupool():
    sizes = ("1", "50", "8GiB", "1.5g", "0.001K", "100%", "12.25%", "0.01%", "none", "999999TB", "999999999m", "0=1G", "0=1G,63=none,*=5%",
             "00012K", "08%", "999999999999999b", "1.000KB")
    for limit in sizes:
        assert webhook.is_limits(limit), limit
        assert webhook.is_group("a.b_c-D:" + limit) and webhook.is_group(limit), limit
        for option in f"--limit={limit}", f"--limit-group={limit}", f"--limit-group=a.b_c-D:{limit}":
            done = subprocess.run([RUN, option, "--print-env"], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (option, done.stderr)
    for limit in ("8Gi", "0", "101%", "0=1G,0=2G"):
        done = subprocess.run([RUN, f"--limit={limit}", "--print-env"], capture_output=True, text=True, check=False)
        assert done.returncode != 0, limit


def a_pod_whose_own_parts_are_in_the_way_is_refused_with_the_reason():
    reference = {"configMapKeyRef": {"name": "x", "key": "y"}}
    for pod, word in (
            (pod_with(container(env=[{"name": "LD_PRELOAD", "valueFrom": reference}])), "reference"),
            # The API server checks names only after the webhook.
            (pod_with(container("a\x1b[2J\n" * 100, env=[{"name": "LD_PRELOAD", "valueFrom": reference}])), "reference"),
            (pod_with(container("\u202e", volumeMounts=[{"name": "token", "mountPath": "/opt/gpupool/\x1b"}])), "/opt/gpupool"),
            (pod_with(container(volumeMounts=[{"name": "token", "mountPath": "/opt/gpupool"}])), "/opt/gpupool"),
            (pod_with(container(volumeMounts=[{"name": "token", "mountPath": "/opt/x/../gpupool//lib/"}])), "/opt/gpupool/lib"),
            (pod_with(volumes=[{"name": "gpupool-library", "hostPath": {"path": "/"}}]), "gpupool-library"),
            (pod_with(container(), container("gpupool-install")), "gpupool-install"),
            (pod_with(initContainers=[container("gpupool-install")]), "gpupool-install"),
            (pod_with(os={"name": "windows"}), "Linux")):
        assert word in refusal(pod), pod


def a_request_that_is_not_from_an_api_server_is_an_error():
    good = review_of(pod_with())

    def changed(**changes):
        return json.dumps({**good, **changes})

    for body in ("", "{", "[]", "null", "1", '"x"', "[" * 100000, b"\xff\xfe", "{}", changed(apiVersion="admission.k8s.io/v1beta1"),
                 changed(kind="Pod"), changed(request=None), changed(request=[]), changed(request={}),
                 json.dumps(review_of(pod_with(), uid="")), json.dumps(review_of(pod_with(), uid=7)),
                 json.dumps(review_of(pod_with(), kind={"kind": "Service"})), json.dumps(review_of([])),
                 json.dumps(review_of({"metadata": []})), json.dumps(review_of({"metadata": {"labels": []}})),
                 *(json.dumps(review_of(pod_with(**{"containers": value}))) for value in ({}, "x", [1], [None], [{"name": 1}])),
                 *(json.dumps(review_of(pod_with(container(**{key: value})))) for key in ("env", "volumeMounts")
                   for value in ({}, "x", [1], [None])),
                 json.dumps(review_of(pod_with(container(env=[{"name": "LD_PRELOAD", "value": 1}])))),
                 json.dumps(review_of(pod_with(container(volumeMounts=[{"mountPath": 1}])))),
                 json.dumps(review_of(pod_with(annotations={"limit": 1}))), json.dumps(review_of(pod_with(annotations={"containers": []}))),
                 json.dumps(review_of(pod_with(volumes={}))), json.dumps(review_of(pod_with(securityContext=[])))):
        status, answer = shared().post(body)
        assert status == 400 and b"Traceback" not in answer, (status, answer, body[:200])
    assert shared().review(pod_with())["allowed"]


def a_wrong_page_method_type_or_length_is_an_error():
    json_type = {"Content-Type": "application/json"}
    body = json.dumps(review_of(pod_with()))
    huge = str(webhook.BODY_MAX + 1)
    for method, path, headers, content, wanted in (
            ("GET", "/healthz", {}, None, 200), ("GET", "/", {}, None, 404), ("GET", "/../etc/passwd", {}, None, 404),
            ("POST", "/", json_type, body, 404), ("POST", "/pods", json_type, body, 404),
            ("POST", "/pod", {"Content-Type": "text/plain"}, body, 415), ("POST", "/pod", {}, body, 415),
            ("POST", "/pod", {"Content-Type": "application/json; charset=utf-8"}, body, 200),
            ("PUT", "/pod", json_type, None, 501), ("DELETE", "/pod", {}, None, 501),
            ("POST", "/pod", {**json_type, "Content-Length": huge}, None, 413),
            ("POST", "/pod", {**json_type, "Content-Length": "9" * 5000}, None, 411),
            ("POST", "/pod", {**json_type, "Content-Length": "-1"}, None, 411),
            ("POST", "/pod", {**json_type, "Transfer-Encoding": "chunked"}, None, 411)):
        status, _ = shared().request(method, path, content, headers)
        assert status == wanted, (method, path, headers, status)
    assert shared().review(pod_with())["allowed"]


def a_body_of_nearly_the_largest_size_is_answered():
    pod = pod_with(annotations={"other.dev/notes": "x" * (webhook.BODY_MAX - 4096)})
    assert shared().review(pod)["allowed"]


def is_closed(connection):
    """Waits until the server ends a connection."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def a_slow_client_delays_no_other_client_and_is_cut_off():
    with running(CONNECTION_S=1) as server:
        slow = [socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) for _ in range(4)]
        half = server.connect()
        half.connect()
        half.sock.sendall(b"POST /pod HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        slow[0].sendall(b"\x16\x03\x01")
        slow[1].sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
        assert server.review(pod_with())["allowed"]
        assert all(is_closed(connection) for connection in (*slow, half.sock))
        assert server.review(pod_with())["allowed"]
        for connection in (*slow, half):
            connection.close()
        code, log = server.stop()
        assert code == 0 and "Traceback" not in log, log


def more_connections_than_the_most_are_refused_and_served_later():
    with running(CONNECTIONS_MAX=2, CONNECTION_S=LIMIT_S) as server:
        held = [socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S) for _ in range(2)]
        third = socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT_S)
        assert is_closed(third)
        for connection in (*held, third):
            connection.close()
        limit = time.monotonic() + LIMIT_S
        while True:
            try:
                assert server.review(pod_with())["allowed"]
                return
            except OSError:
                assert time.monotonic() < limit, "the server never serves again"


def a_renewed_certificate_is_used_for_the_next_connection():
    with running() as server:
        old = server.certificate.read_bytes()
        assert server.request("GET", "/healthz")[0] == 200
        server.certificate.write_text("half of a file")
        first = pathlib.Path(server.folder, "old")
        first.write_bytes(old)
        assert server.request("GET", "/healthz", certificate=first)[0] == 200
        certificate, key = make_certificate(server.folder, "second")
        os.replace(key, server.key)
        os.replace(certificate, server.certificate)
        assert server.request("GET", "/healthz", certificate=server.certificate)[0] == 200
        try:
            server.request("GET", "/healthz", certificate=first)
        except ssl.SSLCertVerificationError:
            return
        raise AssertionError("the old certificate is still used")


def the_log_has_a_line_for_each_pod_and_no_control_character():
    with running() as server:
        pod = pod_with(annotations={"x\x1b[31m": "y"})
        pod["metadata"]["generateName"] = "evil\n\x1b[2Jname-"
        server.review(pod, namespace="a\rb")
        server.review(pod_with(annotations={"limit": "wrong"}))
        server.review(pod_with(label=None))
        code, text = server.stop()
        lines = text.splitlines()
        assert code == 0 and len(lines) == 4 and all(line.isprintable() for line in lines), lines
        for line, outcome in zip(lines[1:], ("refused: there is no", "refused: the annotation", "unchanged"), strict=True):
            assert outcome in line, lines


def a_wrong_option_ends_the_program_with_2():
    files = ["--certificate=c", "--key=k"]
    for words in ([], OPTIONS, *([*files, *OPTIONS, wrong] for wrong in (
            "--listen=x", "--listen=:", "--user=[]", "--user=true", "--user=x", "--host-sockets=1", "--resources=1", "--resources={",
            "--image-pull-policy=Sometimes", "--no-option"))):
        done = subprocess.run([sys.executable, "-B", PROGRAM, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "Traceback" not in done.stderr, (words, done)


def a_missing_certificate_ends_the_program_with_a_reason():
    done = subprocess.run([sys.executable, "-B", PROGRAM, "--certificate=/none/c", "--key=k", "--listen=127.0.0.1:0", *OPTIONS],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "/none/c" in done.stderr and "Traceback" not in done.stderr, done


def install(folder, library):
    """Runs the script of the init container with an image and a volume in this folder. The library is behind a link."""
    image, volume = folder / "image", folder / "volume"
    place = image / "lib/machine/gpupool"
    place.mkdir(parents=True, exist_ok=True)
    volume.mkdir(exist_ok=True)
    if library is not None:
        (image / "lib/gpupool").unlink(missing_ok=True)
        (image / "lib/gpupool").symlink_to("machine/gpupool")
        shutil.copy(library, place / "libgpupool.so")
    script = webhook.INSTALL.replace("/opt/gpupool/", f"{image}/").replace(" /gpupool/", f" {volume}/").replace("=/gpupool/", f"={volume}/")
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    return subprocess.run(["sh", "-euc", script], env=environment, capture_output=True, text=True, check=False)


def the_installing_container_fails_if_the_library_is_missing_or_does_not_load():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        broken = folder / "text"
        broken.write_text("no library\n")
        for library in None, broken:
            done = install(folder, library)
            assert done.returncode != 0 and f"{folder}/volume/lib/gpupool/libgpupool.so does not load" in done.stderr, done
        # A container that is started again completes what an earlier one has left.
        for _ in range(2):
            done = install(folder, LIBRARY)
            assert done.returncode == 0 and not done.stderr, done
        shutil.rmtree(folder / "image")
        script = webhook.INSTALL.replace("/opt/gpupool/", f"{folder}/image/")
        assert subprocess.run(["sh", "-euc", script], capture_output=True, check=False).returncode != 0


def the_shared_server_ends_at_a_signal_without_a_trace():
    code, log = shared().stop()
    shared.server = None
    assert code == 0 and "Traceback" not in log, log


main([
    a_labelled_pod_gets_the_library_and_the_container_that_installs_it,
    a_pod_that_does_not_ask_for_gpupool_is_not_changed,
    a_pod_without_a_label_in_a_labelled_namespace_gets_the_library,
    all_containers_get_the_library_and_init_containers_only_if_they_are_named,
    variables_of_a_container_stay_and_its_preload_follows_the_library,
    the_installing_container_runs_as_the_user_of_the_pod,
    sockets_of_the_host_are_mounted_if_the_chart_says_so,
    a_pod_that_has_gpupool_already_is_not_changed_again,
    annotations_that_gpupool_would_refuse_are_refused_with_the_reason,
    limits_that_the_webhook_accepts_are_limits_for_gpupool,
    a_pod_whose_own_parts_are_in_the_way_is_refused_with_the_reason,
    a_request_that_is_not_from_an_api_server_is_an_error,
    a_wrong_page_method_type_or_length_is_an_error,
    a_body_of_nearly_the_largest_size_is_answered,
    a_slow_client_delays_no_other_client_and_is_cut_off,
    more_connections_than_the_most_are_refused_and_served_later,
    a_renewed_certificate_is_used_for_the_next_connection,
    the_log_has_a_line_for_each_pod_and_no_control_character,
    a_wrong_option_ends_the_program_with_2,
    a_missing_certificate_ends_the_program_with_a_reason,
    the_installing_container_fails_if_the_library_is_missing_or_does_not_load,
    the_shared_server_ends_at_a_signal_without_a_trace,
])
