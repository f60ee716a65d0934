{{/* Labels that select the server's pods; they never change. */}}
{{- define "greenroom.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- define "greenroom.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "greenroom.labels" -}}
{{ include "greenroom.selectorLabels" . }}
{{ include "greenroom.commonLabels" . }}
{{- end }}

{{- define "greenroom.image" -}}
{{ required "image.repository is missing: the image that you have built" .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "greenroom.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Release.Name }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* Where the database's URL is. */}}
{{- define "greenroom.databaseSecret" -}}
name: {{ .Values.database.existingSecret | default (printf "%s-database" .Release.Name) }}
key: {{ if .Values.database.existingSecret }}{{ .Values.database.key }}{{ else }}url{{ end }}
{{- end }}

{{/* The URL at which clients reach the server through the ingress. */}}
{{- define "greenroom.ingressUrl" -}}
{{ .Values.ingress.scheme }}://{{ required "ingress.host is missing" .Values.ingress.host }}{{ .Values.ingress.path | trimSuffix "/" }}
{{- end }}

{{/* Variables of settings. Takes `settings`, and the `prefix` of their names. */}}
{{- define "greenroom.settings" -}}
{{- range $name, $value := .settings }}
{{- $variable := printf "%s_%s" $.prefix (upper $name) }}
{{- if kindIs "map" $value }}
{{- include "greenroom.settings" (dict "prefix" $variable "settings" $value) }}
{{- else }}
- name: {{ $variable }}
  value: {{ include "greenroom.text" $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The text of a value. Helm reads whole numbers as floats, which it would write as 5e+09. */}}
{{- define "greenroom.text" -}}
{{- if kindIs "slice" . -}}
{{ toJson . }}
{{- else if and (kindIs "float64" .) (eq . (floor .)) -}}
{{ int64 . }}
{{- else -}}
{{ . }}
{{- end }}
{{- end }}

{{/* Probes have the pod's address as their host, which `allowed_hosts` would refuse. */}}
{{- define "greenroom.probeHeaders" }}
{{- with .Values.settings.allowed_hosts }}
              httpHeaders:
                - name: Host
                  value: {{ first . | quote }}
{{- end }}
{{- end }}

{{- define "greenroom.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "greenroom.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
