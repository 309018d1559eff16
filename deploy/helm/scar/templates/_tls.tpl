{{/* Certificates: which Secret a role's are in, and who makes them. A name is <role>.<cluster>.scar, where cluster is scar.cluster. */}}

{{/* Empty: no TLS. An unquoted `off` of YAML is false. */}}
{{- define "scar.tls.mode" -}}
{{- $mode := toString .Values.tls.mode -}}
{{- has $mode (list "off" "false") | ternary "" $mode -}}
{{- end }}

{{- define "scar.tls.roles" -}}
["worker", "shard", "checkpoint", "recovery", "detector", "operator", "reader"]
{{- end }}

{{/* What a component's certificate says that it is: chaos starts jobs, the test and the console only look. */}}
{{- define "scar.tls.role" -}}
{{- dict "ps" "shard" "chaos" "operator" "test" "reader" "console" "reader" | dig .component .component -}}
{{- end }}

{{/* Takes root and role. */}}
{{- define "scar.tls.secret" -}}
{{- if eq (include "scar.tls.mode" .root) "existingSecret" -}}
{{ index .root.Values.tls.existingSecrets .role }}
{{- else -}}
{{ include "scar.fullname" .root }}-tls-{{ .role }}
{{- end -}}
{{- end }}

{{- define "scar.tls.env" -}}
{{- range $name, $file := dict "CERT" "tls.crt" "KEY" "tls.key" "CA" "ca.crt" }}
- name: SCAR_TLS_{{ $name }}
  value: /etc/scar/tls/{{ $file }}
{{- end }}
{{- end }}

{{/* A volume with nothing but the files of the component's role. */}}
{{- define "scar.tls.volume" -}}
- name: tls
  secret:
    secretName: {{ include "scar.tls.secret" (dict "root" .root "role" (include "scar.tls.role" .)) }}
    defaultMode: 0440
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}, {key: ca.crt, path: ca.crt}]
{{- end }}

{{/* The release's authority: what its Secret holds, or a new one. Sets "authority" in the dict that it is given, which has root. */}}
{{- define "scar.tls.authority" -}}
{{- $name := printf "%s-tls-ca" (include "scar.fullname" .root) -}}
{{- $data := dig "data" dict (lookup "v1" "Secret" .root.Release.Namespace $name) -}}
{{- if and (index $data "tls.crt") (index $data "tls.key") -}}
{{- $_ := set . "authority" (buildCustomCert (index $data "tls.crt") (index $data "tls.key")) -}}
{{- else -}}
{{- $_ := set . "authority" (genCAWithKey (include "scar.cluster" .root) 3650 (genPrivateKey "ecdsa")) -}}
{{- end -}}
{{- end }}

{{/* Annotations and data of a role's Secret. It stays as it is until half of its life is over, or the authority is another one.
     Takes root, role and authority. */}}
{{- define "scar.tls.certificate" -}}
{{- $found := lookup "v1" "Secret" .root.Release.Namespace (include "scar.tls.secret" .) -}}
{{- $data := dig "data" dict $found -}}
{{- $renewal := dig "metadata" "annotations" "scar.dev/renew-after" "0" $found -}}
{{- $now := now | unixEpoch | int64 -}}
{{- if and (lt $now (int64 $renewal)) (eq (index $data "ca.crt" | default "" | b64dec) .authority.Cert) }}
annotations:
  scar.dev/renew-after: {{ $renewal | quote }}
data:
  {{- toYaml $data | nindent 2 }}
{{- else }}
{{- $days := int .root.Values.tls.helm.days }}
{{- $name := printf "%s.%s.scar" .role (include "scar.cluster" .root) }}
{{- $made := genSignedCertWithKey .role nil (list $name) $days .authority (genPrivateKey "ecdsa") }}
annotations:
  scar.dev/renew-after: {{ add $now (mul $days 43200) | quote }}
data:
  tls.crt: {{ b64enc $made.Cert }}
  tls.key: {{ b64enc $made.Key }}
  ca.crt: {{ b64enc .authority.Cert }}
{{- end }}
{{- end }}

{{/* Members with and without certificates do not understand each other, so a release keeps what it was installed with. */}}
{{- define "scar.tls.unchanged" -}}
{{- $mode := include "scar.tls.mode" . -}}
{{- with lookup "v1" "Service" .Release.Namespace (printf "%s-recovery" (include "scar.fullname" .)) }}
{{- $secret := dig "metadata" "annotations" "scar.dev/operator-secret" "" . }}
{{- if and $mode (not $secret) }}
{{- fail "this release runs without TLS, and cannot change over: set tls.mode=off to keep it so, or uninstall it, install it again, and resume its job" }}
{{- end }}
{{- if and $secret (not $mode) }}
{{- fail "tls.mode is off, but this release runs with TLS, and cannot change over: uninstall it, install it again, and resume its job" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "scar.tls.validate" -}}
{{- $tls := .Values.tls -}}
{{- $given := "" -}}
{{- range $role, $name := $tls.existingSecrets }}{{ if $name }}{{ $given = $role }}{{ end }}{{ end -}}
{{- if ne (include "scar.tls.mode" .) "existingSecret" }}
{{- if $given }}
{{- fail (printf "tls.existingSecrets.%s is set, but tls.mode is %v: set tls.mode=existingSecret to use your Secrets" $given $tls.mode) }}
{{- end }}
{{- else }}
{{- range $role := include "scar.tls.roles" . | fromJsonArray }}
{{- if not (index $tls.existingSecrets $role) }}
{{- fail (printf "tls.existingSecrets.%s is not set: tls.mode=existingSecret needs a Secret for each role" $role) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
