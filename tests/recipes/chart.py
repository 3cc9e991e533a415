# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Renders the chart of docs/recipes/helm without Helm, for its tests.

It knows the part of Helm's language that the chart uses, and refuses all else:
    {{ .Values.a.b }}  {{ .Release.Name }}  {{ .Chart.AppVersion }}
    {{- toYaml .Values.a | nindent N }}  {{- .Files.Get "FILE" | nindent N }}
    {{- if .Values.a }} ... {{- end }}
"""

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


def evaluate(action, scope, files):
    if re.fullmatch(r"\.[\w.]+", action):
        value = value_of(action, scope)
        if not isinstance(value, (str, int, float)):
            raise ValueError(f"{action} is a list or a map")
        return str(value)
    if match := re.fullmatch(r"toYaml (\.[\w.]+) \| nindent (\d+)", action):
        return indented(yaml.safe_dump(value_of(match[1], scope), sort_keys=False), int(match[2]))
    if match := re.fullmatch(r'\.Files\.Get "([^"]+)" \| nindent (\d+)', action):
        return indented((files / match[1]).read_text(), int(match[2]))
    raise ValueError(f"the renderer does not know {{{{ {action} }}}}")


def render(text, scope, files):
    out, at, shown = [], 0, [True]
    for match in ACTION.finditer(text):
        space, is_trimmed, action = match.groups()
        if all(shown):
            out.append(text[at:match.start()] + ("" if is_trimmed else space))
        at = match.end()
        if condition := re.fullmatch(r"if (\.[\w.]+)", action):
            shown.append(bool(value_of(condition[1], scope)))
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
