# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Renders the chart of docs/recipes/helm without Helm, for its tests.

It knows the part of Helm's language that the chart uses, and refuses all else:
    {{ .Values.a.b }}  {{ .Values.a | quote }}  {{ .Release.Name }}  {{ .Chart.AppVersion }}
    {{ toJson .Values.a }}  {{- toYaml .Values.a | nindent N }}  {{ required "MESSAGE" .Values.a }}
    {{- .Files.Get "FILE" | nindent N }}  {{ .Files.Get "FILE" | sha256sum }}
    {{- if .Values.a }} ... {{- else }} ... {{- end }}  {{- if not .Values.a }} ... {{- end }}

`scripts/recipes-test chart` compares what it renders with what Helm renders.
"""

import hashlib
import json
import re

import yaml

ACTION = re.compile(r"(\s*)\{\{(-?) *(.*?) *\}\}")


def value_of(path, scope):
    value = scope
    for name in path.split(".")[1:]:
        if name not in value:
            raise ValueError(f"the chart has no value {path}")
        value = value[name]
    return value


def indented(text, columns):
    return "\n" + "\n".join(" " * columns + line if line else line for line in text.rstrip("\n").split("\n"))


def text_of(path, scope):
    value = value_of(path, scope)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"{path} is neither a text nor a number")
    return str(value)


def evaluate(action, scope, files):
    if re.fullmatch(r"\.[\w.]+", action):
        return text_of(action, scope)
    if match := re.fullmatch(r"(\.[\w.]+) \| quote", action):
        return json.dumps(text_of(match[1], scope))
    if match := re.fullmatch(r'required "([^"]+)" (\.[\w.]+)', action):
        if not value_of(match[2], scope):
            raise ValueError(match[1])
        return text_of(match[2], scope)
    if match := re.fullmatch(r"toJson (\.[\w.]+)", action):
        return json.dumps(value_of(match[1], scope), separators=(",", ":"), sort_keys=True)
    if match := re.fullmatch(r"toYaml (\.[\w.]+) \| nindent (\d+)", action):
        return indented(yaml.safe_dump(value_of(match[1], scope), sort_keys=False), int(match[2]))
    if match := re.fullmatch(r'\.Files\.Get "([^"]+)" \| nindent (\d+)', action):
        return indented((files / match[1]).read_text(), int(match[2]))
    if match := re.fullmatch(r'\.Files\.Get "([^"]+)" \| sha256sum', action):
        return hashlib.sha256((files / match[1]).read_bytes()).hexdigest()
    raise ValueError(f"the renderer does not know {{{{ {action} }}}}")


def render(text, scope, files):
    out, at, shown = [], 0, [True]
    for match in ACTION.finditer(text):
        space, is_trimmed, action = match.groups()
        if all(shown):
            out.append(text[at:match.start()] + ("" if is_trimmed else space))
        at = match.end()
        if condition := re.fullmatch(r"if (not )?(\.[\w.]+)", action):
            # Helm does not look at what it leaves out.
            shown.append(all(shown) and bool(value_of(condition[2], scope)) != bool(condition[1]))
        elif action == "else":
            shown[-1] = not shown[-1]
        elif action == "end":
            shown.pop()
        elif all(shown):
            out.append(evaluate(action, scope, files))
    if shown != [True]:
        raise ValueError("an if has no end")
    return "".join(out) + text[at:]


def merged(values, changes):
    return {**values, **{key: merged(values.get(key, {}), change) if isinstance(change, dict) else change
                         for key, change in changes.items()}}


def documents(folder, **changes):
    """The rendered documents of a chart, as data; changes: other values."""
    scope = {"Values": merged(yaml.safe_load((folder / "values.yaml").read_text()), changes),
             "Release": {"Name": "pool", "Namespace": "gpu"},
             "Chart": {"AppVersion": yaml.safe_load((folder / "Chart.yaml").read_text())["appVersion"]}}
    found = []
    for path in sorted((folder / "templates").glob("*.yaml")):
        found += [document for document in yaml.safe_load_all(render(path.read_text(), scope, folder)) if document]
    return found
