{{/* The StatefulSet of workers: of the chart's own training, and as a template for `scar train --on kubernetes` and chaos.
     Takes root, replicas, train (path of the file), start, configMap (empty: the file is in the image) and its content. With start=auto the
     workers start the job themselves, or go on with it. */}}
{{- define "scar.worker.statefulset" -}}
{{- $v := .root.Values.training -}}
{{- $image := ternary (include "scar.image.of" $v.image) "" (ne $v.image.repository "") -}}
{{- $env := list (dict "name" "SCAR_TRAIN" "value" .train) (dict "name" "SCAR_FUNCTION" "value" $v.function) (dict "name" "SCAR_START" "value" .start) -}}
{{- if eq .start "auto" }}
{{- $env = append $env (dict "name" "SCAR_WORKERS" "value" (toString .replicas)) -}}
{{- range $name := list "job" "shards" }}
{{- with index $v $name }}{{ $env = append $env (dict "name" (printf "SCAR_%s" (upper $name)) "value" (toString .)) }}{{ end -}}
{{- end }}
{{- end -}}
{{- $file := ternary (list (dict "name" "training" "configMap" (dict "name" .configMap))) list (ne .configMap "") -}}
{{- $at := ternary (list (dict "name" "training" "mountPath" "/etc/scar/training" "readOnly" true)) list (ne .configMap "") -}}
{{- $worker := dict "root" .root "component" "worker" "module" "scar_worker" "values" $v "image" $image "content" (.content | default "")
    "env" (concat $env $v.env) "volumes" (concat $file $v.volumes) "mounts" (concat $at $v.volumeMounts) -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "scar.meta" $worker | nindent 2 }}
spec:
  serviceName: {{ include "scar.fullname" .root }}-worker
  replicas: {{ .replicas }}
  podManagementPolicy: Parallel  # workers wait for each other by themselves
  minReadySeconds: 10  # where an upgrade brings one that fails at once, the others stay as they are
  selector:
    matchLabels:
      {{- include "scar.selector" $worker | nindent 6 }}
  template:
    {{- include "scar.pod" $worker | nindent 4 }}
{{- end }}
