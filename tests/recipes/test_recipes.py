# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_recipes.py ROOT VERSION LIBRARY

Checks the recipes as far as that needs neither root nor services, which `scripts/recipes-test` needs.
"""

import ast
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT, VERSION, LIBRARY = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
RECIPES = ROOT / "docs/recipes"
sys.path.insert(0, str(ROOT / "tests/readers"))
sys.path.insert(0, str(ROOT / "tests/recipes"))

from readers import Skip, main  # noqa: E402

PAGES = ("docs/hpc.md", "docs/containers.md")
PLACEHOLDERS = r"\b(PID|ID|IMAGE|CONTAINER)\b"
# Commands of these pages that other scripts run: a pattern of the script's text.
ELSEWHERE = {"scripts/package tarball": ("scripts/package-test", r'"scripts/package"|scripts/package \{kind\}')}


def commands_of(page):
    """The lines of the code blocks of a page, without comments; lines that a backslash continues are joined."""
    text = re.sub(r" *\\\n *", " ", (ROOT / page).read_text())
    for line in re.findall(r"(?m)^    (?! )(\S.*)$", text):
        yield re.sub(r" +# .*$", "", line).rstrip()


def texts_that_run():
    """All lines of texts in the parts of scripts/recipes-test; a variable in an f-string stands as {}."""
    for path in sorted((ROOT / "tests/recipes").glob("*.py")):
        if path.name in ("test_recipes.py", "test_webhook.py", "chart.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from node.value.splitlines()


def unrun_commands(page, texts):
    for command in commands_of(page):
        script, pattern = ELSEWHERE.get(command, (None, None))
        if script and re.search(pattern, (ROOT / script).read_text()):
            continue
        if re.sub(PLACEHOLDERS, r"$\1", command) not in texts:
            yield command


def each_command_of_the_pages_is_one_that_a_script_runs():
    texts = {text.strip() for text in texts_that_run()}
    for page in PAGES:
        assert len(list(commands_of(page))) > 8, "the page has no commands"
        unrun = list(unrun_commands(page, texts))
        assert not unrun, f"{page}: no part of scripts/recipes-test runs {unrun}"


def a_command_that_no_script_runs_is_found():
    texts = {text.strip() for text in texts_that_run()}
    texts.discard("srun -n 4 gpupool-run --limit=25% ./simulation")
    assert list(unrun_commands("docs/hpc.md", texts)) == ["srun -n 4 gpupool-run --limit=25% ./simulation"]


def each_recipe_is_in_the_table_of_its_folder():
    table = (RECIPES / "README.md").read_text()
    for path in RECIPES.iterdir():
        assert not path.is_dir() or f"[{path.name}]({path.name})" in table, path


def prolog(**environment):
    """The variables that the TaskProlog sets, with a library that exists."""
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder, "libgpupool.so")
        library.touch()
        script = (RECIPES / "slurm/gpupool-task-prolog").read_text()
        script = re.sub(r"(?m)^library=.*$", f"library={library}", script)
        done = subprocess.run(["sh", "-c", script], env={"PATH": os.environ["PATH"], **environment}, capture_output=True,
                              text=True, check=True)
        assert not done.stderr, done.stderr
        lines = [re.fullmatch(r"export (\w+)=([^'\"]*)", line) for line in done.stdout.splitlines()]
        assert all(lines), done.stdout
        return {line[1]: line[2].replace(str(library), "LIBRARY") for line in lines}


def the_task_prolog_makes_a_limit_of_the_shards_of_a_job():
    for shards, tasks, limit in (("4", "2", "25%"), ("8", "1", None), ("1", "1", "12%"), ("1", "64", "1%"), ("16", "1", None),
                                 ("4", "2(x3)", "25%"), ("4", "4(x2),2", "12%"), ("4", "1,4", "12%"), ("", "1", None),
                                 ("many", "1", None), ("4", "", "50%"), ("0", "1", None)):
        found = prolog(SLURM_SHARDS_ON_NODE=shards, SLURM_STEP_TASKS_PER_NODE=tasks)
        assert found == {"LD_PRELOAD": "LIBRARY", **({"GPUPOOL_LIMIT": limit} if limit else {})}, (shards, tasks, found)


def the_task_prolog_keeps_the_settings_of_the_user():
    assert prolog(GPUPOOL="off", SLURM_SHARDS_ON_NODE="4") == {}
    assert prolog(GPUPOOL_LIMIT="1GiB", SLURM_SHARDS_ON_NODE="4") == {"LD_PRELOAD": "LIBRARY"}
    assert prolog(LD_PRELOAD="libc.so.6") == {"LD_PRELOAD": "LIBRARY:libc.so.6"}


def the_CDI_file_has_a_library_in_each_device():
    check_cdi(json.loads((RECIPES / "containers/gpupool.json").read_text()), "/opt/apps/gpupool")


def check_cdi(document, folder):
    assert re.fullmatch(r"0\.\d\.0", document["cdiVersion"]) and document["kind"] == "gpupool.dev/pool"
    assert [device["name"] for device in document["devices"]] == ["all", "half"]
    library = "LD_PRELOAD=/opt/gpupool/lib/gpupool/libgpupool.so"
    assert all(library in device["containerEdits"]["env"] for device in document["devices"])
    mounts = {mount["containerPath"]: mount for mount in document["containerEdits"]["mounts"]}
    assert mounts["/opt/gpupool"]["hostPath"] == folder and "ro" in mounts["/opt/gpupool"]["options"]
    assert mounts["/run/gpupool"]["hostPath"] == "/run/gpupool"


SECRET = {"certManager": False, "secret": "own", "caBundle": "UEVN"}


def chart(**changes):
    try:
        import chart as renderer
    except ImportError as error:
        raise Skip("no Python module yaml") from error
    return {(document["kind"], document["metadata"]["name"]): document
            for document in renderer.documents(RECIPES / "helm/gpupool", **changes)}


def the_chart_has_its_optional_documents_only_if_they_are_switched_on():
    plain = {("ConfigMap", "pool-install"), ("DaemonSet", "pool"), ("Service", "pool")}
    assert set(chart()) == plain
    on = {"enabled": True}
    assert set(chart(serviceMonitor=on, rules=on, dashboard=on)) == plain | {
        ("ServiceMonitor", "pool"), ("PrometheusRule", "pool"), ("ConfigMap", "pool-dashboard")}
    with_secret = plain | {(kind, "pool-webhook") for kind in (
        "MutatingWebhookConfiguration", "ConfigMap", "Service", "PodDisruptionBudget", "Deployment")}
    assert set(chart(webhook=on)) == with_secret | {("Issuer", "pool-webhook"), ("Certificate", "pool-webhook")}
    assert set(chart(webhook={**on, "certificate": SECRET})) == with_secret


def the_chart_has_the_rules_and_the_dashboard_of_the_tools():
    documents = chart(rules={"enabled": True}, dashboard={"enabled": True})
    import yaml
    rules = yaml.safe_load((ROOT / "tools/export/gpupool-rules.yml").read_text())
    assert documents["PrometheusRule", "pool"]["spec"] == rules
    dashboard = (ROOT / "tools/export/gpupool-grafana.json").read_text()
    assert json.loads(documents["ConfigMap", "pool-dashboard"]["data"]["gpupool.json"]) == json.loads(dashboard)


def the_names_and_labels_of_the_chart_fit_together():
    documents = chart(serviceMonitor={"enabled": True})
    daemon, service = documents["DaemonSet", "pool"], documents["Service", "pool"]
    labels = daemon["spec"]["template"]["metadata"]["labels"]
    assert daemon["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    monitor = documents["ServiceMonitor", "pool"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    pod = daemon["spec"]["template"]["spec"]
    exporter, = pod["containers"]
    assert exporter["ports"][0]["name"] == service["spec"]["ports"][0]["targetPort"] == exporter["readinessProbe"]["httpGet"]["port"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in (*pod["containers"], *pod["initContainers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert container["image"] == "gpupool:" + VERSION, container["image"]


def the_exporter_of_the_chart_has_the_capabilities_of_the_unit():
    unit = (RECIPES / "systemd/gpupool-exporter.service").read_text()
    wanted = re.findall(r"CAP_(\w+)", re.search(r"(?m)^CapabilityBoundingSet=(.*)$", unit)[1])
    pod = chart()["DaemonSet", "pool"]["spec"]["template"]["spec"]
    context = pod["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": wanted} and context["readOnlyRootFilesystem"]
    assert pod["hostPID"] is True and not context["allowPrivilegeEscalation"]


def the_chart_has_the_CDI_devices_of_the_file_for_containers():
    text = chart()["ConfigMap", "pool-install"]["data"]["gpupool.json"]
    file = (RECIPES / "containers/gpupool.json").read_text()
    assert json.loads(text.replace("@FOLDER@", "/opt/apps/gpupool")) == json.loads(file)


def load_webhook():
    spec = importlib.util.spec_from_file_location("webhook", RECIPES / "helm/gpupool/files/gpupool-webhook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def the_webhook_is_asked_about_pods_and_namespaces_with_the_label_alone():
    configuration = chart(webhook={"enabled": True})["MutatingWebhookConfiguration", "pool-webhook"]
    by_pod, by_namespace = configuration["webhooks"]
    assert by_pod["objectSelector"] == {"matchLabels": {"gpupool.dev/inject": "true"}}
    assert by_namespace["namespaceSelector"]["matchLabels"] == {"gpupool.dev/inject": "true"}
    # Each selected pod is asked about once.
    expression, = by_namespace["objectSelector"]["matchExpressions"]
    assert expression == {"key": "gpupool.dev/inject", "operator": "NotIn", "values": ["true", "false"]}
    for webhook, path in (by_pod, "/pod"), (by_namespace, "/namespace"):
        assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Fail", "None") and webhook["timeoutSeconds"] < load_webhook().CONNECTION_S
        assert webhook["clientConfig"]["service"]["path"] == path
        assert webhook["rules"] == [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                                     "scope": "Namespaced"}]
        own, = webhook["namespaceSelector"]["matchExpressions"]
        assert own["operator"] == "NotIn" and {"gpu", "kube-system"} == set(own["values"])


def the_parts_of_the_webhook_fit_together():
    documents = chart(webhook={"enabled": True, "installer": {"user": None}})
    configuration, service, deployment, certificate = (
        documents[kind, "pool-webhook"] for kind in ("MutatingWebhookConfiguration", "Service", "Deployment", "Certificate"))
    assert configuration["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "gpu/pool-webhook"}
    for webhook in configuration["webhooks"]:
        address = webhook["clientConfig"]["service"]
        assert f"{address['name']}.{address['namespace']}.svc" in certificate["spec"]["dnsNames"]
        assert address["name"] == service["metadata"]["name"] and address["port"] == service["spec"]["ports"][0]["port"]
        assert "caBundle" not in webhook["clientConfig"]
    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    for selector in (service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"],
                     documents["PodDisruptionBudget", "pool-webhook"]["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    # The Service of the exporter must not select the webhook, nor the other way round.
    assert not chart()["Service", "pool"]["spec"]["selector"].items() <= labels.items()
    pod = template["spec"]
    program, = pod["containers"]
    assert service["spec"]["ports"][0]["targetPort"] == program["ports"][0]["name"] == program["readinessProbe"]["httpGet"]["port"]
    module = load_webhook()
    options, address = module.parse(program["args"])
    assert address == ("", program["ports"][0]["containerPort"]) and options.image == "gpupool:" + VERSION
    assert (options.user, options.version, options.host_sockets) == (None, VERSION, False)
    # A pod of the class Guaranteed stays in it.
    assert options.resources["requests"] == options.resources["limits"] and {"cpu", "memory"} == set(options.resources["limits"])
    mounts = {mount["name"]: mount["mountPath"] for mount in program["volumeMounts"]}
    assert program["command"][-1].startswith(mounts["program"] + "/") and options.key.startswith(mounts["certificate"] + "/")
    data = documents["ConfigMap", "pool-webhook"]["data"]
    assert data == {"gpupool-webhook.py": pathlib.Path(module.__file__).read_text()}
    assert certificate["spec"]["secretName"] in [volume.get("secret", {}).get("secretName") for volume in pod["volumes"]]
    security = {**pod["securityContext"], **program["securityContext"]}
    assert security["runAsNonRoot"] and security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False


def the_chart_takes_a_given_certificate_and_does_not_forget_its_signer():
    documents = chart(webhook={"enabled": True, "certificate": SECRET})
    configuration = documents["MutatingWebhookConfiguration", "pool-webhook"]
    assert [webhook["clientConfig"]["caBundle"] for webhook in configuration["webhooks"]] == ["UEVN"] * 2
    assert "annotations" not in configuration["metadata"]
    volumes = documents["Deployment", "pool-webhook"]["spec"]["template"]["spec"]["volumes"]
    assert "own" in [volume.get("secret", {}).get("secretName") for volume in volumes]
    for name in "secret", "caBundle":
        try:
            chart(webhook={"enabled": True, "certificate": {**SECRET, name: ""}})
        except ValueError as error:
            assert f"webhook.certificate.{name} is needed" in str(error)
            continue
        raise AssertionError(f"the chart was rendered without {name}")


def the_exporter_of_the_chart_passes_yields_on_only_if_its_value_says_so():
    unit = (RECIPES / "systemd/gpupool-exporter.service").read_text()
    more = re.search(r"(?m)^#   CapabilityBoundingSet=CAP_(\w+)$", unit)[1]
    exporter, = chart()["DaemonSet", "pool"]["spec"]["template"]["spec"]["containers"]
    assert "--yield" not in exporter["command"] and more not in exporter["securityContext"]["capabilities"]["add"]
    exporter, = chart(exporter={"yield": True})["DaemonSet", "pool"]["spec"]["template"]["spec"]["containers"]
    assert "--yield" in exporter["command"] and more in exporter["securityContext"]["capabilities"]["add"]


def install(folder, image, cdi, **changes):
    """Runs the installing script of the chart, with a folder as the host's root. Returns its status and messages."""
    script = chart(**changes)["ConfigMap", "pool-install"]["data"]["install.sh"].replace("/host", str(folder))
    script = script.replace("chmod 1777", ":")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, env={
        "PATH": os.environ["PATH"], "GPUPOOL_IMAGE": str(image), "GPUPOOL_CDI": str(cdi)})
    return done.returncode, done.stderr


def make_image(folder, library=LIBRARY):
    """A folder of an image, with a mark and a library."""
    target = folder / "lib/gpupool/libgpupool.so"
    target.parent.mkdir(parents=True)
    shutil.copy(library, target)
    (folder / "mark").write_text("new")


def the_chart_installs_a_release_beside_an_older_one_and_replaces_the_CDI_file():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        host, image, cdi = folder / "host", folder / "image", folder / "gpupool.json"
        make_image(image)
        cdi.write_text(chart()["ConfigMap", "pool-install"]["data"]["gpupool.json"])
        old = host / "opt/gpupool/0.0.9"
        old.mkdir(parents=True)
        (old / "mark").write_text("old")
        (host / f"opt/gpupool/{VERSION}.new").mkdir()  # of an installation that was cut off
        (host / f"opt/gpupool/{VERSION}.new/half").touch()
        assert install(host, image, cdi) == (0, "")
        new = host / "opt/gpupool" / VERSION
        assert sorted(path.name for path in new.iterdir()) == ["lib", "mark"] and (old / "mark").read_text() == "old"
        check_cdi(json.loads((host / "etc/cdi/gpupool.json").read_text()), f"/opt/gpupool/{VERSION}")
        assert sorted(path.name for path in (host / "etc/cdi").iterdir()) == ["gpupool.json"]
        # A second start changes nothing of a release that pods may have mapped.
        before = os.stat(new / "mark").st_ino
        (image / "mark").write_text("other")
        assert install(host, image, cdi) == (0, "")
        assert os.stat(new / "mark").st_ino == before and (new / "mark").read_text() == "new"


def the_chart_installs_no_release_whose_library_does_not_load():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        broken, cdi = folder / "broken", folder / "gpupool.json"
        broken.write_text("no library\n")
        cdi.write_text("{}")
        make_image(folder / "image", broken)
        status, said = install(folder / "host", folder / "image", cdi)
        assert status != 0 and "does not load; nothing is installed" in said, (status, said)
        assert not (folder / "host/opt/gpupool" / VERSION).exists() and not (folder / "host/etc/cdi").exists()


def the_pod_runs_its_program_under_the_library_that_it_copies():
    try:
        import yaml
    except ImportError as error:
        raise Skip("no Python module yaml") from error
    spec = yaml.safe_load((RECIPES / "kubernetes/pod.yaml").read_text())["spec"]
    (first,), (train,) = spec["initContainers"], spec["containers"]
    mounts = [container["volumeMounts"][0] for container in (first, train)]
    assert {mount["name"] for mount in mounts} == {spec["volumes"][0]["name"]} and mounts[1]["readOnly"]
    assert first["command"][-1].rstrip("/") == mounts[0]["mountPath"]
    assert train["command"][0].startswith(mounts[1]["mountPath"] + "/bin/gpupool-run")


def systemd_accepts_the_unit():
    if not shutil.which("systemd-analyze"):
        raise Skip("there is no systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder, "gpupool-exporter.service")
        unit.write_text((RECIPES / "systemd/gpupool-exporter.service").read_text().replace("/usr/bin/gpupool-stat", "/bin/true"))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
        ours = [line for line in done.stderr.splitlines() if "gpupool" in line]
        assert not ours, ours


def a_mistake_in_a_template_is_an_error():
    import_error = None
    try:
        import chart as renderer
    except ImportError as error:
        import_error = error
    if import_error:
        raise Skip("no Python module yaml")
    for text in ("{{ .Values.none }}", "{{ .Values.none | quote }}", "{{ toJson .Values.none }}", "{{ .Values.a | upper }}",
                 "{{- if not .Values.none }}{{- end }}", "{{ required \"x\" .Values.none }}", "{{ include \"x\" . }}", "{{- if .Values.a }}", "{{ .Values }}"):
        try:
            renderer.render(text, {"Values": {"a": 1}}, RECIPES)
        except ValueError:
            continue
        raise AssertionError(f"{text} was rendered")


main([
    each_command_of_the_pages_is_one_that_a_script_runs,
    a_command_that_no_script_runs_is_found,
    each_recipe_is_in_the_table_of_its_folder,
    the_task_prolog_makes_a_limit_of_the_shards_of_a_job,
    the_task_prolog_keeps_the_settings_of_the_user,
    the_CDI_file_has_a_library_in_each_device,
    the_chart_has_its_optional_documents_only_if_they_are_switched_on,
    the_chart_has_the_rules_and_the_dashboard_of_the_tools,
    the_chart_has_the_CDI_devices_of_the_file_for_containers,
    the_names_and_labels_of_the_chart_fit_together,
    the_exporter_of_the_chart_passes_yields_on_only_if_its_value_says_so,
    the_exporter_of_the_chart_has_the_capabilities_of_the_unit,
    the_webhook_is_asked_about_pods_and_namespaces_with_the_label_alone,
    the_parts_of_the_webhook_fit_together,
    the_chart_takes_a_given_certificate_and_does_not_forget_its_signer,
    the_chart_installs_a_release_beside_an_older_one_and_replaces_the_CDI_file,
    the_chart_installs_no_release_whose_library_does_not_load,
    the_pod_runs_its_program_under_the_library_that_it_copies,
    systemd_accepts_the_unit,
    a_mistake_in_a_template_is_an_error,
])
