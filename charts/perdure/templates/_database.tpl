{{/* Which of the three ways to Postgres is chosen, and the Secret that worker pods read. */}}

{{- define "perdure.throwawaySecret" -}}
{{ include "perdure.fullname" . }}-database
{{- end }}

{{- define "perdure.throwawayHost" -}}
{{ include "perdure.fullname" . }}-postgres.{{ include "perdure.namespace" . }}.svc
{{- end }}

{{/* "uri", "parts" or "throwaway"; anything unclear ends the rendering with what to set. */}}
{{- define "perdure.databaseMode" -}}
{{- $database := .Values.database }}
{{- $modes := list }}
{{- if $database.existingSecret }}{{ $modes = append $modes "uri" }}{{ end }}
{{- if $database.host }}{{ $modes = append $modes "parts" }}{{ end }}
{{- if $database.throwaway.enabled }}{{ $modes = append $modes "throwaway" }}{{ end }}
{{- if ne (len $modes) 1 }}
{{- fail "\n\ndatabase: set exactly one of database.existingSecret (a Secret with a connection URI), database.host (connect by parts) and database.throwaway.enabled (a Postgres for a first look, its data is lost with its pod)\n" }}
{{- end }}
{{- if $database.host }}
{{- if not $database.passwordSecret.name }}
{{- fail "\n\ndatabase.host needs database.passwordSecret.name: the Secret with the password\n" }}
{{- end }}
{{- if not .Values.workerDefaults.databaseSecret.name }}
{{- fail "\n\ndatabase.host needs workerDefaults.databaseSecret.name: a Secret with a connection URI in each watched namespace, which worker pods read\n" }}
{{- end }}
{{- if and (hasPrefix "verify-" $database.sslMode) (not $database.caSecret.name) }}
{{- fail (printf "\n\ndatabase.sslMode %s needs database.caSecret.name: the Secret with the certificate authority. Without one, database.sslMode require encrypts but does not check whom it talks to\n" $database.sslMode) }}
{{- end }}
{{- end }}
{{- first $modes }}
{{- end }}

{{- define "perdure.workerDatabaseSecret" -}}
{{- if .Values.workerDefaults.databaseSecret.name }}
{{- .Values.workerDefaults.databaseSecret.name }}
{{- else if eq (include "perdure.databaseMode" .) "throwaway" }}
{{- include "perdure.throwawaySecret" . }}
{{- else }}
{{- .Values.database.existingSecret }}
{{- end }}
{{- end }}

{{- define "perdure.workerDatabaseSecretKey" -}}
{{- if .Values.workerDefaults.databaseSecret.name }}
{{- .Values.workerDefaults.databaseSecret.key }}
{{- else if eq (include "perdure.databaseMode" .) "throwaway" }}
{{- "uri" }}
{{- else }}
{{- .Values.database.uriKey }}
{{- end }}
{{- end }}

{{/* Everything the operator is told about Postgres. Passwords only ever come as mounted files: see the volumes. */}}
{{- define "perdure.databaseEnv" -}}
{{- $database := .Values.database }}
{{- if eq (include "perdure.databaseMode" .) "parts" }}
- name: PERDURE_DATABASE_HOST
  value: {{ $database.host | quote }}
- name: PERDURE_DATABASE_PORT
  value: {{ $database.port | quote }}
- name: PERDURE_DATABASE_NAME
  value: {{ $database.name | quote }}
- name: PERDURE_DATABASE_USER
  value: {{ $database.user | quote }}
- name: PERDURE_DATABASE_PASSWORD_FILE
  value: /etc/perdure/database/password
- name: PERDURE_DATABASE_SSLMODE
  value: {{ $database.sslMode | quote }}
{{- if $database.caSecret.name }}
- name: PERDURE_DATABASE_SSLROOTCERT
  value: /etc/perdure/database-ca/ca.crt
{{- end }}
{{- else }}
- name: PERDURE_DATABASE_URL_FILE
  value: /etc/perdure/database/uri
{{- end }}
{{- if ne $database.pooler "none" }}
- name: PERDURE_DATABASE_POOLER
  value: {{ $database.pooler | quote }}
{{- end }}
{{- if $database.migrateSecret.name }}
- name: PERDURE_DATABASE_MIGRATE_URL_FILE
  value: /etc/perdure/database-migrate/uri
{{- end }}
{{- end }}

{{- define "perdure.databaseVolumes" -}}
{{- $database := .Values.database }}
{{- $mode := include "perdure.databaseMode" . }}
- name: database
  secret:
    {{- if eq $mode "parts" }}
    secretName: {{ $database.passwordSecret.name }}
    items:
      - key: {{ $database.passwordSecret.key }}
        path: password
    {{- else if eq $mode "throwaway" }}
    secretName: {{ include "perdure.throwawaySecret" . }}
    items:
      - key: uri
        path: uri
    {{- else }}
    secretName: {{ $database.existingSecret }}
    items:
      - key: {{ $database.uriKey }}
        path: uri
    {{- end }}
{{- if $database.caSecret.name }}
- name: database-ca
  secret:
    secretName: {{ $database.caSecret.name }}
    items:
      - key: {{ $database.caSecret.key }}
        path: ca.crt
{{- end }}
{{- if $database.migrateSecret.name }}
- name: database-migrate
  secret:
    secretName: {{ $database.migrateSecret.name }}
    items:
      - key: {{ $database.migrateSecret.key }}
        path: uri
{{- end }}
{{- end }}

{{- define "perdure.databaseVolumeMounts" -}}
- name: database
  mountPath: /etc/perdure/database
  readOnly: true
{{- if .Values.database.caSecret.name }}
- name: database-ca
  mountPath: /etc/perdure/database-ca
  readOnly: true
{{- end }}
{{- if .Values.database.migrateSecret.name }}
- name: database-migrate
  mountPath: /etc/perdure/database-migrate
  readOnly: true
{{- end }}
{{- end }}
