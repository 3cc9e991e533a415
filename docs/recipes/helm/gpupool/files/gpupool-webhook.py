# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Adds gpupool to the pods that ask for it: the webhook of the chart. It needs nothing but Python's standard library.

The API server posts an AdmissionReview for each new pod that the MutatingWebhookConfiguration selects. The answer is a
JSON patch, or the reason why the pod is refused. An answer depends on nothing but the pod and the options of this
program: it asks no API, has no secrets but its key, and keeps no state. So any client may call it.
"""

import argparse
import base64
import http.server
import json
import os
import posixpath
import re
import signal
import ssl
import sys
import threading

PREFIX = "gpupool.dev/"
LABEL = PREFIX + "inject"
FOLDER = "/opt/gpupool"
LIBRARY = FOLDER + "/lib/gpupool/libgpupool.so"
RUN_DIR = "/run/gpupool"
INSTALLER = "gpupool-install"  # the init container
VOLUME, RUN_VOLUME = "gpupool-library", "gpupool-run"

BODY_MAX = 4 << 20      # a request to the API server has 3 MiB at most
CONNECTIONS_MAX = 32
CONNECTION_S = 10       # from the accept to the close; the API server waits for less

SIZE = (r"[0-9]{1,6}(?:\.[0-9]{1,3})?[GTgt](?:[Ii]?[Bb])?|[0-9]{1,9}(?:\.[0-9]{1,3})?[KMkm](?:[Ii]?[Bb])?|"
        r"[0-9]{1,15}[Bb]?")
LIMIT = rf"none|(?![0.]+(?![0-9.]))(?:{SIZE}|(?:[0-9]{{1,2}}(?:\.[0-9]{{1,2}})?|100)%)"
DEVICE = r"[0-9]|[1-5][0-9]|6[0-3]|\*"


def is_limits(text):
    """True for what GPUPOOL_LIMIT takes. It accepts nothing that gpupool refuses."""
    if not re.search("[=,]", text):
        return bool(re.fullmatch(LIMIT, text))
    entries = [entry.partition("=") for entry in text.split(",")]
    return len({device for device, _, _ in entries}) == len(entries) and \
        all(re.fullmatch(DEVICE, device) and re.fullmatch(LIMIT, limit) for device, _, limit in entries)


def is_group(text):
    name, colon, limits = text.rpartition(":")
    return is_limits(limits) and (not colon or bool(re.fullmatch("[A-Za-z0-9._-]{1,47}", name)))


def is_pool(text):
    return text in ("none", "simple", "binned", "split", "vmm", "auto")


# An annotation, the variable that it becomes, its check, and what a value may be.
SETTINGS = (
    ("limit", "GPUPOOL_LIMIT", is_limits, "a limit such as 8GiB, 50% or 0=8GiB,1=50%"),
    ("pool", "GPUPOOL_POOL", is_pool, "none, simple, binned, split, vmm or auto"),
    ("group", "GPUPOOL_LIMIT_GROUP", is_group, "a limit such as 8GiB or train:8GiB"),
)
CONTAINERS = "containers"
ANNOTATIONS = {CONTAINERS, "injected", *(name for name, _, _, _ in SETTINGS)}
FIELDS = (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"))

# The check runs in a shell that has the library preloaded. The loader only warns about a library that it cannot load.
# The list of mapped files has the file behind a link.
INSTALL = f"""\
cp -r {FOLDER}/. /gpupool/
export LD_PRELOAD=/gpupool{LIBRARY.removeprefix(FOLDER)}
exec sh -c 'while read -r line; do case $line in */libgpupool.so*) exit 0 ;; esac; done </proc/self/maps
echo "gpupool: $LD_PRELOAD does not load" >&2
exit 1'
"""


class Malformed(Exception):
    """The request is not one of an API server."""


class Refused(Exception):
    """The pod cannot get gpupool; the text tells its owner why."""


def field(value, name, kind):
    """A member of an object, or an empty value of its kind if it is missing or null."""
    found = value.get(name)
    if found is None:
        return kind()
    if not isinstance(found, kind):
        raise Malformed(f"{name} is not of the type {kind.__name__}")
    return found


def objects(value, name):
    found = field(value, name, list)
    if not all(isinstance(item, dict) for item in found):
        raise Malformed(f"{name} has an item that is not an object")
    return found


def contains(theirs, ours):
    """True if an object has all that ours has. The API server adds defaults."""
    if isinstance(ours, dict):
        return isinstance(theirs, dict) and all(key in theirs and contains(theirs[key], ours[key]) for key in ours)
    if isinstance(ours, list):
        return isinstance(theirs, list) and all(any(contains(item, own) for item in theirs) for own in ours)
    return theirs == ours


def named(items, name):
    return next((item for item in items if item.get("name") == name), None)


def settings_of(annotations):
    """The variables that the annotations of a pod ask for."""
    variables = {}
    for key in annotations:
        if key.startswith(PREFIX) and key.removeprefix(PREFIX) not in ANNOTATIONS:
            known = ", ".join(PREFIX + name for name in sorted(ANNOTATIONS))
            raise Refused(f"there is no annotation {key[:80]!a}; there are {known}")
    for name, variable, is_valid, wanted in SETTINGS:
        value = annotations.get(PREFIX + name)
        if value is None:
            continue
        if not isinstance(value, str):
            raise Malformed(f"the annotation {name} is not a string")
        if not is_valid(value):
            raise Refused(f"the annotation {PREFIX}{name} is not {wanted}")
        variables[variable] = value
    return variables


def chosen(annotations, spec):
    """The containers that get the library, with their places in the pod: by default all but init containers."""
    everything = {}
    for kind in "initContainers", "containers":
        for index, container in enumerate(objects(spec, kind)):
            everything[field(container, "name", str)] = (kind, index, container)
    text = annotations.get(PREFIX + CONTAINERS)
    if text is None:
        return [item for item in everything.values() if item[0] == "containers"]
    if not isinstance(text, str):
        raise Malformed("the annotation containers is not a string")
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name == INSTALLER or name not in everything:
            raise Refused(f"the annotation {PREFIX}{CONTAINERS} names {name[:63]!a}, which is no container of the pod")
    return [everything[name] for name in dict.fromkeys(names)]


def preloaded(entries, name):
    """Puts the library in front of what the container preloads itself. Of several entries the last one counts."""
    at = max((i for i, entry in enumerate(entries) if entry.get("name") == "LD_PRELOAD"), default=None)
    if at is None:
        return [*entries, {"name": "LD_PRELOAD", "value": LIBRARY}]
    if entries[at].get("valueFrom") is not None:
        raise Refused(f"the container {name[:63]!a} takes LD_PRELOAD from a reference, so gpupool cannot be put in front "
                      "of it; give it a value")
    old = field(entries[at], "value", str)
    if LIBRARY in re.split("[ :]", old):
        return entries
    return [*entries[:at], {"name": "LD_PRELOAD", "value": f"{LIBRARY}:{old}" if old else LIBRARY}, *entries[at + 1:]]


def environment(container, variables):
    """The container's variables with those of gpupool. Variables that the container sets itself stay as they are."""
    entries = preloaded(objects(container, "env"), field(container, "name", str))
    for name, value in variables.items():
        if not named(entries, name):
            entries = [*entries, {"name": name, "value": value}]
    for name, path in FIELDS:
        if not named(entries, name):
            entries = [*entries, {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    return entries


def mounts(container, wanted):
    """The container's mounts with those of gpupool."""
    found = objects(container, "volumeMounts")
    for mount in wanted:
        place = mount["mountPath"]
        if any(contains(other, mount) for other in found):
            continue
        for other in found:
            path = posixpath.normpath(field(other, "mountPath", str) or "/")
            if path == place or path.startswith(place + "/"):
                raise Refused(f"the container {field(container, 'name', str)[:63]!a} has a mount of its own at "
                              f"{path[:80]!a}, where gpupool is mounted")
        found = [*found, mount]
    return found


def added(items, ours, what):
    """True if the pod lacks this item. An item of the same name must be the same one."""
    found = named(items, ours["name"])
    if found and not contains(found, ours):
        raise Refused(f"the pod has a {what} {ours['name']} of its own")
    return not found


def installer(options, spec):
    """The init container: nothing of the pod starts before the library is in place and has been loaded once."""
    security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"}}
    user = field(spec, "securityContext", dict).get("runAsUser")
    if user is None and options.user is not None:
        user = security["runAsUser"] = options.user
    if user:
        security["runAsNonRoot"] = True
    return {"name": INSTALLER, "image": options.image, "imagePullPolicy": options.image_pull_policy,
            "command": ["sh", "-euc", INSTALL], "resources": options.resources, "securityContext": security,
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{"name": VOLUME, "mountPath": "/gpupool"}]}


def patch_of(pod, options):
    """The operations that add gpupool to a pod; none if it has it already."""
    metadata, spec = field(pod, "metadata", dict), field(pod, "spec", dict)
    annotations = field(metadata, "annotations", dict)
    if field(spec, "os", dict).get("name") == "windows":
        raise Refused("gpupool runs on Linux only")
    variables = settings_of(annotations)
    volumes = [{"name": VOLUME, "emptyDir": {}}]
    wanted = [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}]
    if options.host_sockets:
        volumes.append({"name": RUN_VOLUME, "hostPath": {"path": RUN_DIR, "type": "Directory"}})
        wanted.append({"name": RUN_VOLUME, "mountPath": RUN_DIR})

    patch = []

    def put(path, old, new):
        if new != old:
            patch.append({"op": "add", "path": path, "value": new})

    for kind, index, container in chosen(annotations, spec):
        path = f"/spec/{kind}/{index}"
        put(path + "/env", objects(container, "env"), environment(container, variables))
        put(path + "/volumeMounts", objects(container, "volumeMounts"), mounts(container, wanted))
    old = objects(spec, "volumes")
    put("/spec/volumes", old, old + [volume for volume in volumes if added(old, volume, "volume")])
    first, others = installer(options, spec), objects(spec, "initContainers")
    if named(objects(spec, "containers"), INSTALLER):
        raise Refused(f"the pod has a container {INSTALLER} of its own")
    if added(others, first, "init container"):
        # The paths above are those before this insertion, so it comes after them.
        patch.append({"op": "add", "path": "/spec/initContainers/0", "value": first} if others else
                     {"op": "add", "path": "/spec/initContainers", "value": [first]})
    put("/metadata/annotations", annotations, {**annotations, PREFIX + "injected": options.version})
    return patch


def is_selected(pod, by_namespace):
    """
    The webhook's configuration selects pods, too. A mistake in it must not change a pod that did not ask, nor one that
    said no.
    """
    metadata = field(pod, "metadata", dict)
    if "kubernetes.io/config.mirror" in field(metadata, "annotations", dict):
        return False  # a static pod: the kubelet has started it already
    label = field(metadata, "labels", dict).get(LABEL)
    return label == "true" or (by_namespace and label != "false")


def answer(body, by_namespace, options):
    """The AdmissionReview that answers a request, and a line for the log."""
    try:
        review = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed("the body is not JSON") from error
    if not isinstance(review, dict) or \
            (review.get("apiVersion"), review.get("kind")) != ("admission.k8s.io/v1", "AdmissionReview"):
        raise Malformed("the body is not an AdmissionReview of admission.k8s.io/v1")
    request = field(review, "request", dict)
    uid, pod = field(request, "uid", str), field(request, "object", dict)
    if not uid or field(request, "kind", dict).get("kind") != "Pod":
        raise Malformed("the request has no uid, or is not for a pod")
    response = {"uid": uid, "allowed": True}
    outcome = "unchanged"
    if request.get("operation") == "CREATE" and is_selected(pod, by_namespace):
        try:
            patch = patch_of(pod, options)
        except Refused as why:
            response.update(allowed=False, status={"code": 422, "message": f"gpupool: {why}"})
            outcome = f"refused: {why}"
        else:
            if patch:
                response.update(patchType="JSONPatch", patch=base64.b64encode(json.dumps(patch).encode()).decode())
                outcome = "injected"
    metadata = field(pod, "metadata", dict)
    name = metadata.get("name") or metadata.get("generateName")
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}, \
        f"{str(request.get('namespace'))[:64]!a} {str(name)[:256]!a} {outcome}"


def log(text):
    print(text, file=sys.stderr, flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request a connection: a connection that stays open could end just as the API server uses it again."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "gpupool-webhook", ""

    def log_message(self, *unused):
        pass

    def reply(self, status, body, content_type="text/plain; charset=utf-8"):
        self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, why):
        log(f"{self.client_address[0]} refused with {status}: {why}")
        self.reply(status, f"{why}\n".encode())

    def do_GET(self):
        if self.path == "/healthz":
            self.reply(200, b"ok\n")
        else:
            self.refuse(404, "there is no such page")

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        path = self.path.partition("?")[0]  # the API server adds ?timeout=
        if not re.fullmatch("[0-9]{1,10}", length):
            self.refuse(411, "the request has no usable Content-Length")
            return
        if int(length) > BODY_MAX:
            self.refuse(413, f"the request has more than {BODY_MAX} bytes")
            return
        # Also what is refused is read: a connection that closes with unread bytes may lose the answer.
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
        elif path not in ("/pod", "/namespace"):
            self.refuse(404, "there is no such page")
        elif self.headers.get_content_type() != "application/json":
            self.refuse(415, "the content is not application/json")
        else:
            self.respond(body, path == "/namespace")

    def respond(self, body, by_namespace):
        try:
            review, line = answer(body, by_namespace, self.server.options)
        except Malformed as why:
            self.refuse(400, str(why))
            return
        log(line)
        self.reply(200, json.dumps(review).encode(), "application/json")


class Server(http.server.ThreadingHTTPServer):
    """Serves a bounded number of connections, each in a thread, for a bounded time, the handshake included."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address, options):
        self.options = options
        self.slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self.stamp, self.context = None, None
        self.reload()
        super().__init__(address, Handler)

    def reload(self):
        """Reads a renewed certificate: the kubelet replaces the files."""
        files = self.options.certificate, self.options.key
        try:
            stamp = [(found.st_mtime_ns, found.st_ino) for found in map(os.stat, files)]
            if stamp == self.stamp:
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*files)
            self.stamp, self.context = stamp, context
            log("using the certificate of " + files[0])
        except OSError as error:
            if not self.context:
                raise
            log(f"going on with the old certificate: {error}")

    def process_request(self, request, client_address):
        if not self.slots.acquire(blocking=False):
            log(f"{client_address[0]} refused: {CONNECTIONS_MAX} connections are open")
            self.shutdown_request(request)
            return
        self.reload()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.slots.release()
            raise

    def process_request_thread(self, request, client_address):
        timer = None
        try:
            with self.context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as secure:
                timer = threading.Timer(CONNECTION_S, cut, [secure])
                timer.start()
                secure.do_handshake()
                self.finish_request(secure, client_address)
        except OSError as error:
            log(f"{client_address[0]} failed: {error}")
        finally:
            if timer:
                timer.cancel()
            self.slots.release()


def cut(secure):
    """Ends a connection from another thread, whose call returns at once."""
    try:
        super(ssl.SSLSocket, secure).shutdown(2)
    except OSError:
        pass  # it has ended meanwhile


def parse(words):
    parser = argparse.ArgumentParser(description="Adds gpupool to the pods that ask for it.", allow_abbrev=False)
    parser.add_argument("--listen", default=":8443", metavar="[ADDRESS]:PORT", help="default: all addresses, port 8443")
    parser.add_argument("--certificate", required=True, metavar="FILE",
                        help="certificate of the service, with its chain (PEM)")
    parser.add_argument("--key", required=True, metavar="FILE", help="its private key (PEM)")
    parser.add_argument("--image", required=True, help=f"image that has gpupool in {FOLDER}")
    parser.add_argument("--image-pull-policy", default="IfNotPresent", choices=("Always", "IfNotPresent", "Never"))
    parser.add_argument("--user", type=json.loads, default=65532, metavar="UID",
                        help="user of the init container in pods that name none; null: that of the image")
    parser.add_argument("--resources", type=json.loads, default={}, metavar="JSON",
                        help="resources of the init container")
    parser.add_argument("--host-sockets", type=json.loads, default=False, metavar="true|false",
                        help=f"mount {RUN_DIR} of the host into the pods")
    parser.add_argument("--version", required=True, help=f"value of the annotation {PREFIX}injected")
    options = parser.parse_args(words)
    address, _, port = options.listen.rpartition(":")
    if not port.isdigit():
        parser.error(f"--listen: {options.listen!r} has no port")
    if not (options.user is None or type(options.user) is int) or not isinstance(options.resources, dict) \
            or not isinstance(options.host_sockets, bool):
        parser.error("--user needs a number or null, --resources an object, --host-sockets true or false")
    return options, (address, int(port))


def main():
    options, address = parse(sys.argv[1:])
    try:
        server = Server(address, options)
    except OSError as error:
        sys.exit(f"gpupool-webhook: cannot serve with {options.certificate} on {options.listen}: {error}")
    # shutdown() waits for the loop, which this thread runs.
    signal.signal(signal.SIGTERM, lambda *unused: threading.Thread(target=server.shutdown).start())
    print(f"listening on port {server.server_address[1]}", flush=True)
    server.serve_forever()
    server.server_close()


if __name__ == "__main__":
    main()
