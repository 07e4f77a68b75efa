{{/* Names, labels and images: what more than one object needs. */}}

{{- define "perdure.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Cut at 50 so that every suffix used here fits into the 63 characters of a name. */}}
{{- define "perdure.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "perdure.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "perdure.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "perdure.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* JSON list of the namespaces that are served. Use with fromJsonArray. */}}
{{- define "perdure.watchNamespaces" -}}
{{- .Values.watchNamespaces | default (list (include "perdure.namespace" .)) | uniq | toJson }}
{{- end }}

{{/* Immutable in a Deployment: never add to these. Call with (dict "root" $ "component" "operator"). */}}
{{- define "perdure.selectorLabels" -}}
app.kubernetes.io/name: {{ include "perdure.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "perdure.labels" -}}
{{ include "perdure.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: perdure
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
The metadata of an object. Call with (dict "root" $ "component" "operator" "name" "x") and where needed
"namespace" (default: the operator's; "" for objects of the cluster), "labels", "annotations".
*/}}
{{- define "perdure.metadata" -}}
name: {{ .name }}
{{- $namespace := include "perdure.namespace" .root }}
{{- if hasKey . "namespace" }}
{{- $namespace = .namespace }}
{{- end }}
{{- with $namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "perdure.labels" . | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "perdure.image" -}}
{{- $image := .Values.image }}
{{- $registry := default (.Values.global).imageRegistry $image.registry }}
{{- with $registry }}{{ . }}/{{ end }}{{ $image.repository }}:{{ default .Chart.AppVersion $image.tag }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "perdure.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets | default (.Values.global).imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "perdure.operatorServiceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (printf "%s-operator" (include "perdure.fullname" .)) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}
