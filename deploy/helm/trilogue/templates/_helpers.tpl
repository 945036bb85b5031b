{{- define "trilogue.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "trilogue.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "trilogue.labels" -}}
{{ include "trilogue.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The name of a pod for clients: $NAME is the pod's own name, set in its environment. */}}
{{- define "trilogue.host" -}}
$NAME.{{ include "trilogue.name" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The names of the service, with commas. */}}
{{- define "trilogue.names" -}}
{{- $name := include "trilogue.name" . -}}
{{- $names := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.%s" $name .Release.Namespace .Values.clusterDomain) -}}
{{ join "," (concat $names .Values.service.names) }}
{{- end -}}

{{- define "trilogue.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.cluster.enabled) -}}
{{ fail "replicas above 1 need cluster.enabled, a PostgreSQL database and a bucket" }}
{{- end -}}
{{- if and .Values.cluster.enabled (not .Values.cluster.existingSecret) -}}
{{ fail "cluster.enabled needs cluster.existingSecret, a secret with the keys url and password" }}
{{- end -}}
{{- if and .Values.cluster.enabled (eq .Values.cluster.ack "shared") (not .Values.objects.url) -}}
{{ fail "cluster.ack=shared needs objects.url, s3://BUCKET/PREFIX" }}
{{- end -}}
{{- if not (has .Values.cluster.ack (list "shared" "local")) -}}
{{ fail "cluster.ack is shared or local" }}
{{- end -}}
{{- end -}}
