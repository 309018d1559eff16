{{/* Names, labels, and what all services are told. Most helpers take a dict: root (the chart's context) and component. */}}

{{- define "scar.fullname" -}}
{{- $name := contains "scar" .Release.Name | ternary .Release.Name (printf "%s-scar" .Release.Name) -}}
{{- if gt (len $name) 40 }}{{ fail (printf "release name %q is too long: use at most 35 characters" .Release.Name) }}{{ end -}}
{{- $name -}}
{{- end }}

{{/* What tells this cluster from others that share its bucket or its Redis: at most 63 characters. */}}
{{- define "scar.cluster" -}}
{{- $name := printf "%s.%s" .Release.Namespace .Release.Name -}}
{{- if gt (len $name) 63 }}{{ printf "%s-%s" (trunc 54 $name | trimAll ".-") (sha256sum $name | trunc 8) }}{{ else }}{{ $name }}{{ end -}}
{{- end }}

{{- define "scar.selector" -}}
app.kubernetes.io/name: scar
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "scar.labels" -}}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{ include "scar.selector" . }}
{{- end }}

{{- define "scar.meta" -}}
name: {{ include "scar.fullname" .root }}-{{ .name | default .component }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "scar.labels" . | nindent 2 }}
{{- end }}

{{/* One account for each component: what one may do, another must not inherit. */}}
{{- define "scar.serviceAccountName" -}}
{{ include "scar.fullname" .root }}-{{ .component }}
{{- end }}

{{/* Components that use the store, as JSON. Workers run a user's code, so they are not among them. */}}
{{- define "scar.store.users" -}}
["ps", "checkpoint", "recovery", "chaos", "test"]
{{- end }}

{{/* Components that use Redis, as JSON. The detector hands the heartbeats of workers on. */}}
{{- define "scar.redis.users" -}}
["ps", "checkpoint", "recovery", "detector", "test"]
{{- end }}

{{/* Key of the Secret under which a component finds its URL of Redis. */}}
{{- define "scar.redis.key" -}}
{{- if or .root.Values.bundled.redis.enabled .root.Values.redis.urlPerRole -}}
SCAR_REDIS_{{ upper .component }}
{{- else -}}
SCAR_REDIS
{{- end -}}
{{- end }}

{{/* An image by its digest, where the values have one, else by its tag. */}}
{{- define "scar.image.of" -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default "latest" }}
{{- end -}}
{{- end }}

{{- define "scar.image" -}}
{{ include "scar.image.of" (merge (dict "tag" (.Values.image.tag | default .Chart.AppVersion)) .Values.image) }}
{{- end }}

{{- define "scar.store.endpoint" -}}
{{- if .Values.bundled.minio.enabled -}}
http://{{ include "scar.fullname" . }}-minio:9000
{{- else -}}
{{ .Values.store.endpoint }}
{{- end -}}
{{- end }}

{{- define "scar.store.url" -}}
{{- $prefix := trimAll "/" .Values.store.prefix -}}
s3://{{ .Values.store.bucket }}{{ with $prefix }}/{{ . }}{{ end }}?region={{ .Values.store.region }}
{{- with include "scar.store.endpoint" . }}&endpoint={{ . }}{{ end -}}
{{- end }}

{{/* The Secret with the store's keys; empty: the pods' cloud identity is used. */}}
{{- define "scar.store.secret" -}}
{{- if .Values.store.existingSecret -}}
{{ .Values.store.existingSecret }}
{{- else if or .Values.bundled.minio.enabled .Values.store.accessKey -}}
{{ include "scar.fullname" . }}-store
{{- end -}}
{{- end }}

{{/* Components that believe what lies in the store, as JSON: they have the key that signs it. */}}
{{- define "scar.store.keyHolders" -}}
["ps", "checkpoint", "recovery"]
{{- end }}

{{- define "scar.store.keySecret" -}}
{{ .Values.store.keySecret | default (printf "%s-store-key" (include "scar.fullname" .)) }}
{{- end }}

{{- define "scar.redis.secret" -}}
{{ .Values.redis.existingSecret | default (printf "%s-redis" (include "scar.fullname" .)) }}
{{- end }}

{{/* Server -> Secret with its CA's certificates, of the servers that a component uses, as JSON. */}}
{{- define "scar.caSecrets" -}}
{{- $found := dict -}}
{{- if has .component (include "scar.redis.users" .root | fromJsonArray) -}}
{{- with .root.Values.redis.tls.caSecret }}{{ $_ := set $found "redis" . }}{{ end -}}
{{- end -}}
{{- if has .component (include "scar.store.users" .root | fromJsonArray) -}}
{{- with .root.Values.store.tls.caSecret }}{{ $_ := set $found "store" . }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* A generated password that outlives upgrades: what the Secret holds already wins. */}}
{{- define "scar.password" -}}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace .secret -}}
{{- with dig "data" .key "" $found }}{{ b64dec . }}{{ else }}{{ randAlphaNum 32 }}{{ end -}}
{{- end }}

{{/* Changes when pods need other connections. It is made of passwords, and annotations are read by many: so it is salted by the
     release, and slow (scrypt) for who tries one password after the other. It is made once for all pods. */}}
{{- define "scar.connections" -}}
{{- if not (hasKey .Values "connectionsDigest") -}}
{{- $all := toJson (list .Values.store .Values.redis) -}}
{{- $_ := set .Values "connectionsDigest" (derivePassword 1 "long" $all (include "scar.cluster" .) "connections" | sha256sum) -}}
{{- end -}}
{{ .Values.connectionsDigest }}
{{- end }}

{{- define "scar.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "scar.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What every process of SCAR is told. Workers run a user's code: they get no way to the store, nor to Redis. */}}
{{- define "scar.env" -}}
{{- $full := include "scar.fullname" .root -}}
- name: SCAR_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: SCAR_LISTEN
  value: 0.0.0.0:7070
- name: SCAR_ADVERTISE
  value: $(POD_IP):7070
- name: SCAR_HEALTH_PORT
  value: "7071"
- name: SCAR_METRICS_PORT
  value: "9090"
- name: SCAR_CLUSTER
  value: {{ include "scar.cluster" .root | quote }}
{{- if has .component (list "recovery" "chaos") }}
- name: SCAR_RELEASE
  value: {{ .root.Release.Name }}
{{- end }}
{{- if has .component (include "scar.redis.users" .root | fromJsonArray) }}
- name: SCAR_REDIS
  valueFrom: {secretKeyRef: {name: {{ include "scar.redis.secret" .root }}, key: {{ include "scar.redis.key" . }}}}
{{- end }}
- name: SCAR_RECOVERY
  value: {{ $full }}-recovery:7070
- name: SCAR_DETECTOR
  value: {{ $full }}-detector:7070
- name: SCAR_CHECKPOINT
  value: {{ $full }}-checkpoint:7070
- name: SCAR_HEARTBEAT_SECONDS
  value: {{ .root.Values.heartbeatSeconds | quote }}
{{- with .root.Values.leaseSeconds }}
- name: SCAR_LEASE_SECONDS
  value: {{ . | quote }}
{{- end }}
{{- if has .component (list "recovery" "detector") }}
- name: SCAR_PEER_ADDRESSES
  value: {{ .root.Values.peerAddresses }}
{{- end }}
- name: SCAR_LOG_LEVEL
  value: {{ .root.Values.logLevel }}
{{- with .root.Values.tracing.endpoint }}
- name: SCAR_TRACES
  value: {{ . | quote }}
{{- end }}
{{- if has .component (include "scar.store.users" .root | fromJsonArray) }}
{{ include "scar.env.store" .root }}
{{- end }}
{{- if has .component (include "scar.store.keyHolders" .root | fromJsonArray) }}
- name: SCAR_STORE_KEY
  value: /etc/scar/store-key/key
{{- end }}
{{- if include "scar.tls.mode" .root }}{{ include "scar.tls.env" . }}{{ else }}
- name: SCAR_INSECURE
  value: "true"
{{- end }}
{{- range $server := include "scar.caSecrets" . | fromJson | keys | sortAlpha }}
- name: {{ eq $server "redis" | ternary "SCAR_REDIS_CA" "AWS_CA_BUNDLE" }}
  value: /etc/scar/{{ $server }}-ca/ca.crt
{{- end }}
{{- if has .component (list "recovery" "chaos") }}
{{ include "scar.env.pod" .root }}
{{- end }}
{{- if eq .component "ps" }}
- name: SCAR_DIRECT_PORT
  value: "7072"
{{- end }}
{{- range $name, $value := .settings }}
- name: SCAR_{{ $name | snakecase | upper }}
  value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
{{- end }}
{{- end }}

{{- define "scar.env.store" -}}
- name: SCAR_STORE
  value: {{ include "scar.store.url" . | quote }}
{{- with include "scar.store.secret" . }}
{{ include "scar.env.keys" $ | trim }}
{{- end }}
{{- end }}

{{- define "scar.env.keys" -}}
{{- range list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ include "scar.store.secret" $ }}, key: {{ . }}}}
{{- end }}
{{- end }}

{{- define "scar.env.pod" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}

{{/* Rules that a schema cannot express. */}}
{{- define "scar.validate" -}}
{{- $v := .Values -}}
{{- if and $v.bundled.minio.enabled (or $v.store.endpoint $v.store.accessKey $v.store.existingSecret) }}
{{- fail "store.endpoint, store.accessKey or store.existingSecret is set, but MinIO is bundled, too: set bundled.minio.enabled=false to use your store" }}
{{- end }}
{{- if ne (empty $v.store.accessKey) (empty $v.store.secretKey) }}
{{- fail "store.accessKey and store.secretKey belong together: set both, or neither" }}
{{- end }}
{{- if and $v.store.accessKey $v.store.existingSecret }}
{{- fail "store.existingSecret and store.accessKey are set: use one of them" }}
{{- end }}
{{- if and $v.bundled.redis.enabled (or $v.redis.url $v.redis.existingSecret) }}
{{- fail "redis.url or redis.existingSecret is set, but Redis is bundled, too: set bundled.redis.enabled=false to use your Redis" }}
{{- end }}
{{- if and (not $v.bundled.redis.enabled) (not $v.redis.url) (not $v.redis.existingSecret) }}
{{- fail "no Redis: set redis.url, redis.existingSecret, or bundled.redis.enabled=true" }}
{{- end }}
{{- if and $v.redis.url $v.redis.existingSecret }}
{{- fail "redis.existingSecret and redis.url are set: use one of them" }}
{{- end }}
{{- if and $v.redis.urlPerRole (not $v.redis.existingSecret) }}
{{- fail "redis.urlPerRole is set, but no Secret has these URLs: set redis.existingSecret, and bundled.redis.enabled=false" }}
{{- end }}
{{- if and $v.store.tls.caSecret (or $v.bundled.minio.enabled (hasPrefix "http:" $v.store.endpoint)) }}
{{- fail "store.tls.caSecret is set, but the store is reached without TLS: set store.endpoint to https://..., and bundled.minio.enabled=false" }}
{{- end }}
{{- if and $v.redis.tls.caSecret (or $v.bundled.redis.enabled (hasPrefix "redis:" $v.redis.url)) }}
{{- fail "redis.tls.caSecret is set, but Redis is reached without TLS: set redis.url to rediss://..., and bundled.redis.enabled=false" }}
{{- end }}
{{- if lt (int $v.ps.terminationGracePeriodSeconds) (add (int (ceil ($v.ps.settings.leaveSeconds | default 10))) 5 | int) }}
{{- fail "ps.terminationGracePeriodSeconds must be at least ps.settings.leaveSeconds + 5, or a shard is killed while it hands its blocks over" }}
{{- end }}
{{- if and $v.training.file $v.training.path }}
{{- fail "training.file and training.path are set: use one of them" }}
{{- end }}
{{- if gt (len $v.training.file) 921600 }}
{{- fail "training.file is larger than 900 KiB, more than a ConfigMap can hold: build an image that contains it, and set training.image and training.path" }}
{{- end }}
{{- end }}
