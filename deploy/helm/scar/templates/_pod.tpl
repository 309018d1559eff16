{{/* The pod of one service. Takes root, component, module, values (of the component), and perhaps args, env, image,
     volumes, mounts, and the content of a file at whose change the pods are to be replaced. Containers are named after their component. */}}
{{- define "scar.pod" -}}
{{- $place := mergeOverwrite (deepCopy .root.Values.pod) .values.pod -}}
metadata:
  labels:
    {{- include "scar.labels" . | nindent 4 }}
    {{- with $place.labels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ .component }}
    checksum/connections: {{ include "scar.connections" .root }}
    {{- with .content }}
    checksum/content: {{ sha256sum . }}
    {{- end }}
    {{- with $place.annotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "scar.serviceAccountName" . }}
  automountServiceAccountToken: {{ or (has .component (list "recovery" "chaos")) (and (eq .component "console") .root.Values.console.logs) }}
  enableServiceLinks: false
  securityContext:
    {{- include "scar.podSecurityContext" 10001 | nindent 4 }}
  terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds | default 30 }}
  {{- with .root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- include "scar.placement" (dict "place" $place "root" .root "component" .component) | nindent 2 }}
  containers:
    - name: {{ .component }}
      image: {{ .image | default (include "scar.image" .root) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: {{ .args | default (list "python" "-m" .module) | toJson }}
      env:
        {{- include "scar.env" (dict "root" .root "component" .component "settings" .values.settings) | nindent 8 }}
        {{- with .env }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- with $place.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- if .module }}
      ports:
        - {name: grpc, containerPort: 7070}
        {{- if eq .component "ps" }}
        - {name: direct, containerPort: 7072}
        {{- end }}
        - {name: health, containerPort: 7071}
        - {name: metrics, containerPort: 9090}
      {{- include "scar.probes" . | nindent 6 }}
      {{- end }}
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      securityContext:
        {{- include "scar.containerSecurityContext" . | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if include "scar.tls.mode" .root }}
        - {name: tls, mountPath: /etc/scar/tls, readOnly: true}
        {{- end }}
        {{- if has .component (include "scar.store.keyHolders" .root | fromJsonArray) }}
        - {name: store-key, mountPath: /etc/scar/store-key, readOnly: true}
        {{- end }}
        {{- range $server, $secret := include "scar.caSecrets" . | fromJson }}
        - {name: {{ $server }}-ca, mountPath: /etc/scar/{{ $server }}-ca, readOnly: true}
        {{- end }}
        {{- with .mounts }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- with $place.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: {{ $place.tmpSize }}}
    {{- if include "scar.tls.mode" .root }}{{ include "scar.tls.volume" . | nindent 4 }}{{ end }}
    {{- if has .component (include "scar.store.keyHolders" .root | fromJsonArray) }}
    - name: store-key
      secret: {secretName: {{ include "scar.store.keySecret" .root }}, defaultMode: 0440, items: [{key: key, path: key}]}
    {{- end }}
    {{- range $server, $secret := include "scar.caSecrets" . | fromJson }}
    - name: {{ $server }}-ca
      secret: {secretName: {{ $secret }}, items: [{key: ca.crt, path: ca.crt}]}
    {{- end }}
    {{- with .volumes }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- with $place.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end }}

{{/* liveness: the working thread moves, whatever Redis and the store do; patient, because the detector replaces a hung shard long
     before, and a restart helps nobody on a node that is merely overloaded. readiness: nothing is left to wait for. They have a port
     of their own, which is answered however busy the other one is; no policy opens it, as the kubelet needs none. */}}
{{- define "scar.probes" -}}
startupProbe:
  grpc: {port: 7071, service: liveness}
  periodSeconds: 1
  failureThreshold: 120
livenessProbe:
  grpc: {port: 7071, service: liveness}
  periodSeconds: 10
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  grpc: {port: 7071, service: readiness}
  periodSeconds: 2
  timeoutSeconds: 5
{{- end }}

{{- define "scar.placement" -}}
{{- with .place.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .place.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .place.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $hard := eq .root.Values.spread.whenUnsatisfiable "DoNotSchedule" }}
{{- $affinity := deepCopy (.place.affinity | default dict) }}
{{- if and .root.Values.spread.topologyKeys (not $hard) (not (hasKey $affinity "podAntiAffinity")) }}
{{- $_ := set $affinity "podAntiAffinity" (include "scar.apart" . | fromYaml) }}
{{- end }}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and .root.Values.spread.topologyKeys $hard }}
topologySpreadConstraints:
  {{- range .root.Values.spread.topologyKeys }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: DoNotSchedule
    labelSelector:
      matchLabels:
        {{- include "scar.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Soft spreading by anti-affinity: a spread constraint that may be broken counts for nothing where one node lacks one label. */}}
{{- define "scar.apart" -}}
preferredDuringSchedulingIgnoredDuringExecution:
  {{- range .root.Values.spread.topologyKeys }}
  - weight: 100
    podAffinityTerm:
      topologyKey: {{ . }}
      labelSelector:
        matchLabels:
          {{- include "scar.selector" $ | nindent 10 }}
  {{- end }}
{{- end }}

{{/* Members are known by their addresses before they are ready, or shards could not reach each other while they recover. */}}
{{- define "scar.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "scar.meta" . | nindent 2 }}
  {{- if eq .component "recovery" }}
  annotations:
    scar.dev/chaos: {{ .root.Values.chaos.enabled | ternary "allowed" "refused" }}
    {{- if include "scar.tls.mode" .root }}
    scar.dev/operator-secret: {{ include "scar.tls.secret" (dict "root" .root "role" "operator") }}
    {{- end }}
  {{- end }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "scar.selector" . | nindent 4 }}
  ports:
    - {name: grpc, port: 7070, targetPort: grpc, appProtocol: {{ include "scar.tls.mode" .root | empty | ternary "kubernetes.io/h2c" "https" }}}
{{- end }}
