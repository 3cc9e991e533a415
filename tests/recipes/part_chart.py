# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The chart: rendered by Helm, and checked with the schemas of Kubernetes and of the operators that it uses."""

import base64
import contextlib
import copy
import importlib
import importlib.util
import json
import os
import pathlib
import site
import sys
import tempfile

import recipes
from recipes import RECIPES, Skip, expect, run

CHART = RECIPES + "/helm/gpupool"
ON = {"enabled": True}
SECRET = {"certManager": False, "secret": "own", "caBundle": "UEVN"}
# Values that show each document and each branch of the templates.
VALUES = (
    {},
    {"serviceMonitor": ON, "rules": ON, "dashboard": ON, "webhook": ON},
    {"webhook": {**ON, "hostSockets": True, "certificate": SECRET, "installer": {"user": None}}, "nodeSelector": {"zone": "a b: 'c'"}},
    {"webhook": {**ON, "installer": {"user": 1000650000}}, "halfLimit": "8GiB", "tolerations": [], "exporter": {"port": 12345}},
)
# The versions of Kubernetes that the chart names.
VERSIONS = [f"1.{minor}" for minor in range(25, 38)]
OPERATORS = {"monitoring.coreos.com/v1": "cloudcoil.models.prometheus_operator.v1", "cert-manager.io/v1": "cloudcoil.models.cert_manager.v1"}


def need_module(name):
    """Imports a module of the environment that the script made of requirements.txt."""
    folders = list(pathlib.Path(recipes.BUILD, "recipes-venv/lib").glob(f"python3.{sys.version_info[1]}/site-packages"))
    for folder in folders:
        if str(folder) not in sys.path:
            site.addsitedir(str(folder))
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skip(f"there is no Python module {name} ({error})") from error


@contextlib.contextmanager
def quiet():
    """Helm tells of each linked file on the standard error, from Go."""
    saved = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def documents_of(texts):
    yaml = need_module("yaml")
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def by_helm(folder, values):
    helm = need_module("helm_python")
    with quiet(), helm.Chart.load(folder) as chart:
        found = chart.render(values=values, name="pool", namespace="gpu")
    return documents_of(text for _, text in sorted(found.items()))


def all_documents(root):
    """Each document that the chart can have, as our renderer renders it."""
    renderer = importlib.import_module("chart")
    return [document for values in VALUES for document in renderer.documents(root / CHART, **values)]


def helm_finds_no_fault_in_the_chart(root):
    helm = need_module("helm_python")
    for values in VALUES:
        with quiet():
            report = helm.lint(root / CHART, values, strict=True)
        wrong = [message for message in report["messages"] if message["error"] != "icon is recommended"]
        expect(not wrong and not report["errors"], f"{values}: {wrong} {report['errors']}")


def helm_renders_the_same_as_the_renderer_of_the_tests(root):
    renderer = importlib.import_module("chart")
    for values in VALUES:
        ours, theirs = renderer.documents(root / CHART, **values), by_helm(root / CHART, values)
        expect(ours == theirs, f"{values}: the renderers differ:\n{json.dumps(ours)}\n{json.dumps(theirs)}")


def helm_refuses_a_webhook_without_a_certificate(root):
    helm = need_module("helm_python")
    for name in "secret", "caBundle":
        try:
            by_helm(root / CHART, {"webhook": {**ON, "certificate": {**SECRET, name: ""}}})
        except helm.HelmRenderError as error:
            expect(f"webhook.certificate.{name} is needed" in str(error), str(error))
            continue
        expect(False, f"Helm renders the chart without {name}")


def helm_refuses_a_value_that_the_chart_does_not_have(root):
    helm = need_module("helm_python")
    for wrong in ({"webhok": ON}, {"webhook": {"enable": True}}, {"webhook": {"enabled": "false"}}, {"image": {"pullPolicy": "Sometimes"}},
                  {"exporter": {"port": 0}}, {"installFolder": "opt gpupool"}, {"webhook": {"installer": {"user": -1}}},
                  {"serviceMonitor": {"interval": 30}}, {"webhook": {"certificate": {"caBundle": "-----BEGIN"}}}):
        try:
            by_helm(root / CHART, wrong)
        except helm.HelmError as error:
            expect(next(iter(wrong)) in str(error), str(error))
            continue
        expect(False, f"Helm renders the chart with {wrong}")


def a_package_of_the_chart_has_the_files_that_the_chart_links(root):
    helm = need_module("helm_python")
    with tempfile.TemporaryDirectory() as folder:
        with quiet():
            helm.package(root / CHART, destination=folder)
        package, = pathlib.Path(folder).iterdir()
        expect(by_helm(package, VALUES[1]) == by_helm(root / CHART, VALUES[1]), "the package renders something else")


def operator_fault(document):
    """The reason why the model of an operator's resource does not accept a document, or None."""
    module = need_module(OPERATORS[document["apiVersion"]])
    try:
        model = getattr(module, document["kind"]).model_validate(document)
    except ValueError as error:
        return str(error)

    def unknown(theirs, known, path):
        if isinstance(theirs, list):
            return [name for index, item in enumerate(theirs) for name in unknown(item, known[index], f"{path}[{index}]")]
        if not isinstance(theirs, dict):
            return []
        return [name for key, item in theirs.items()
                for name in (unknown(item, known[key], f"{path}.{key}") if key in known else [f"{path}.{key}"])]
    # The models drop what they do not know.
    extra = unknown(document, model.model_dump(mode="json", by_alias=True, exclude_unset=True), document["kind"])
    return f"unknown: {extra}" if extra else None


def fault(document, version):
    """The reason why a version of Kubernetes does not accept a document, or None."""
    if document["apiVersion"] in OPERATORS:
        return operator_fault(document)
    schemas = need_module("kubernetes_validate")
    try:
        schemas.validate(document, version, strict=True)
    except schemas.ValidationError as error:
        return f"{list(error.path)}: {error.message}"
    return None


def each_document_of_the_chart_fits_the_schema_of_its_kind(root):
    documents = all_documents(root)
    kinds = {document["kind"] for document in documents}
    expect(len(kinds) >= 10 and len(documents) > 20, f"only {kinds}")
    for version in VERSIONS:
        for document in documents:
            wrong = fault(document, version)
            expect(not wrong, f"Kubernetes {version}: {document['kind']}: {wrong}")


def a_mistake_in_each_document_does_not_fit_the_schema(root):
    for document in all_documents(root):
        wrong = copy.deepcopy(document)
        part = wrong["spec"] if "spec" in wrong else wrong["webhooks"][0] if "webhooks" in wrong else wrong
        part["noSuchField"] = 1
        expect(fault(wrong, VERSIONS[-1]), f"{document['kind']}: a field that does not exist is accepted")


def load_webhook(root):
    spec = importlib.util.spec_from_file_location("webhook", root / CHART / "files/gpupool-webhook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def patched(root, pod, *words):
    """A pod as the webhook of the chart changes it."""
    jsonpatch = need_module("jsonpatch")
    webhook = load_webhook(root)
    options, _ = webhook.parse(["--certificate=c", "--key=k", "--image=localhost/gpupool", "--version=1", *words])
    request = {"uid": "1", "kind": {"kind": "Pod"}, "operation": "CREATE", "object": pod}
    review, line = webhook.answer(json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}),
                                  False, options)
    response = review["response"]
    expect(response["allowed"] and "patch" in response, line)
    return jsonpatch.apply_patch(pod, base64.b64decode(response["patch"]).decode())


def labelled(spec, **annotations):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "train", "labels": {"gpupool.dev/inject": "true"},
                         "annotations": {"gpupool.dev/" + key: value for key, value in annotations.items()}},
            "spec": spec}


def a_pod_that_the_webhook_patches_fits_the_schema(root):
    plain = {"name": "train", "image": "train"}
    full = {**plain, "name": "b", "env": [{"name": "LD_PRELOAD", "value": "a.so"}], "volumeMounts": [{"name": "x", "mountPath": "/x"}]}
    for spec in ({"containers": [plain]}, {"containers": [plain, full], "initContainers": [{**plain, "name": "c"}],
                                           "volumes": [{"name": "x", "emptyDir": {}}], "securityContext": {"runAsUser": 1000}}):
        for words in (), ("--host-sockets=true", "--user=null", '--resources={"limits": {"cpu": "100m"}}'):
            pod = patched(root, labelled(spec, limit="50%", pool="vmm", group="train:8GiB"), *words)
            for version in VERSIONS:
                wrong = fault(pod, version)
                expect(not wrong, f"Kubernetes {version}: {wrong}")


def a_patched_pod_is_allowed_by_pod_security(root):
    """Checks the rules of the profile "restricted" that a container can break, which no schema has."""
    webhook_pod = patched(root, labelled({"containers": [{"name": "train", "image": "train"}]}))
    first, = webhook_pod["spec"]["initContainers"]
    deployment = next(document for document in all_documents(root) if document["kind"] == "Deployment")
    template = deployment["spec"]["template"]["spec"]
    program, = template["containers"]
    for context in first["securityContext"], {**template["securityContext"], **program["securityContext"]}:
        expect(context["runAsNonRoot"] is True and context["runAsUser"] > 0, str(context))
        expect(context["allowPrivilegeEscalation"] is False and context["capabilities"] == {"drop": ["ALL"]}, str(context))
        expect(context["seccompProfile"] == {"type": "RuntimeDefault"}, str(context))
    for volume in (*webhook_pod["spec"]["volumes"], *template["volumes"]):
        expect(set(volume) - {"name"} <= {"emptyDir", "configMap", "secret"}, str(volume))


def the_rules_of_the_chart_are_ones_of_prometheus(root):
    recipes.need("promtool")
    yaml = need_module("yaml")
    rules, = (document for document in all_documents(root) if document["kind"] == "PrometheusRule")
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        yaml.safe_dump(rules["spec"], file)
        file.flush()
        run(f"promtool check rules {file.name}")


STEPS = [
    helm_finds_no_fault_in_the_chart,
    helm_renders_the_same_as_the_renderer_of_the_tests,
    helm_refuses_a_webhook_without_a_certificate,
    helm_refuses_a_value_that_the_chart_does_not_have,
    a_package_of_the_chart_has_the_files_that_the_chart_links,
    each_document_of_the_chart_fits_the_schema_of_its_kind,
    a_mistake_in_each_document_does_not_fit_the_schema,
    a_pod_that_the_webhook_patches_fits_the_schema,
    a_patched_pod_is_allowed_by_pod_security,
    the_rules_of_the_chart_are_ones_of_prometheus,
]
